package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// These are bounds during the verification of values: pieces fetched at once, values that wait for
// them, and parts of values remembered as good. Values that wait may add one piece each.
const (
	maxMissing = 4096
	maxWaiting = 1024
	maxKnown   = 64 << 10
)

// maxIndexLevels bounds the levels of index pieces of a value, as package split does.
const maxIndexLevels = 16

// part is a piece and the length of the part of its value below it; last says that the value ends
// with it.
type part struct {
	digest object.Digest
	size   uint64
	last   bool
}

// values verifies that the values put by differences are here or can be fetched.
type values struct {
	s *step
	// known are roots and index pieces that were found good, with everything below them here.
	known map[part]struct{}
	// waiting are EAGER values that lack pieces in missing.
	waiting []part
	missing map[object.Digest]struct{}
}

// want verifies a value that a difference puts. An EAGER value that is not completely here may be
// put off until settle.
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
	if v.waiting = append(v.waiting, p); len(v.waiting) >= maxWaiting || len(v.missing) >= maxMissing {
		return v.settle(ctx)
	}
	return nil
}

// lazy verifies the root of a LAZY value.
func (v *values) lazy(ctx context.Context, p part) error {
	st, err := v.s.known(ctx, p.digest)
	if err != nil {
		return fmt.Errorf("value %s: %w", p.digest, err)
	}
	if !p.digest.Kind().IsIndex() && (p.size > limits.MaxPieceBytes || st.bytes >= 0 && uint64(st.bytes) != p.size) {
		return bad("value %s of %d bytes: its only piece has another length", p.digest, p.size)
	}
	return nil
}

// known is look for a piece that must be held, have a place, or be listed as missing.
func (s *step) known(ctx context.Context, d object.Digest) (pieceState, error) {
	st, err := s.look(d)
	if err != nil || st.held || st.placed || s.mayLack(d) {
		return st, err
	}
	if !s.resolved { // its place may have been dropped, as nothing here needed it
		s.resolved = true
		if err := s.resolve(ctx); err != nil {
			return st, err
		}
		if st, err = s.look(d); err != nil || st.held || st.placed {
			return st, err
		}
	}
	return st, bad("nobody has piece %s", d)
}

// FindPlaces records the places of all pieces in packs and entries that count. It serves a reader
// of a piece whose place was dropped when nothing here needed it. It reads the table of each pack,
// and each entry of the epoch. Errors: those of the bucket, of the disk and of ctx.
func (p *Page) FindPlaces(ctx context.Context) error {
	s, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	if err := s.resolve(ctx); err != nil {
		return fmt.Errorf("search the log for places: %w", err)
	}
	return s.submit(ctx)
}

// resolve records the places of all pieces in packs and entries that count.
func (s *step) resolve(ctx context.Context) error {
	packs := slices.Concat(s.next.Manifest, s.next.Announced)
	for i := range packs {
		if err := s.pack(ctx, &packs[i], false, false); err != nil {
			return err
		}
	}
	at := s.p.state.At
	for n := at.Number - s.p.state.Entries + 1; n <= at.Number; n++ {
		err := s.p.readEntry(ctx, at.Epoch, n, func(r wire.Record, place storage.CloudPlace) error {
			x, ok := r.(*wire.Piece)
			if !ok {
				return nil
			}
			place.Bytes = uint32(len(x.Content))
			return s.place(ctx, storage.PlacedPiece{Digest: x.Digest, Place: place}, false)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// check verifies the part of p that is here, and adds fetchable pieces to missing. It reports
// whether there is nothing to fetch.
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
	st, err := v.s.known(ctx, p.digest)
	if err != nil {
		return false, err
	}
	if !st.held {
		if !st.placed {
			return true, nil
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

// checkIndex verifies an index piece that is held, and everything below it. It goes on after
// missing pieces, so that all are fetched at once.
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
		if len(v.missing) >= maxMissing {
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
	if v.known == nil || len(v.known) >= maxKnown {
		v.known = map[part]struct{}{}
	}
	v.known[p] = struct{}{}
}

// settle fetches the pieces that waiting values lack. Before that the places of the step's pieces
// become durable, since fetching uses them.
func (v *values) settle(ctx context.Context) error {
	for len(v.waiting) > 0 {
		if err := v.fetch(ctx); err != nil {
			return err
		}
		waiting := v.waiting
		v.waiting = nil
		for _, p := range waiting {
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
	v.s.publish()
	n, err := v.s.p.o.Fetcher.FetchAll(ctx, ds)
	v.s.p.o.Down.Expect(0, n)
	v.s.p.o.Down.Advance(0, n)
	if err != nil {
		err = fmt.Errorf("fetch %d pieces: %w", len(ds), err)
		if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt) {
			return &fault{err: err}
		}
		return err
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
