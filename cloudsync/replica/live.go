package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

const (
	// A pack is rewritten if less than liveOf of livePart parts of it are live.
	liveOf, livePart = 3, 4
	// unneededFor is how long a pack stays that no commit needs: its commits may be in flight.
	unneededFor = 30 * 24 * time.Hour
	// seenShift turns the offset of a piece in its block into the number of a bit. Pieces of values
	// that are objects are longer than 1<<seenShift bytes.
	seenShift = 8
)

// usage says what is live in a pack or an entry. It takes 40 bytes for each block.
type usage struct {
	blocks map[uint32][]uint64 // a bit for the beginning of each live piece
	bytes  uint64              // of live pieces
	// all and pieces count the pieces that the page has recorded, live or not.
	all    uint64
	pieces uint32
}

// has reports whether a piece is live.
func (u *usage) has(at *storage.CloudPlace) bool {
	bits, n := u.blocks[at.Block], int(at.At>>seenShift)
	return n/64 < len(bits) && bits[n/64]>>(n%64)&1 == 1
}

// add counts a live piece once.
func (u *usage) add(at *storage.CloudPlace) {
	if u.has(at) {
		return
	}
	if u.blocks == nil {
		u.blocks = map[uint32][]uint64{}
	}
	bits, n := u.blocks[at.Block], int(at.At>>seenShift)
	for n/64 >= len(bits) {
		bits = append(bits, 0)
	}
	bits[n/64] |= 1 << (n % 64)
	u.blocks[at.Block] = bits
	u.bytes += uint64(at.Bytes)
}

// holder is a pack or an entry that has pieces.
type holder struct {
	pack  epoch.ID
	entry uint64
}

func holderOf(at *storage.CloudPlace) holder { return holder{at.Pack, at.Entry} }

// live finds the pieces that kept commits need.
type live struct {
	p      *Page
	of     map[holder]*usage
	looked map[object.Digest]struct{} // index pieces
	// all says that liveness is unknown, since some trees are not here: then every piece counts as
	// live.
	all bool
}

func (l *live) usage(at *storage.CloudPlace) *usage {
	u := l.of[holderOf(at)]
	if u == nil {
		u = &usage{}
		l.of[holderOf(at)] = u
	}
	return u
}

// find visits the values of all kept commits.
func (l *live) find(ctx context.Context, e *proposing) error {
	for _, n := range e.kept {
		cs, err := e.p.load(ctx, epoch.Set{n.ID})
		held := len(cs) > 0
		for _, c := range cs {
			var near []*commit.Commit
			if near, err = e.near(ctx, c); err == nil {
				held, err = l.p.values(ctx, c, near, l.piece)
			}
		}
		if l.all = !held; err != nil || l.all {
			return err
		}
	}
	return nil
}

// piece counts a piece. It reports whether to count those below it.
func (l *live) piece(_ context.Context, d object.Digest) (bool, error) {
	if _, ok := l.looked[d]; ok {
		return false, nil
	}
	st, err := l.p.o.Store.PieceState(d)
	if err != nil {
		return false, fmt.Errorf("look at piece %s: %w", d.Short(), err)
	}
	if st.Synced {
		l.usage(&st.Place).add(&st.Place)
	}
	if !d.Kind().IsIndex() || !st.Held && !st.Synced {
		return false, nil
	}
	if len(l.looked) >= maxKnown {
		clear(l.looked)
	}
	l.looked[d] = struct{}{}
	return true, nil
}

