package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// erasure is what a call of Erase removes from the bucket beside entries and checkpoints.
type erasure struct {
	packs map[format.ID]bool // in which pieces of erased values stand
}

// packsIn returns the packs that are there and not condemned yet.
func (e *erasure) packsIn(names format.PageNames, have []bucket.Info, s *survey) (ids []format.ID) {
	for _, info := range have {
		kind, _, _, id, ok := names.ParseName(info.Name)
		if _, condemned := s.condemned[id]; ok && kind == format.KindPack && e.packs[id] && !condemned {
			ids = append(ids, id)
		}
	}
	return ids
}

// Erase gives commits up by name, for all devices, with what only they have: values are the roots of the values for whose sake that is done. It syncs, tells all devices in the log, prunes and collects here, and then condemns
// in the bucket all entries and checkpoints before a new one, and all packs with pieces of the values; what is still needed of these is moved before. The bucket is rid of it when CollectGarbage is called
// after the grace. Other devices prune the commits when they read the log. None of the commits may be a head, tagged or in use. It may be called again after an error. Errors: as Sync; base.ErrConflict for a commit that
// something needs; base.ErrTooLarge when more than 1024 commits besides the heads are kept.
func (p *Page) Erase(ctx context.Context, commits []commit.ID, values []object.Digest) (*GCReport, error) {
	if err := p.Sync(ctx); err != nil {
		return nil, err
	}
	var report *GCReport
	err := p.withTurn(ctx, "erase from history", func(ctx context.Context) (err error) {
		report, err = p.erase(ctx, commits, values)
		return err
	})
	if err == nil {
		err = p.Sync(ctx) // what has lost its place and is needed is sent again
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}

func (p *Page) erase(ctx context.Context, commits []commit.ID, values []object.Digest) (report *GCReport, err error) {
	e := &erasure{packs: map[format.ID]bool{}}
	seen := map[object.Digest]bool{}
	for _, d := range values {
		if err := p.packsOf(ctx, d, 0, seen, e.packs); err != nil {
			return nil, fmt.Errorf("look where value %s stands: %w", d.Short(), err)
		}
	}
	for ids := range slices.Chunk(slices.Clone(commits), format.MaxGivenUp) {
		o, err := p.out.Announce(ctx, &format.Body{GivenUp: slices.Clone(ids)})
		if err == nil {
			err = p.append(ctx, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if kept, err := p.store.Prune(ctx, commits); err != nil {
		return nil, fmt.Errorf("%d of %d commits stay: %w", len(kept), len(commits), err)
	}
	if err := p.collect(ctx); err != nil {
		return nil, err
	}
	if err := p.in.LosePlaces(ctx, func(c storage.CloudPlace) bool { return e.packs[c.Pack] }); err != nil {
		return nil, err
	}
	p.ses.resend = true
	for range maxSweeps {
		if report, err = p.sweep(ctx, GCOptions{Grace: defaultGrace, erase: e}); !errors.Is(err, errAnnounced) && !errors.Is(err, cloudlog.ErrRemake) {
			break
		}
		if err := p.begin(ctx); err != nil {
			return nil, err
		}
	}
	return report, err
}

// maxValueDepth bounds the levels of a value's pieces; split makes fewer.
const maxValueDepth = 32

// packsOf adds the packs in which the pieces of a value stand.
func (p *Page) packsOf(ctx context.Context, d object.Digest, depth int, seen map[object.Digest]bool, packs map[format.ID]bool) error {
	if seen[d] || depth > maxValueDepth {
		return nil
	}
	seen[d] = true
	st, err := p.store.PieceState(d)
	if err != nil {
		return err
	}
	if st.Synced && st.Place.Entry == 0 {
		packs[st.Place.Pack] = true
	}
	if !d.Kind().IsIndex() || !st.Held && !st.Synced {
		return nil
	}
	content, err := p.store.Piece(ctx, d)
	if errors.Is(err, base.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	children, err := split.Children(d, content)
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := p.packsOf(ctx, c, depth+1, seen, packs); err != nil {
			return err
		}
	}
	return nil
}
