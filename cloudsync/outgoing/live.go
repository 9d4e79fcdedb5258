package outgoing

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// live finds the packs in which the pieces of live values stand. Pieces that stand in entries
// alone, or nowhere, go to new packs, as do those of packs of which so little is live that reading
// them costs too much.
type live struct {
	g         *gatherer
	packs     map[format.ID]*livePack
	described []format.PackRef       // as refs returned them last
	left      map[format.ID]struct{} // packs whose live pieces of EAGER values go to new ones
}

func (p *Page) newLive(ctx context.Context) *live {
	l := &live{g: p.newGatherer(ctx), packs: map[format.ID]*livePack{}, left: map[format.ID]struct{}{}}
	l.g.forced, l.g.limit = true, 0
	return l
}

// find looks through the values of the diffs, and once more when there are packs that are to be
// left.
func (l *live) find(ctx context.Context, ds []*delta) (refs []format.PackRef, parts []format.PartialPack, err error) {
	other := uint64(0) // what who begins reads beside packs
	for _, d := range ds {
		other += d.diff.Bytes
	}
	for again := true; ; again = false {
		if err := l.g.deltas(ds, l.values); err != nil {
			return nil, nil, err
		}
		if refs, err = l.refs(ctx); err != nil {
			return nil, nil, err
		}
		reads := l.reads(refs)
		if again {
			l.left = leave(reads, other)
		}
		if !again || len(l.left) == 0 {
			return refs, partsOf(reads), nil
		}
		l.packs = map[format.ID]*livePack{}
	}
}

// values finds the pieces of values, all of them: where an index piece stands says nothing about
// where those stand that it lists. Index pieces that are not held are fetched.
func (l *live) values(roots []object.Digest, eager bool) error { return l.pieces(roots, eager, 0) }

func (l *live) pieces(ds []object.Digest, eager bool, depth int) error {
	for len(ds) > 0 {
		n := slices.IndexFunc(ds, func(d object.Digest) bool { return d.Kind().IsIndex() })
		if n < 0 {
			n = len(ds)
		}
		if err := l.chunks(ds[:n], eager); err != nil {
			return err
		}
		if ds = ds[n:]; len(ds) == 0 {
			break
		}
		if err := l.index(ds[0], eager, depth); err != nil {
			return err
		}
		ds = ds[1:]
	}
	return nil
}

// chunks finds chunks.
func (l *live) chunks(ds []object.Digest, eager bool) error {
	ds = l.g.notTaken(ds)
	return l.g.p.o.Store.Pieces(l.g.ctx, ds, func(_ int, st *storage.PieceState) bool { return l.found(st, eager) },
		func(i int, content []byte) error { return l.g.take(ds[i], content, eager) })
}

// found notes where a piece that is not on its way stands, and reports whether it is to go to a
// pack.
func (l *live) found(st *storage.PieceState, eager bool) (move bool) {
	switch {
	case !st.Held && !st.Synced:
		l.g.lacks = true
		return false // I4
	case !st.Synced || st.Place.Entry != 0:
		return true
	}
	if _, left := l.left[st.Place.Pack]; left && eager && st.Held {
		return true
	}
	k := l.packs[st.Place.Pack]
	if k == nil {
		k = &livePack{}
		l.packs[st.Place.Pack] = k
	}
	if eager {
		k.add(&st.Place)
	}
	return false
}

// index finds an index piece and what is below it.
func (l *live) index(d object.Digest, eager bool, depth int) error {
	if err := l.g.ctx.Err(); err != nil {
		return err
	}
	store := l.g.p.o.Store
	move := false
	if !l.g.taken(d) {
		st, err := store.PieceState(d)
		if err != nil {
			return fmt.Errorf("look at piece %s: %w", d.Short(), err)
		}
		move = l.found(&st, eager)
		if !st.Held && !st.Synced {
			return nil
		}
	}
	content, err := store.Piece(l.g.ctx, d)
	if err != nil {
		return fmt.Errorf("read piece %s: %w", d.Short(), err)
	}
	children, err := childrenOf(d, content, depth)
	if err != nil {
		return err
	}
	if err := l.pieces(children, eager, depth+1); err != nil || !move {
		return err
	}
	return l.g.take(d, content, eager)
}

// refs returns the packs, described.
func (l *live) refs(ctx context.Context) ([]format.PackRef, error) {
	p := l.g.p
	for id, ref := range l.g.sent {
		if l.packs[id] == nil {
			l.packs[id] = &livePack{whole: ref.Eager}
		}
	}
	known, err := p.knownRefs(ctx, l.described)
	if err != nil {
		return nil, err
	}
	refs := make([]format.PackRef, 0, len(l.packs))
	var unknown []int
	for id, k := range l.packs {
		ref, ok := known[id]
		if !ok {
			unknown = append(unknown, len(refs))
		}
		ref.ID, ref.Eager = id, k.eager()
		refs = append(refs, ref)
	}
	err = each(ctx, len(unknown), func(ctx context.Context, i int) error { return p.describe(ctx, &refs[unknown[i]]) })
	l.described = refs
	return refs, err
}

// knownRefs returns the packs about which the bucket need not be asked, or need not be asked again.
func (p *Page) knownRefs(ctx context.Context, described []format.PackRef) (map[format.ID]format.PackRef, error) {
	v, err := p.o.Store.Metadata(ctx, MetadataRefs)
	if err != nil {
		return nil, fmt.Errorf("read row of known packs: %w", err)
	}
	refs, err := parseRefs(v)
	if err != nil {
		return nil, fmt.Errorf("read row of known packs: %w", err)
	}
	if v, err = p.o.Store.Metadata(ctx, format.MetadataAdoptedPacks); err != nil {
		return nil, fmt.Errorf("read row of the checkpoint's packs: %w", err)
	}
	adopted, err := format.ParsePacks(v)
	if err != nil {
		return nil, fmt.Errorf("read row of the checkpoint's packs: %w", err)
	}
	refs = append(refs, adopted...)
	p.mu.Lock()
	refs = append(refs, p.pending.refs()...)
	p.mu.Unlock()
	refs = append(refs, described...)
	known := make(map[format.ID]format.PackRef, len(refs))
	for _, r := range refs {
		known[r.ID] = r
	}
	return known, nil
}

// describe asks the bucket how long a pack is, and how many pieces it has: two or three requests.
func (p *Page) describe(ctx context.Context, ref *format.PackRef) error {
	r, err := pack.Open(ctx, p.o.Bucket, p.o.Sealer, p.o.Names, format.PackRef{ID: ref.ID})
	if err != nil {
		return err
	}
	defer r.Close()
	ref.Bytes, ref.Pieces = r.Ref().Bytes, r.Ref().Pieces
	return nil
}

// keepRefs records the packs of a checkpoint.
func (p *Page) keepRefs(ctx context.Context, refs []format.PackRef) error {
	m := storage.Metadata{Type: MetadataRefs}
	if len(refs) > 0 {
		m.Value = encodeRefs(refs[:min(len(refs), maxRefs)])
	}
	wait, err := p.o.Store.SubmitSync(ctx, nil, &storage.SyncBatch{Metadata: []storage.Metadata{m}})
	if err == nil {
		err = wait.Wait()
	}
	if err != nil {
		return fmt.Errorf("record packs of checkpoint: %w", err)
	}
	return nil
}