// values calls each for the pieces of the values that a commit has and one of its nearest ancestors
// lacks. If each returns true, it goes on with the pieces that the piece lists. It reports false if
// the tree of the commit is not here.
func (p *Page) values(ctx context.Context, c *commit.Commit, near []*commit.Commit, each func(context.Context, object.Digest) (bool, error)) (held bool, err error) {
	if held, err = p.o.Store.TreeHeld(ctx, c); err != nil || !held {
		return false, err
	}
	from, err := p.from(ctx, near)
	if err != nil {
		return false, err
	}
	for d, err := range btree.Diff(ctx, from, p.tree(c.Root), nil) {
		if err != nil {
			return false, fmt.Errorf("compare trees: %w", err)
		}
		if d.HasRight && !d.Right.Inline {
			if err := p.walk(ctx, d.Right.Digest, 0, each, nil); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// from returns the tree of one of the commits, or the empty tree if none is here.
func (p *Page) from(ctx context.Context, of []*commit.Commit) (btree.Tree, error) {
	ks := []candidate{{tree: p.tree(btree.EmptyRoot)}}
	for _, c := range of {
		var err error
		if ks, err = p.addHeld(ctx, ks, c); err != nil {
			return btree.Tree{}, err
		}
	}
	return ks[len(ks)-1].tree, nil
}

// walk calls each for a piece and, if that returns true, for the pieces that it lists. Then it
// calls after for the piece, if after is not nil.
func (p *Page) walk(ctx context.Context, d object.Digest, depth int, each func(context.Context, object.Digest) (bool, error), after func(object.Digest) error) error {
	on, err := each(ctx, d)
	if err != nil || !on {
		return err
	}
	if d.Kind().IsIndex() {
		children, err := p.below(ctx, d, depth)
		if err != nil {
			return err
		}
		for _, c := range children {
			if err := p.walk(ctx, c, depth+1, each, after); err != nil {
				return err
			}
		}
	}
	if after == nil {
		return nil
	}
	return after(d)
}

// below returns the pieces that an index piece lists. It fetches an index piece that is not held.
func (p *Page) below(ctx context.Context, d object.Digest, depth int) ([]object.Digest, error) {
	if depth >= maxIndexLevels {
		return nil, &base.CorruptError{Where: "object", Key: d.String(), Got: "too many index pieces above one another"}
	}
	content, err := p.o.Store.Piece(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read piece %s: %w", d.Short(), err)
	}
	children, err := split.Children(d, content)
	if err != nil {
		return nil, fmt.Errorf("read index piece %s: %w", d.Short(), err)
	}
	return children, nil
}

// pieces moves pieces that need another place: pieces in entries, since the log of the epoch ends,
// and live pieces of packs that have few live ones, have erased values, or are lost in the bucket.
func (e *proposing) pieces(ctx context.Context) error {
	s := e.p.state
	packs := map[epoch.ID]wire.Pack{}
	announced := map[epoch.ID]bool{}
	for _, w := range s.Announced {
		if w.Since = s.EntryTime; e.there(w.ID) {
			packs[w.ID], announced[w.ID] = w, true
		}
	}
	for _, w := range s.Manifest {
		if w.Pieces > 0 && e.there(w.ID) {
			packs[w.ID] = w
		}
	}
	l := &live{p: e.p, of: map[holder]*usage{}, looked: map[object.Digest]struct{}{}, all: e.whole || e.shown != nil}
	if !l.all {
		if err := l.find(ctx, e); err != nil {
			return err
		}
	}
	left := map[epoch.ID]bool{} // packs whose live pieces are moved
	erased, err := e.erased(ctx, l, packs, left)
	if err != nil {
		return err
	}
	if !l.all {
		if err := e.count(ctx, l); err != nil {
			return err
		}
	}
	for id, w := range packs {
		if !l.all {
			e.decide(l, &w, announced[id], left)
		}
		if left[id] {
			e.drop(w)
		} else if announced[id] || w.Since != packs[id].Since {
			e.fresh[w.ID] = w
		}
	}
	pending := func(id epoch.ID) bool {
		return slices.ContainsFunc(s.Pending.Packs, func(w wire.Pack) bool { return w.ID == id })
	}
	placed, err := e.p.o.Store.PlacedIn(ctx, func(at storage.CloudPlace) bool {
		if u := l.of[holderOf(&at)]; !l.all && (u == nil || !u.has(&at)) {
			return false
		}
		// The bucket may have lost a pack. A power failure during Enter may leave places in packs
		// of an epoch that was not entered.
		_, named := packs[at.Pack]
		return at.Entry != 0 || left[at.Pack] || !named && !pending(at.Pack)
	})
	if err != nil {
		return fmt.Errorf("look for pieces that have to be moved: %w", err)
	}
	placed = slices.DeleteFunc(placed, func(q storage.PlacedPiece) bool { return erased[q.Digest] })
	return e.move(ctx, placed, packs)
}

// count counts what packs hold, live or not.
func (e *proposing) count(ctx context.Context, l *live) error {
	_, err := e.p.o.Store.PlacedIn(ctx, func(at storage.CloudPlace) bool {
		u := l.usage(&at)
		u.all += uint64(at.Bytes)
		u.pieces++
		return false
	})
	if err != nil {
		return fmt.Errorf("count the pieces of packs: %w", err)
	}
	return nil
}

// decide decides whether a pack stays.
func (e *proposing) decide(l *live, w *wire.Pack, announced bool, left map[epoch.ID]bool) {
	u := l.of[holder{pack: w.ID}]
	if u == nil || u.bytes == 0 {
		young := announced || w.Since != 0 && w.Since.Add(unneededFor) > e.p.state.EntryTime
		left[w.ID] = left[w.ID] || !young
		return
	}
	w.Since = 0
	all := u.all
	if u.pieces < w.Pieces { // the page no longer has records of dead pieces
		all = all / uint64(u.pieces) * uint64(w.Pieces)
	}
	left[w.ID] = left[w.ID] || u.bytes*livePart < all*liveOf
}

// erased returns the pieces of erased values that no kept commit needs, and marks the packs that
// have one.
func (e *proposing) erased(ctx context.Context, l *live, packs map[epoch.ID]wire.Pack, left map[epoch.ID]bool) (map[object.Digest]bool, error) {
	all := map[object.Digest]bool{}
	if !e.erase {
		return all, nil
	}
	find := func(_ context.Context, d object.Digest) (bool, error) {
		if all[d] {
			return false, nil
		}
		st, err := e.p.o.Store.PieceState(d)
		if err != nil {
			return false, fmt.Errorf("look at piece %s: %w", d.Short(), err)
		}
		if u := l.of[holderOf(&st.Place)]; l.all || !st.Synced || u == nil || !u.has(&st.Place) {
			all[d] = true
		}
		return st.Held || st.Synced, nil
	}
	for _, d := range e.p.erase.Values {
		if err := e.p.walk(ctx, d, 0, find, nil); err != nil {
			return nil, fmt.Errorf("erase value %s: %w", d.Short(), err)
		}
	}
	if len(all) == 0 {
		return all, nil
	}
	for id, w := range packs { // a piece may be in more packs than the page has recorded
		r, err := pack.Open(ctx, e.p.o.Bucket, e.p.o.Sealer, e.p.o.Names, w)
		if err != nil {
			return nil, err
		}
		left[id] = slices.ContainsFunc(r.Places(), func(q storage.PlacedPiece) bool { return all[q.Digest] })
		r.Close()
	}
	return all, nil
}

// move uploads pieces into packs of the new epoch.
func (e *proposing) move(ctx context.Context, placed []storage.PlacedPiece, packs map[epoch.ID]wire.Pack) error {
	if len(placed) == 0 {
		return nil
	}
	if e.own { // one object was lost, or read wrongly once: what stands in others is there
		var ds []object.Digest
		for _, q := range placed {
			if q.Place.Entry != 0 {
				ds = append(ds, q.Digest)
			}
		}
		if err := e.p.Salvage(ctx, ds); err != nil {
			return fmt.Errorf("fetch what stands in entries: %w", err)
		}
	}
	slices.SortFunc(placed, func(a, b storage.PlacedPiece) int {
		return cmp.Or(compareIDs(a.Place.Pack, b.Place.Pack), cmp.Compare(a.Place.Entry, b.Place.Entry),
			cmp.Compare(a.Place.Block, b.Place.Block), cmp.Compare(a.Place.At, b.Place.At))
	})
	up := pack.NewUploader(ctx, pack.UploadOptions{
		Bucket: e.p.o.Bucket, Sealer: e.p.o.Sealer, Parallel: e.p.o.Parallel, Names: e.p.o.Names, Epoch: e.x.ID,
	})
	defer up.Close()
	for some := range slices.Chunk(placed, queuedPieces) {
		ds := make([]object.Digest, len(some))
		for i := range some {
			ds[i] = some[i].Digest
		}
		err := e.p.o.Store.Pieces(ctx, ds, func(i int, st *storage.PieceState) bool {
			if e.shown != nil && !st.Held {
				e.lost = append(e.lost, ds[i])
				return false
			}
			return true
		}, func(i int, content []byte) error {
			if err := up.Cut(); err != nil { // it is unknown to which commits they belong
				return err
			}
			w, ok := packs[some[i].Place.Pack]
			return up.Add(ds[i], content, !ok || w.Eager, e.p.o.Plain == nil)
		})
		if err != nil {
			return fmt.Errorf("move pieces to packs of a new epoch: %w", err)
		}
	}
	moved, err := up.Finish()
	for _, w := range moved {
		e.fresh[w.ID] = w
	}
	return err
}
