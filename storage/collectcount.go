package storage

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// maxCounted bounds the pieces that Garbage follows from what refers to them.
const maxCounted = 1 << 16

// garbageCount counts what is garbage.
type garbageCount struct {
	s    *Store
	sum  SpaceCount
	gone map[uint64]bool // numbers of garbage, the first maxCounted
	todo []object.Digest // of them, nodes and index pieces whose content has still to be looked at
}

// Garbage counts the pieces and nodes that are held and that no commit and no open journal reaches,
// and what they take in the segments: what a Collector will delete. Beyond some ten thousand it
// counts only those to which nothing at all refers. It folds first, reads all rows of references,
// in transactions of some thousands, and the content of nodes and index pieces that are garbage.
// What is deleted meanwhile may be counted. Errors match base.ErrCorrupt or base.ErrClosed, or are
// those of the disk or of ctx.
func (s *Store) Garbage(ctx context.Context) (SpaceCount, error) {
	g := &garbageCount{s: s, gone: map[uint64]bool{}}
	err := s.readyRows(ctx)
	for cursor, end := uint64(0), uint64(1); err == nil && cursor < end; {
		if err = ctx.Err(); err == nil {
			cursor, end, err = g.walk(cursor)
		}
	}
	for err == nil && len(g.todo) > 0 && len(g.gone) < maxCounted {
		if err = ctx.Err(); err == nil {
			err = g.follow(ctx)
		}
	}
	if err != nil {
		return SpaceCount{}, fmt.Errorf("count garbage: %w", err)
	}
	return g.sum, nil
}

// walk looks at some numbers for pieces to which nothing refers. It returns where to go on, and the
// end.
func (g *garbageCount) walk(cursor uint64) (next, end uint64, err error) {
	w := g.s.wantedNow()
	err = g.s.viewOnce(func(tx index.Tx) error {
		if _, err := w.ofRows(tx); err != nil {
			return err
		}
		w.journals = slices.DeleteFunc(w.journals, func(j uint64) bool { return !w.live[j] })
		st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
		if err != nil {
			return err
		}
		end = st.next
		k := &judge{
			tx: tx, refs: tx.Bucket(bucketRefs).Cursor(), numbers: tx.Bucket(bucketNumbers).Cursor(), w: &w,
			local: true, placed: true, blind: true, keepRows: true,
		}
		if next, err = k.walk(cursor, end); err != nil {
			return err
		}
		for i := range k.rows {
			g.add(k.garbage[i].digest, &k.rows[i])
		}
		return nil
	})
	return next, end, err
}

func (g *garbageCount) add(d object.Digest, row *objectRow) {
	if !row.held {
		return
	}
	g.sum.add(int(row.place.Length))
	if len(g.gone) >= maxCounted {
		return
	}
	g.gone[row.number] = true
	if d.Kind() != object.Chunk {
		g.todo = append(g.todo, d)
	}
}

// follow adds what one piece refers to, as far as only garbage does.
func (g *garbageCount) follow(ctx context.Context) error {
	d := g.todo[len(g.todo)-1]
	g.todo = g.todo[:len(g.todo)-1]
	targets, err := g.s.pieceTargets(ctx, d, g.s)
	if err != nil {
		if _, held, lookErr := g.s.locate(&d); lookErr == nil && !held {
			return nil // it was deleted meanwhile
		}
		return fmt.Errorf("read garbage %s: %w", d.Short(), err)
	}
	return g.s.viewOnce(func(tx index.Tx) error {
		for i := range targets {
			row, ok, err := readObjectRow(tx, &targets[i].digest)
			if err != nil {
				return err
			}
			if !ok || g.gone[row.number] {
				continue
			}
			only, err := g.onlyGarbage(tx, row.number)
			if err != nil {
				return err
			}
			if only {
				g.add(targets[i].digest, &row)
			}
		}
		return nil
	})
}

// onlyGarbage reports whether all that refers to a piece is garbage.
func (g *garbageCount) onlyGarbage(tx index.Tx, dest uint64) (bool, error) {
	prefix := appendNumber(nil, dest)
	for key, v := range rowsWith(tx.Bucket(bucketRefs), prefix) {
		if len(key) != numberSize+1+numberSize {
			return false, nil // a commit
		}
		if key[numberSize] == refBase {
			continue
		}
		sources, ok := parseSources(nil, readNumber(key[numberSize+1:]), v)
		if !ok {
			return false, badRow(bucketRefs, hex.EncodeToString(key), "bad row")
		}
		for _, s := range sources {
			if !g.gone[s] {
				return false, nil
			}
		}
	}
	return true, nil
}
