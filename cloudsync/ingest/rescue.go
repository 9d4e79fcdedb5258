package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// rescuer fetches what is condemned, not held, and needed here. What that is, references tell as
// far as index pieces are held: below index pieces that are not, a condemner is believed, who knows
// all commits in the bucket. He does not know those that were made here and are not synced, so
// their values are followed to the end.
type rescuer struct {
	s *step
	// lost are pieces that are condemned and not held.
	lost map[object.Digest]struct{}
	// queue are pieces that are needed, seen those that have been in it.
	queue []object.Digest
	seen  map[object.Digest]struct{}
}

// rescue fetches those of the condemned pieces that are not held, and that something here needs.
// What is gone already is passed over.
func (s *step) rescue(ctx context.Context, placed []storage.PlacedPiece) error {
	r := &rescuer{s: s, lost: map[object.Digest]struct{}{}, seen: map[object.Digest]struct{}{}}
	for _, p := range placed {
		st, err := s.p.o.Store.PieceState(p.Digest)
		if err != nil {
			return fmt.Errorf("look for piece %s: %w", p.Digest, err)
		}
		if !st.Held {
			r.lost[p.Digest] = struct{}{}
		}
	}
	if len(r.lost) == 0 {
		return nil
	}
	if err := r.referenced(ctx); err != nil {
		return fmt.Errorf("look for references to pieces that are condemned: %w", err)
	}
	if err := r.unsynced(ctx); err != nil {
		return fmt.Errorf("look for values that are not synced: %w", err)
	}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("fetch pieces that are condemned: %w", err)
	}
	return nil
}

// need queues a piece if it may have to be fetched: one that is lost, or an index piece, behind
// which lost ones may be.
func (r *rescuer) need(d object.Digest) {
	if _, ok := r.seen[d]; ok {
		return
	}
	if _, lost := r.lost[d]; lost || d.Kind() == object.IndexBit {
		r.seen[d] = struct{}{}
		r.queue = append(r.queue, d)
	}
}

// referenced queues the lost pieces to which a node or an index piece here refers.
func (r *rescuer) referenced(ctx context.Context) error {
	names := make(map[string]object.Digest, len(r.lost))
	for d := range r.lost {
		names[d.String()] = d
	}
	for row, err := range r.s.p.o.Store.Rows(ctx, "refcounts") {
		if err != nil {
			return err
		}
		destination, _, _ := strings.Cut(strings.TrimPrefix(row.Key, "refcounts/"), "/")
		if d, ok := names[destination]; ok {
			r.need(d)
		}
	}
	return nil
}

// unsynced queues the roots of values that commits which are not in the bucket put.
func (r *rescuer) unsynced(ctx context.Context) error {
	store := r.s.p.o.Store
	ids, err := store.Unsynced(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		c, err := store.Commit(ctx, id)
		if err != nil {
			return err
		}
		if held, err := r.s.p.treeHeld(ctx, c); err != nil {
			return err
		} else if !held { // it goes up as history
			continue
		}
		from := btree.EmptyRoot
		parent, err := store.Commit(ctx, c.Parents[0])
		switch {
		case errors.Is(err, base.ErrGone):
		case err != nil:
			return err
		default:
			held, err := r.s.p.treeHeld(ctx, parent)
			if err != nil {
				return err
			}
			if held {
				from = parent.Root
			}
		}
		for d, err := range btree.Diff(ctx, r.s.tree(from), r.s.tree(c.Root), nil) {
			if err != nil {
				return err
			}
			if d.HasRight && !d.Right.Inline {
				r.need(d.Right.Digest)
			}
		}
	}
	return nil
}

// run fetches what is queued and queues what lies below.
func (r *rescuer) run(ctx context.Context) error {
	for len(r.queue) > 0 {
		n := min(len(r.queue), r.s.p.bounds.missing)
		batch := slices.Clone(r.queue[len(r.queue)-n:])
		r.queue = r.queue[:len(r.queue)-n]
		if err := r.fetch(ctx, batch); err != nil {
			return err
		}
		for _, d := range batch {
			if err := r.below(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetch fetches those of the pieces that are not held. It goes object by object: when one has been
// deleted already, what stands in others may still be there.
func (r *rescuer) fetch(ctx context.Context, ds []object.Digest) error {
	type name struct {
		pack  [16]byte
		entry uint64
	}
	from := map[name][]object.Digest{}
	for _, d := range ds {
		st, err := r.s.p.o.Store.PieceState(d)
		if err != nil {
			return fmt.Errorf("look for piece %s: %w", d, err)
		}
		if !st.Held && st.Synced {
			n := name{st.Place.Pack, st.Place.Entry}
			from[n] = append(from[n], d)
		}
	}
	for ds := range maps.Values(from) {
		if r.s.p.o.Fetcher == nil {
			return fmt.Errorf("piece %s: %w", ds[0], base.ErrNeedsFetch)
		}
		n, err := r.s.p.o.Fetcher.FetchAll(ctx, ds)
		r.s.res.Bytes += n
		if errors.Is(err, base.ErrGone) {
			r.s.unplaced = true
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below queues what an index piece lists.
func (r *rescuer) below(ctx context.Context, d object.Digest) error {
	if !d.Kind().IsIndex() {
		return nil
	}
	st, err := r.s.p.o.Store.PieceState(d)
	if err != nil || !st.Held {
		return err
	}
	content, err := r.s.p.o.Store.Piece(ctx, d)
	if err != nil {
		return err
	}
	children, err := split.Children(d, content)
	if err != nil {
		return err
	}
	for _, c := range children {
		r.need(c)
	}
	return nil
}
