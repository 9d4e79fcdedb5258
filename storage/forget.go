package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// DropPieces takes the content of synced pieces out of the page; it can be fetched again. Index
// pieces stay, since they say what a value refers to. Pieces that are not synced, or not held, are
// passed over, also when they become so before the drop is durable. It writes batches of 1024
// pieces and returns about how many bytes of content will be free after compaction, also when it
// ends with an error. Errors match base.ErrClosed or base.ErrReadOnly, or are those of the disk or
// of ctx.
func (s *Store) DropPieces(ctx context.Context, pieces []object.Digest) (free int64, err error) {
	given := map[object.Digest]bool{}
	for len(pieces) > 0 {
		var batch []object.Digest
		var bytes int64
		for len(pieces) > 0 && len(batch) < s.maxTouches {
			d := pieces[0]
			pieces = pieces[1:]
			if d.Kind() != object.Chunk || given[d] {
				continue
			}
			given[d] = true
			st, err := s.stateOf(&d)
			if err != nil {
				return free, fmt.Errorf("drop pieces: %w", err)
			}
			if st.held && st.placed && st.at.content == nil {
				batch = append(batch, d)
				bytes += int64(st.at.place.Length) - object.DigestSize - 1
			}
		}
		if len(batch) == 0 {
			break
		}
		if err := s.submitOps(ctx, digestOps(nil, recDropped, batch), false); err != nil {
			return free, fmt.Errorf("drop pieces: %w", err)
		}
		free += bytes
	}
	return free, s.writable()
}

// PlacedIn returns, in any order, the pieces whose place in says is one that it looks for. It reads
// all cloud rows: it folds first and may take long. in must not call the page. Errors match
// base.ErrCorrupt or base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) PlacedIn(ctx context.Context, in func(CloudPlace) bool) ([]PlacedPiece, error) {
	var out []PlacedPiece
	err := s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err == nil && in(p.Place) {
			out = append(out, p)
		}
		return err
	}, func() error { return nil })
	if err != nil {
		return nil, fmt.Errorf("look for pieces in the bucket: %w", err)
	}
	return out, nil
}

// LocalPieces calls fn for each piece that is held, belongs to a commit, and is not in the bucket.
// It folds first. fn may call the page; its error ends LocalPieces and is returned. Other errors
// match base.ErrCorrupt or base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) LocalPieces(ctx context.Context, fn func(object.Digest) error) error {
	return s.eachPiece(ctx, bucketLocal, func(tx index.Tx, k, _ []byte) (object.Digest, bool, error) {
		d, err := keyDigest(tx, bucketLocal, k)
		if err != nil {
			return d, false, err
		}
		row, _, err := readObjectRow(tx, &d)
		return d, row.held, err
	}, fn)
}

// eachPiece calls fn with the pieces that pick names of the rows of a family, as eachRow gives
// these, when no transaction is open.
func (s *Store) eachPiece(ctx context.Context, family string, pick func(tx index.Tx, k, v []byte) (object.Digest, bool, error), fn func(object.Digest) error) error {
	var some []object.Digest
	return s.eachRow(ctx, family, func(tx index.Tx, k, v []byte) error {
		d, ok, err := pick(tx, k, v)
		if ok && err == nil {
			some = append(some, d)
		}
		return err
	}, func() error {
		for _, d := range some {
			if err := fn(d); err != nil {
				return err
			}
		}
		some = some[:0]
		return nil
	})
}

// Types of the metadata rows that ForgetCloud leaves, since they are no knowledge of a bucket:
// MetadataRetention has what a user has set, and types that begin with MetadataGivenUp which
// commits were given up here.
const (
	MetadataRetention = "retention"
	MetadataGivenUp   = "givenup"
)

// staysForgotten reports whether ForgetCloud leaves the row of a type.
func staysForgotten(typ string) bool {
	return typ == MetadataRetention || strings.HasPrefix(typ, MetadataGivenUp)
}

// MetadataErasing is the type of a metadata row that a page may have without a bucket, while a
// value is erased from its history: it does not make it one that syncs.
const MetadataErasing = "erasing"

// ForgetCloud makes everything local and unsynced again, and removes all metadata of sync but
// MetadataRetention and what begins with MetadataGivenUp, as one record of the log: for another
// bucket. Pieces that are not held lose their place. Commits whose tree is not here stay so and
// become unsynced too. With keep set it is refused with base.ErrNeedsFetch while there is a synced
// piece that is not held. It returns when that is durable; the rows follow with the next fold.
// Other errors match base.ErrClosed or base.ErrReadOnly, or are those of the disk or of ctx.
func (s *Store) ForgetCloud(ctx context.Context, keep bool) error {
	for {
		s.mu.Lock()
		syncs, err, groups := s.syncs, s.writableLocked(), []*group{s.appending, s.group}
		s.mu.Unlock()
		if err == nil && keep {
			for _, g := range groups {
				if g != nil {
					_ = s.await(g) // those who submitted it are told when it fails
				}
			}
			err = s.allHeld(ctx)
		}
		if err != nil {
			return fmt.Errorf("forget the bucket: %w", err)
		}
		if done, err := s.tryForget(ctx, keep, syncs); done {
			return err
		}
	}
}

// tryForget writes the record, in a batch of its own. It reports false when something of sync was
// submitted since syncs was taken, by which a piece may have become one that is not held: then what
// was looked at counts no more.
func (s *Store) tryForget(ctx context.Context, keep bool, syncs uint64) (done bool, err error) {
	if err := s.waitRoom(ctx); err != nil {
		return true, err
	}
	if err := s.appendTurn.take(ctx); err != nil {
		return true, fmt.Errorf("forget the bucket: %w", err)
	}
	defer s.appendTurn.release()
	s.appendGroup() // what was submitted before counts before
	s.mu.Lock()
	if err := s.writableLocked(); err != nil {
		s.mu.Unlock()
		return true, err
	}
	if keep && s.syncs != syncs {
		s.mu.Unlock()
		return false, nil
	}
	g := s.aloneGroupLocked([]op{{kind: recForgotten, sync: &syncOp{}}})
	g.news = true
	s.mu.Unlock()
	s.appendTaken(g)
	return true, g.err
}

// allHeld returns an error that matches base.ErrNeedsFetch when there is a synced piece that is not
// held.
func (s *Store) allHeld(ctx context.Context) error {
	return s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err != nil {
			return err
		}
		row, _, err := readObjectRow(tx, &p.Digest)
		if err == nil && !row.held {
			err = fmt.Errorf("piece %s is in the bucket only: %w", p.Digest.Short(), base.ErrNeedsFetch)
		}
		return err
	}, func() error { return nil })
}
