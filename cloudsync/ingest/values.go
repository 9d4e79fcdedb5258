package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// maxIndexLevels bounds the levels of index pieces of a value, as package split does.
const maxIndexLevels = 16

// part is a piece and the part of its value that it must hold; last says that the value ends with
// it.
type part struct {
	digest object.Digest
	size   uint64
	last   bool
}

// values verifies that the values that diffs put are here, or can come.
type values struct {
	s *step
	// known are roots and index pieces that have been found good, with everything below them here.
	known map[part]struct{}
	// waiting are EAGER values that lack the pieces in missing.
	waiting []part
	missing map[object.Digest]struct{}
}

// want verifies a value that a diff puts. An EAGER one that is not wholly here may be put off until
// settle.
func (v *values) want(ctx context.Context, root object.Digest, size uint64, priority object.Priority) error {
	p := part{root, size, true}
	if priority == object.Lazy {
		return v.lazy(ctx, p)
	}
	if _, ok := v.known[p]; ok {
		return nil
	}
	if v.missing == nil {
		v.missing = map[object.Digest]struct{}{}
	}
	whole, err := v.check(ctx, p, 0)
	if err != nil {
		return fmt.Errorf("value %s: %w", root, err)
	}
	if whole {
		return nil
	}
	if v.waiting = append(v.waiting, p); len(v.waiting) >= v.s.p.bounds.waiting || len(v.missing) >= v.s.p.bounds.missing {
		return v.settle(ctx)
	}
	return nil
}

// lazy verifies the root of a LAZY value, as far as it is known.
func (v *values) lazy(ctx context.Context, p part) error {
	st, err := v.s.look(p.digest)
	if err != nil {
		return err
	}
	if !st.held && !st.placed {
		if st, err = v.s.findPlace(ctx, p.digest); err != nil {
			return fmt.Errorf("value %s: %w", p.digest, err)
		}
	}
	if !p.digest.Kind().IsIndex() {
		if p.size > limits.MaxPieceBytes || st.bytes >= 0 && uint64(st.bytes) != p.size {
			return bad("value %s of %d bytes: its only piece has another length", p.digest, p.size)
		}
		return nil
	}
	if v.s.present == nil || !v.s.rows.adopted {
		return nil
	}
	if err := v.findBelow(ctx, p.digest, st.held, 0); err != nil {
		return fmt.Errorf("value %s: %w", p.digest, err)
	}
	return nil
}

// findBelow finds the places of what an index piece of a LAZY value lists, for a page that may not
// know them since it began with a checkpoint: nobody looks for them when the value is read. As far
// as index pieces are not held, it takes all that the entry relies on.
func (v *values) findBelow(ctx context.Context, index object.Digest, held bool, level int) error {
	p := part{digest: index}
	if _, ok := v.known[p]; ok {
		return nil
	}
	if level >= maxIndexLevels {
		return bad("more than %d levels of index pieces", maxIndexLevels)
	}
	if !held {
		if v.s.relied {
			return nil
		}
		v.s.relied = true
		return v.s.takeRelied(ctx, v.s.present)
	}
	content, err := v.s.j.Piece(ctx, index)
	if err != nil {
		return err
	}
	x, err := fb.ParseIndex(content)
	if err != nil {
		return indexFault(index, err)
	}
	for i := range x.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d := x.Child(i).Digest
		st, err := v.s.look(d)
		if err == nil && !st.held && !st.placed {
			st, err = v.s.findPlace(ctx, d)
		}
		if err == nil && d.Kind().IsIndex() {
			err = v.findBelow(ctx, d, st.held, level+1)
		}
		if err != nil {
			return err
		}
	}
	v.remember(p)
	return nil
}

