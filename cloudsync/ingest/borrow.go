package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// lookShallow asks, once, whether history was given up here.
func (s *step) lookShallow(ctx context.Context) (err error) {
	if !s.asked {
		s.shallow, err = s.p.o.Store.IsShallow()
		if err == nil && !s.shallow {
			_, err = s.p.wasGivenUp(ctx, commit.ID{})
			s.shallow = len(s.p.givenUp) > 0
		}
		s.asked = err == nil
	}
	return err
}

// borrow makes the tree of a commit that is not here, from what the bucket has of the past: the
// commit was given up here while another device, which nobody knew of, built on it. pruned says
// that this is known. The commit stays given up, and of its tree stays what is built on it.
func (s *step) borrow(ctx context.Context, id commit.ID, pruned bool) (object.Digest, error) {
	none := unknown("the base of the diff, commit", id)
	if s.p.o.Past == nil || !pruned && !s.shallow {
		return object.Digest{}, none
	}
	log, err := s.p.o.Past(ctx, s.rows.position.Number) // with the entries that come at once with this one
	if err != nil {
		return object.Digest{}, err
	}
	b := &builder{p: s.p, target: &commit.Commit{ID: id}, log: log}
	err = b.buildIn(ctx, s)
	if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNotFound) {
		return object.Digest{}, none
	}
	if err != nil {
		return object.Digest{}, fmt.Errorf("build the tree of commit %s, which was given up: %w", id, err)
	}
	return b.root, nil
}
