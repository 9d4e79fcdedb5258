package storage

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// PlacedIn returns, in any order, the pieces whose place in selects. It reads all cloud rows: it
// folds first and may take long. in must not call the page. Errors match base.ErrCorrupt or
// base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) PlacedIn(ctx context.Context, in func(CloudPlace) bool) ([]PlacedPiece, error) {
	var out []PlacedPiece
	err := s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err == nil && in(p.Place) {
			out = append(out, p)
		}
		return err
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("look for pieces in the bucket: %w", err)
	}
	return out, nil
}

// LocalPieces calls fn for each local piece: it is held, belongs to a commit, and is not in the
// bucket. It folds first. fn may call the page; its error ends LocalPieces and is returned. Other
// errors match base.ErrCorrupt or base.ErrClosed, or are those of the disk or of ctx.
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

// ForgetCloud prepares the page for another bucket. With one record of the log it makes everything
// local and unsynced again, and removes all metadata of sync except MetadataRetention and types
// that begin with MetadataGivenUp. Pieces that are not held lose their place. Treeless commits stay
// treeless and become unsynced too. With keep it is refused with base.ErrNeedsFetch while
// OnlyInCloud returns a piece. It returns when the record is durable; the rows follow with the next fold.
// Other errors match base.ErrClosed or base.ErrReadOnly, or are those of the disk or of ctx.
func (s *Store) ForgetCloud(ctx context.Context, keep bool) error {
	for {
		s.mu.Lock()
		syncs, err, groups := s.syncs, s.writableLocked(), []*group{s.appending, s.group}
		s.mu.Unlock()
		if err == nil && keep {
			for _, g := range groups {
				if g != nil {
					_ = s.await(g) // its submitters get the error
				}
			}
			err = s.allHere(ctx)
		}
		if err != nil {
			return fmt.Errorf("forget the bucket: %w", err)
		}
		if done, err := s.tryForget(ctx, keep, syncs); done {
			return err
		}
	}
}

// allHere returns an error that matches base.ErrNeedsFetch when pieces are in the bucket only.
func (s *Store) allHere(ctx context.Context) error {
	only, err := s.OnlyInCloud(ctx)
	if err == nil && len(only) > 0 {
		err = fmt.Errorf("piece %s is in the bucket only: %w", only[0].Short(), base.ErrNeedsFetch)
	}
	return err
}

// tryForget writes the record, in a batch of its own. It reports false when a submission of sync
// since syncs may have made a piece unheld: the caller must then look again.
func (s *Store) tryForget(ctx context.Context, keep bool, syncs uint64) (done bool, err error) {
	if err := s.waitRoom(ctx); err != nil {
		return true, err
	}
	if err := s.appendTurn.take(ctx); err != nil {
		return true, fmt.Errorf("forget the bucket: %w", err)
	}
	defer s.appendTurn.release()
	s.appendGroup() // earlier submissions count as before
	done = true
	err = s.appendAloneOps(func() []op {
		if done = !keep || s.syncs == syncs; !done {
			return nil
		}
		return []op{{kind: recForgotten, sync: &syncOp{}}}
	})
	return done, err
}

// OnlyInCloud returns, in any order, the pieces that the bucket has and the page does not hold.
// Those to which nothing refers do not count, unless a commit is treeless, whose references are
// unknown. It folds first, and reads all cloud rows. Errors match base.ErrCorrupt or base.ErrClosed,
// or are those of the disk or of ctx.
func (s *Store) OnlyInCloud(ctx context.Context) (only []object.Digest, err error) {
	err = s.eachPiece(ctx, bucketCloud, func(tx index.Tx, k, _ []byte) (object.Digest, bool, error) {
		d, err := keyDigest(tx, bucketCloud, k)
		if err != nil {
			return d, false, err
		}
		row, _, err := readObjectRow(tx, &d)
		return d, !row.held && (!hasTrees(tx) || referred(tx, row.number)), err
	}, func(d object.Digest) error {
		only = append(only, d)
		return nil
	})
	return only, err
}

// foldForgotten executes a record that forgets the bucket, in transactions of bounded size. It is
// idempotent: after a crash a repeated fold ends in the same state.
func (s *Store) foldForgotten(ctx context.Context, db index.DB, st *state) error {
	for _, sweep := range []struct {
		family string
		forget func(tx index.Tx, r *row) error
	}{{bucketCloud, forgetPiece}, {bucketCommits, forgetCommit}, {bucketTags, forgetTag}, {bucketMetadata, forgetMetadata}} {
		from := []byte{}
		err := writeInParts(ctx, db, func(tx index.Tx) (more bool, err error) {
			rows, next := someRows(tx.Bucket(sweep.family), from, max(1, s.foldTxRows/pieceWeight))
			for i := range rows {
				if err := sweep.forget(tx, &rows[i]); err != nil {
					return false, err
				}
			}
			from = next
			return from != nil, nil
		})
		if err != nil {
			return err
		}
	}
	return writeState(db, st)
}

// forgetPiece removes the place of a piece: a held piece becomes local again.
func forgetPiece(tx index.Tx, r *row) error {
	d, err := keyDigest(tx, bucketCloud, r.key)
	if err != nil {
		return err
	}
	held, _, err := readObjectRow(tx, &d)
	if err != nil {
		return err
	}
	for _, bucket := range []string{bucketCloud, bucketSynced} {
		if err := tx.Bucket(bucket).Delete(r.key); err != nil {
			return err
		}
	}
	if !held.held {
		return nil
	}
	return tx.Bucket(bucketLocal).Put(r.key, nil)
}

func forgetCommit(tx index.Tx, r *row) error {
	if len(r.key) != commit.IDSize {
		return badRow(bucketCommits, hex.EncodeToString(r.key), "bad key")
	}
	return writeStatusOf(tx, commit.ID(r.key), &op{kind: recForgotten})
}

func forgetTag(tx index.Tx, r *row) error {
	return writeTag(tx, &op{kind: recForgotten, tag: &TagChange{Name: string(r.key)}})
}

func forgetMetadata(tx index.Tx, r *row) error {
	if staysForgotten(string(r.key)) {
		return nil
	}
	return tx.Bucket(bucketMetadata).Delete(r.key)
}