// check verifies p as far as it is here and adds what can be fetched to missing. It reports whether
// there is nothing to fetch.
func (v *values) check(ctx context.Context, p part, level int) (whole bool, err error) {
	if _, ok := v.known[p]; ok {
		return true, nil
	}
	index := p.digest.Kind().IsIndex()
	switch {
	case !p.digest.Valid() || p.digest.Kind().IsNode():
		return false, bad("piece %s is none of a value", p.digest)
	case index && level >= maxIndexLevels:
		return false, bad("more than %d levels of index pieces", maxIndexLevels)
	case !index && p.size > limits.MaxPieceBytes:
		return false, bad("piece %s of %d bytes", p.digest, p.size)
	case !index && p.size < split.MinChunkBytes && !p.last:
		return false, bad("piece %s of %d bytes is not the last", p.digest, p.size)
	}
	st, err := v.s.look(p.digest)
	if err != nil {
		return false, err
	}
	if !st.held {
		if !st.placed {
			if st, err = v.s.findPlace(ctx, p.digest); err != nil {
				return false, err
			}
			if !st.placed {
				return true, nil
			}
		}
		v.missing[p.digest] = struct{}{}
		return false, nil
	}
	if index {
		return v.checkIndex(ctx, p, level)
	}
	if st.bytes < 0 {
		content, err := v.s.j.Piece(ctx, p.digest)
		if err != nil {
			return false, err
		}
		st.bytes = int64(len(content))
	}
	if uint64(st.bytes) != p.size {
		return false, bad("piece %s has %d bytes, not %d", p.digest, st.bytes, p.size)
	}
	return true, nil
}

// checkIndex verifies an index piece that is held, and everything below it. It goes on behind what
// is missing, so that all of that is fetched at once.
func (v *values) checkIndex(ctx context.Context, p part, level int) (bool, error) {
	content, err := v.s.j.Piece(ctx, p.digest)
	if err != nil {
		return false, err
	}
	x, err := fb.ParseIndex(content)
	if err != nil {
		return false, indexFault(p.digest, err)
	}
	if x.Size() != p.size {
		return false, bad("index piece %s lists %d bytes, not %d", p.digest, x.Size(), p.size)
	}
	whole := true
	for i := range x.Len() {
		if len(v.missing) >= v.s.p.bounds.missing {
			return false, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		c := x.Child(i)
		ok, err := v.check(ctx, part{c.Digest, c.Size, p.last && i == x.Len()-1}, level+1)
		if err != nil {
			return false, err
		}
		whole = whole && ok
	}
	if whole {
		v.remember(p)
	}
	return whole, nil
}

// indexFault returns the error for an index piece that does not parse.
func indexFault(d object.Digest, err error) error {
	if errors.Is(err, base.ErrUnsupported) {
		return fmt.Errorf("read index piece %s: %w", d, err)
	}
	return bad("index piece %s: %w", d, err)
}

func (v *values) remember(p part) {
	if v.known == nil || len(v.known) >= v.s.p.bounds.known {
		v.known = map[part]struct{}{}
	}
	v.known[p] = struct{}{}
}

// settle fetches what values that wait for it lack. The places of pieces that came with the step
// become durable before, since fetching goes by them.
func (v *values) settle(ctx context.Context) error {
	for len(v.waiting) > 0 {
		if err := v.fetch(ctx); err != nil {
			return err
		}
		waiting := v.waiting
		v.waiting = nil
		for i, p := range waiting {
			if len(v.missing) >= v.s.p.bounds.missing {
				v.waiting = append(v.waiting, waiting[i:]...)
				break
			}
			whole, err := v.check(ctx, p, 0)
			if err != nil {
				return fmt.Errorf("value %s: %w", p.digest, err)
			}
			if !whole {
				v.waiting = append(v.waiting, p)
			}
		}
	}
	clear(v.missing)
	return nil
}

// fetch fetches the missing pieces. Each call brings at least one, or fails.
func (v *values) fetch(ctx context.Context) error {
	ds := slices.SortedFunc(maps.Keys(v.missing), object.Digest.Compare)
	clear(v.missing)
	if err := v.s.flushPlaces(ctx); err != nil {
		return err
	}
	if v.s.p.o.Fetcher == nil {
		return fmt.Errorf("fetch piece %s: %w", ds[0], base.ErrNeedsFetch)
	}
	n, err := v.s.p.o.Fetcher.FetchAll(ctx, ds)
	v.s.res.Bytes += n
	if errors.Is(err, base.ErrGone) && v.s.present != nil { // what has moved them may come later in the log
		return &NeedsPlacesError{Piece: ds[0], Gone: fmt.Errorf("fetch %d pieces: %w", len(ds), err)}
	}
	if err != nil {
		return fmt.Errorf("fetch %d pieces: %w", len(ds), err)
	}
	for _, d := range ds {
		st, err := v.s.p.o.Store.PieceState(d)
		if err != nil {
			return fmt.Errorf("look for piece %s: %w", d, err)
		}
		if !st.Held {
			return fmt.Errorf("fetch piece %s, which is still not here: %w", d, base.ErrNeedsFetch)
		}
	}
	return nil
}
