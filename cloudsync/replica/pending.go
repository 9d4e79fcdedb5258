package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// ProvePending asks the bucket for the objects that were uploaded and that no entry names yet, with
// one request for each, and forgets those that it has lost: an entry that names them would be
// damage. Their content goes up again. It costs nothing when nothing is pending. Errors are those
// of the bucket and of the store.
func (p *Page) ProvePending(ctx context.Context) error {
	q := p.state.Pending
	lost := map[epoch.ID]bool{}
	ask := func(in, id epoch.ID, bytes uint64) error {
		there, err := p.hasObject(ctx, p.o.Names.Pack(in, id), bytes)
		lost[id] = err == nil && !there
		return err
	}
	for i := range q.Packs {
		if err := ask(q.Packs[i].Epoch, q.Packs[i].ID, q.Packs[i].Bytes); err != nil {
			return err
		}
	}
	for d := range diffsOf(q) {
		if err := ask(d.Epoch, d.Pack, 0); err != nil {
			return err
		}
	}
	maps.DeleteFunc(lost, func(_ epoch.ID, is bool) bool { return !is })
	if len(lost) == 0 {
		return nil
	}
	placed, err := p.o.Store.PlacedIn(ctx, func(at storage.CloudPlace) bool { return at.Entry == 0 && lost[at.Pack] })
	if err != nil {
		return err
	}
	b := &storage.SyncBatch{}
	for i := range placed {
		b.Unplaced = append(b.Unplaced, placed[i].Digest)
	}
	n := p.state.Next()
	q.Packs = slices.DeleteFunc(slices.Clone(q.Packs), func(w wire.Pack) bool { return lost[w.ID] })
	q.Diffs, q.Explanations = maps.Clone(q.Diffs), maps.Clone(q.Explanations)
	maps.DeleteFunc(q.Diffs, func(_ commit.ID, c wire.Commit) bool { return lost[c.Diff.Place.Pack] })
	maps.DeleteFunc(q.Explanations, func(_ commit.ID, x wire.Explanation) bool { return lost[x.Diff.Place.Pack] })
	n.setPending(q)
	if err := p.write(ctx, nil, b, n); err != nil {
		return fmt.Errorf("forget what the bucket has lost: %w", err)
	}
	p.Resend()
	return nil
}

// isSent reports whether a place is in a pack that was uploaded for commits which are unsynced.
// Anybody may call it.
func (p *Page) isSent(at *storage.CloudPlace) bool {
	q := &p.shared.Load().Pending
	return at.Entry == 0 && (slices.Contains(q.Sent, at.Pack) || slices.ContainsFunc(q.Packs, func(w wire.Pack) bool { return w.ID == at.Pack }))
}

// diffsOf gives the places of pending differences.
func diffsOf(q Pending) iter.Seq[*wire.Place] {
	return func(yield func(*wire.Place) bool) {
		for _, c := range q.Diffs {
			if !yield(c.Diff.Place) {
				return
			}
		}
		for _, x := range q.Explanations {
			if !yield(x.Diff.Place) {
				return
			}
		}
	}
}

// hasObject reports whether the bucket has an object, of a length unless that is 0: it is not known
// of differences, which are padded.
func (p *Page) hasObject(ctx context.Context, name string, bytes uint64) (bool, error) {
	o, err := p.o.Bucket.Get(ctx, name, 0, 0)
	if errors.Is(err, base.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether what was uploaded is there: %w", err)
	}
	return bytes == 0 || uint64(o.Size) == bytes, o.Body.Close()
}
