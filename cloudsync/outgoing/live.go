package outgoing

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// live finds the packs in which the pieces of live values stand. Pieces that stand in entries alone, or nowhere, go to new packs.
type live struct {
	g     *gatherer
	packs map[format.ID]bool // whether it has pieces of EAGER values
}

func (p *Page) newLive(ctx context.Context) *live {
	l := &live{g: p.newGatherer(ctx), packs: map[format.ID]bool{}}
	l.g.forced, l.g.limit = true, 0
	return l
}

// value finds the pieces of a value, all of them: where an index piece stands says nothing about where those stand that it lists. Index
// pieces that are not held are fetched.
func (l *live) value(d object.Digest, eager bool) error { return l.piece(d, eager, 0) }

func (l *live) piece(d object.Digest, eager bool, depth int) error {
	if err := l.g.ctx.Err(); err != nil {
		return err
	}
	store := l.g.p.o.Store
	st, err := store.PieceState(d)
	if err != nil {
		return fmt.Errorf("look at piece %s: %w", d.Short(), err)
	}
	if !st.Held && !st.Synced {
		l.g.lacks = true
		return nil // I4
	}
	move := (!st.Synced || st.Place.Entry != 0) && !l.g.taken(d)
	if st.Synced && st.Place.Entry == 0 {
		l.packs[st.Place.Pack] = l.packs[st.Place.Pack] || eager
	}
	if !move && !d.Kind().IsIndex() {
		return nil
	}
	content, err := store.Piece(l.g.ctx, d)
	if err != nil {
		return fmt.Errorf("read piece %s: %w", d.Short(), err)
	}
	children, err := childrenOf(d, content, depth)
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := l.piece(c, eager, depth+1); err != nil {
			return err
		}
	}
	if !move {
		return nil
	}
	return l.g.take(d, content, eager)
}

// refs returns the packs, described.
func (l *live) refs(ctx context.Context) ([]format.PackRef, error) {
	p := l.g.p
	for id, ref := range l.g.sent {
		l.packs[id] = l.packs[id] || ref.Eager
	}
	known, err := p.knownRefs(ctx)
	if err != nil {
		return nil, err
	}
	refs := make([]format.PackRef, 0, len(l.packs))
	var unknown []int
	for id, eager := range l.packs {
		ref, ok := known[id]
		if !ok {
			unknown = append(unknown, len(refs))
		}
		ref.ID, ref.Eager = id, eager
		refs = append(refs, ref)
	}
	err = each(ctx, len(unknown), func(ctx context.Context, i int) error { return p.describe(ctx, &refs[unknown[i]]) })
	return refs, err
}

// knownRefs returns the packs about which the bucket need not be asked.
func (p *Page) knownRefs(ctx context.Context) (map[format.ID]format.PackRef, error) {
	v, err := p.o.Store.Metadata(ctx, MetadataRefs)
	if err != nil {
		return nil, fmt.Errorf("read row of known packs: %w", err)
	}
	refs, err := parseRefs(v)
	if err != nil {
		return nil, fmt.Errorf("read row of known packs: %w", err)
	}
	p.mu.Lock()
	refs = append(refs, p.pending.refs()...)
	p.mu.Unlock()
	known := make(map[format.ID]format.PackRef, len(refs))
	for _, r := range refs {
		known[r.ID] = r
	}
	return known, nil
}

// describe asks the bucket how long a pack is, and how many pieces it has: two or three requests.
func (p *Page) describe(ctx context.Context, ref *format.PackRef) error {
	name := p.o.Names.Pack(ref.ID)
	size, _, err := look(ctx, p.o.Bucket, name)
	if err != nil {
		return fmt.Errorf("look at pack %s: %w", ref.ID, err)
	}
	if size > format.MaxPackObjectBytes {
		return &base.CorruptError{Where: "pack", Key: ref.ID.String(), Got: fmt.Sprintf("%d bytes", size)}
	}
	r, err := p.o.Sealer.NewReader(&objectReader{ctx, p.o.Bucket, name}, size, pack.Label(p.o.Names))
	if err != nil {
		return fmt.Errorf("read table of pack %s: %w", ref.ID, err)
	}
	if format.ID(r.Ref().ID) != ref.ID {
		return &base.CorruptError{Where: "pack", Key: ref.ID.String(), Got: "another pack under its name"}
	}
	t, err := format.ParsePackTable(r.Table(), r.Frames())
	if err != nil {
		return fmt.Errorf("read table of pack %s: %w", ref.ID, err)
	}
	ref.Bytes, ref.Pieces = uint64(size), uint32(len(t.Pieces))
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
