package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// movingKey is a row of bucket state beside the state itself, with an empty value. It is there
// while rows of objects may point both to segments that were replaced and to what replaces them:
// then the position names both.
var movingKey = []byte("moving")

// finishMoves makes the index point to replacements, and retires what they replace. The caller
// holds the fold turn, or nobody else uses the page yet. Done in part, it can be done again.
func (s *Store) finishMoves(ctx context.Context) error {
	moved, err := s.log.Moved()
	if err != nil || len(moved) == 0 {
		return err
	}
	if !s.namesReplaced(moved) { // the index was made anew meanwhile
		s.log.Retire()
		return nil
	}
	err = s.moveAll(ctx, moved)
	if err != nil && errors.Is(err, base.ErrCorrupt) && s.reindexInTurn(ctx, err.Error()) {
		s.log.Retire()
		return nil
	}
	if err != nil {
		return fmt.Errorf("move rows to compacted segments: %w", err)
	}
	s.log.Retire()
	return nil
}

// namesReplaced reports whether the position of the index names segments that were replaced.
func (s *Store) namesReplaced(moved []uint32) bool {
	for _, e := range s.state.position.Ends {
		for _, id := range moved {
			if replaces, err := s.log.Replaces(id, e.Segment); replaces || err != nil {
				return true
			}
		}
	}
	return false
}

func (s *Store) moveAll(ctx context.Context, moved []uint32) error {
	if err := s.writePosition(true); err != nil {
		return err
	}
	for _, id := range moved {
		if err := s.moveRows(ctx, id); err != nil {
			return err
		}
	}
	return s.writePosition(false)
}

// writePosition makes the position of the index name replacements, and what they replace too while
// rows are moved.
func (s *Store) writePosition(moving bool) error {
	p, err := s.log.MapPosition(s.state.position, moving)
	if err != nil {
		return err
	}
	st := s.state.clone()
	st.position = p
	err = writeIndex(s.writableIndex(), func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		if err := setRow(b, movingKey, moving, []byte{}); err != nil {
			return err
		}
		return b.Put(stateKey, st.encode())
	})
	if err == nil {
		s.state = st
	}
	return err
}

func (s *Store) writableIndex() index.DB {
	s.indexMu.RLock()
	defer s.indexMu.RUnlock()
	if s.index == nil {
		return brokenIndex{fmt.Errorf("write the index: %w", base.ErrClosed)}
	}
	return s.index
}

// movedPiece is a piece that is stored in a replacement.
type movedPiece struct {
	digest object.Digest
	kind   byte
	place  segment.Place
}

// moveRows makes rows point to a replacement, in transactions of bounded size.
func (s *Store) moveRows(ctx context.Context, id uint32) error {
	var some []movedPiece
	flush := func() error {
		err := s.moveSome(id, some)
		some = some[:0]
		return err
	}
	err := s.log.Scan(ctx, id, func(_ segment.BatchInfo, recs []segment.Record) error {
		for _, r := range recs {
			if r.Kind != recPiece && r.Kind != recNode && r.Kind != recDelta {
				continue
			}
			o, err := parseRecord(r)
			if err != nil {
				return err
			}
			if some = append(some, movedPiece{o.digest, o.kind, r.Place}); len(some) >= max(1, s.foldTxRows/pieceWeight) {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

func (s *Store) moveSome(id uint32, some []movedPiece) error {
	if len(some) == 0 {
		return nil
	}
	slices.SortFunc(some, func(a, b movedPiece) int { return a.digest.Compare(b.digest) })
	var bases []uint64
	err := writeIndex(s.writableIndex(), func(tx index.Tx) error {
		bases = bases[:0]
		for i := range some {
			base, err := s.moveRow(tx, id, &some[i])
			if err != nil {
				return err
			}
			if base != 0 {
				bases = append(bases, base)
			}
		}
		return nil
	})
	if err == nil {
		s.freed = append(s.freed, bases[:min(len(bases), maxFreed-min(len(s.freed), maxFreed))]...)
	}
	return err
}

// moveRow makes a row point to a replacement if it points to what that replaces. A node that was a
// difference and was written whole needs its base no more, which is returned.
func (s *Store) moveRow(tx index.Tx, id uint32, m *movedPiece) (base uint64, err error) {
	row, ok, err := readObjectRow(tx, &m.digest)
	if err != nil || !ok || !row.held && !row.dead || row.place.Segment == id {
		return 0, err
	}
	if ours, err := s.log.Replaces(id, row.place.Segment); err != nil || !ours {
		return 0, err
	}
	row.place = m.place
	if row.kind == recDelta && m.kind == recNode {
		if err := dropBaseRef(tx, row.base, row.number); err != nil {
			return 0, err
		}
		base = row.base
		row.kind, row.base, row.depth = recNode, 0, 0
	}
	if row.kind != m.kind {
		return 0, badRow(bucketObjects, m.digest.String(), "another kind than the record")
	}
	return base, tx.Bucket(bucketObjects).Put(m.digest[:], row.append(nil))
}

// isMoving reports whether an index may point to segments that were replaced and to what replaces
// them.
func isMoving(db index.DB) (moving bool, err error) {
	err = db.View(func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		moving = b != nil && hasKey(b, movingKey)
		return nil
	})
	return moving, err
}
