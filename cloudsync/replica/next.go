package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/spool"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// outgoing is the state of a Page's outgoing data.
type outgoing struct {
	// looked says that in the epoch in no local pieces of synced commits were left. A body that
	// lists missing pieces resets it.
	looked bool
	in     epoch.ID
	// long are the differences uploaded into the epoch since ProvePending, by the roots of the
	// trees that they connect.
	long map[[2]object.Digest]*delta
}

// Append puts a body into the log of the page, and reports whether it landed; see
// pagelog.Log.Append.
type Append func(context.Context, *wire.EntryBody) (landed bool, err error)

// Next returns the next body: all unsynced commits with their pieces, which are first uploaded to
// packs if they have more than 128 KiB; changes of tags; commits that another lineage gave up. If
// there are none of these, the body has packs with local pieces of synced commits. Next calls
// announce with bodies that only announce packs, so that a body has at most some ten packs. It
// returns nil if there is nothing to send.
//
// It waits for the bucket. After a failure, the packs uploaded so far are recorded and not uploaded
// again. It holds 300 bytes for each unsynced commit, and little else: the rest streams through
// memory or a temporary file. Errors match base.ErrNeedsFetch if the tree of an unsynced head is
// not here, or are ErrWaits, or those of the bucket, the store and ctx.
func (p *Page) Next(ctx context.Context, announce Append) (*wire.EntryBody, error) {
	if !p.state.At.Joined() || p.state.At.Deleted {
		return nil, nil
	}
	if j, _, err := p.merging(ctx); err != nil {
		return nil, fmt.Errorf("look for a merge with given-up commits: %w", err)
	} else if j != nil && j.Wait {
		return nil, ErrWaits
	}
	if p.out.in != p.state.At.Epoch {
		p.out = outgoing{in: p.state.At.Epoch}
	}
	m, err := p.newMaker(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range m.commits {
		if err := m.add(ctx, c); err != nil {
			return nil, fmt.Errorf("commit %s: %w", c.ID.Short(), err)
		}
	}
	g := p.newGatherer(ctx, announce)
	defer g.close()
	if len(m.deltas) > 0 {
		g.progress = p.o.Up
		g.progress.Begin(brings(m.deltas))
	}
	err = g.deltas(m.deltas)
	if err == nil && m.isEmpty() {
		err = p.resend(ctx, g, m.outside)
	}
	if err != nil {
		return nil, err
	}
	if g.overtaken { // the data to send may have changed; most of it has its place
		return p.Next(ctx, announce)
	}
	if m.isEmpty() && len(p.state.Pending.Packs) == 0 {
		return nil, nil
	}
	if m.isEmpty() {
		clear(g.missing) // of commits that went up earlier
	}
	m.inline, m.missing = g.inline, slices.SortedFunc(maps.Keys(g.missing), object.Digest.Compare)
	values, _ := brings(m.deltas)
	return p.body(ctx, values, func(w *wire.Writer) error { return m.write(ctx, w) })
}

// Retain returns a body that only sets a retention.
func (p *Page) Retain(ctx context.Context, r wire.Retention) (*wire.EntryBody, error) {
	return p.body(ctx, 0, func(w *wire.Writer) error { return w.Write(&r) })
}

func (p *Page) writePacks(w *wire.Writer) error {
	packs := slices.Clone(p.state.Pending.Packs)
	slices.SortFunc(packs, func(a, b wire.Pack) int { return wire.Compare(&a, &b) })
	for i := range packs {
		if err := w.Write(&packs[i]); err != nil {
			return err
		}
	}
	return nil
}

// body returns the body that write writes, for its entry or as an object of its own. values is how
// many keys get a value.
func (p *Page) body(ctx context.Context, values int64, write func(*wire.Writer) error) (*wire.EntryBody, error) {
	s := spool.New(p.o.Store.TempDir(), "body-*", spillBytes)
	defer s.Close()
	w := wire.NewWriter(s, wire.Body)
	d := &wire.Size{Values: uint64(values)}
	for _, pack := range p.state.Pending.Packs {
		if pack.Eager {
			d.Bytes += pack.Bytes
		}
	}
	err := w.Write(d)
	if err == nil {
		err = write(w)
	}
	if err != nil {
		return nil, fmt.Errorf("make a log entry: %w", err)
	}
	r, err := s.Reader()
	if err != nil {
		return nil, err
	}
	if s.Size() > wire.MaxBodyBytes {
		return p.putLong(ctx, r)
	}
	stream, err := io.ReadAll(r)
	return wire.InlineBody(stream, w.Parts()), err
}

// putLong uploads a body as an object of its own. It is not compressed, since it has many commits.
func (p *Page) putLong(ctx context.Context, r io.Reader) (*wire.EntryBody, error) {
	e, id := p.state.At.Epoch, p.o.NewID()
	_, hash, err := p.runs.PutObject(ctx, p.o.Names.Pack(e, id), p.o.Names.LongBodyLabel(e, id), func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
	return wire.LongBody(id, hash), err
}

// maker collects a body.
type maker struct {
	p       *Page
	commits []*commit.Commit // unsynced, parents before children
	tags    []storage.TagChange
	from    bases
	outside func(commit.ID) bool // reports commits that are not in the log
	// near are the nearest ancestors of commits that have a given-up parent.
	near     map[epoch.Commit]epoch.Set
	deltas   []*delta
	diffs    map[commit.ID]*delta // nil for a commit without a tree
	explains map[commit.ID]*delta
	held     int // bytes of differences
	inline   []inlinePiece
	missing  []object.Digest
}

// newMaker finds what there is to send.
func (p *Page) newMaker(ctx context.Context) (*maker, error) {
	m := &maker{p: p, diffs: map[commit.ID]*delta{}, explains: map[commit.ID]*delta{}}
	tags, err := p.o.Store.UnsyncedTags(ctx) // before the commits: then these include all commits that tags name
	if err != nil {
		return nil, fmt.Errorf("list changes of tags: %w", err)
	}
	ids, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("list unsynced commits: %w", err)
	}
	unsynced, aside := map[commit.ID]bool{}, map[commit.ID]bool{}
	for _, id := range p.state.GiveUp {
		aside[id] = true
	}
	for _, id := range ids {
		c, err := p.o.Store.Known(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read unsynced commit: %w", err)
		}
		unsynced[id] = true
		m.commits = append(m.commits, c)
	}
	m.outside = func(id commit.ID) bool { return unsynced[id] || aside[id] }
	heads, err := p.HeadsOfLog(ctx)
	if err != nil {
		return nil, err
	}
	m.from = bases{p: p, heads: heads, body: map[commit.ID]bool{}}
	sent := func(id commit.ID) (bool, error) { // whether a commit is in the log once the body is
		_, err := p.o.Store.Commit(ctx, id)
		if isPruned(err) {
			return false, nil
		}
		return !aside[id] || unsynced[id], err
	}
	if err := m.reduce(ctx, sent); err != nil {
		return nil, err
	}
	var gone []storage.TagChange
	for _, t := range tags {
		ok := t.Removed
		if !ok {
			if ok, err = sent(t.Commit); err != nil {
				return nil, fmt.Errorf("read tagged commit %s: %w", t.Commit.Short(), err)
			}
		}
		if ok {
			m.tags = append(m.tags, t)
		} else {
			gone = append(gone, t)
		}
	}
	return m, p.dropTags(ctx, gone)
}

// reduce finds the nearest ancestors of commits with a parent that is neither in the log nor in the
// body.
func (m *maker) reduce(ctx context.Context, sent func(commit.ID) (bool, error)) error {
	var bare epoch.Set
	for _, c := range m.commits {
		for _, id := range c.Parents {
			ok, err := sent(id)
			if err != nil {
				return fmt.Errorf("read parent of commit %s: %w", c.ID.Short(), err)
			}
			if !ok {
				bare = bare.Union(epoch.Set{short(c.ID)})
			}
		}
	}
	if len(bare) == 0 {
		return nil
	}
	g, _, err := m.p.graph(ctx)
	if err != nil {
		return err
	}
	m.near = map[epoch.Commit]epoch.Set{}
	for _, n := range g.Reduce(g.Set().Without(setOf(m.p.state.GiveUp))) {
		if !bare.Has(n.ID) {
			continue
		}
		if m.near[n.ID] = n.Near; n.Near == nil {
			m.near[n.ID] = epoch.Set{}
		}
	}
	return nil
}

// add makes the differences of a commit and of its explanation.
func (m *maker) add(ctx context.Context, c *commit.Commit) error {
	ok, err := m.hasTree(ctx, c)
	if err != nil || !ok {
		return err
	}
	d, err := m.delta(ctx, c)
	if err != nil {
		return err
	}
	d.put = len(c.Parents) < 2
	m.hold(d)
	m.diffs[c.ID] = d
	m.from.body[c.ID] = true
	if len(c.Parents) < 2 {
		return nil
	}
	root, ok, err := m.p.o.Store.Explanation(ctx, c.ID)
	if err != nil || !ok || root == btree.EmptyRoot {
		return err
	}
	if d, err = m.explanation(ctx, root); err != nil {
		return fmt.Errorf("explanation: %w", err)
	}
	m.hold(d)
	m.explains[c.ID] = d
	return nil
}

// hold keeps a delta. It drops the bytes of a delta when all together are too many; these are
// encoded again.
func (m *maker) hold(d *delta) {
	if m.held += len(d.kept); m.held > wire.MaxBodyBytes {
		d.kept = nil
	}
	m.deltas = append(m.deltas, d)
}

// hasTree reports whether the tree of an unsynced commit is here. A commit whose tree no device has
// goes up without it, as long as another commit stands on it.
func (m *maker) hasTree(ctx context.Context, c *commit.Commit) (bool, error) {
	err := m.p.BuildTrees(ctx, []commit.ID{c.ID})
	if err == nil {
		return true, nil
	}
	if errors.Is(err, base.ErrGone) {
		if _, head := m.p.headsHere()[short(c.ID)]; !head {
			return false, nil
		}
		err = base.ErrNeedsFetch
	}
	return false, fmt.Errorf("look for its tree: %w", err)
}

// dropTags drops unsynced tags of given-up commits: no other device can have these commits.
func (p *Page) dropTags(ctx context.Context, tags []storage.TagChange) error {
	if len(tags) == 0 {
		return nil
	}
	b := &storage.SyncBatch{SyncedTags: tags}
	for _, t := range tags {
		b.Tags = append(b.Tags, storage.TagChange{Name: t.Name, Removed: true})
	}
	return p.submitAlone(ctx, b)
}

// delta makes the difference of a commit.
func (m *maker) delta(ctx context.Context, c *commit.Commit) (*delta, error) {
	ks, err := m.from.of(ctx, c)
	if err != nil {
		return nil, err
	}
	return m.shortest(ctx, ks, c.Root)
}

// explanation makes the difference of a merge's explanation.
func (m *maker) explanation(ctx context.Context, root object.Digest) (*delta, error) {
	return m.shortest(ctx, []candidate{{tree: m.p.tree(btree.EmptyRoot)}}, root)
}

// shortest makes the shortest difference from a candidate to a tree. It uploads a difference that
// is too long for a body, once for all bodies made until one lands.
func (m *maker) shortest(ctx context.Context, ks []candidate, to object.Digest) (*delta, error) {
	p := m.p
	d, long, err := p.shortest(ctx, ks, p.tree(to))
	if err != nil || !long {
		return d, err
	}
	way := [2]object.Digest{d.from.Root, to}
	if up := p.out.long[way]; up != nil {
		again := *up
		again.base = d.base
		return &again, nil
	}
	if err := p.uploadDiff(ctx, p.state.At.Epoch, d, true); err != nil {
		return nil, err
	}
	if p.out.long == nil {
		p.out.long = map[[2]object.Digest]*delta{}
	}
	p.out.long[way] = d
	return d, nil
}

// isEmpty reports whether there is nothing to send except pieces.
func (m *maker) isEmpty() bool { return len(m.commits)+len(m.tags)+len(m.p.state.Send) == 0 }

// brings returns how many keys get a value, and the bytes of the values.
func brings(ds []*delta) (values, bytes int64) {
	for _, d := range ds {
		values += d.tally.puts
		bytes += d.tally.inline + int64(d.tally.valueBytes)
	}
	return values, bytes
}

// resend takes local pieces that commits of the log need, only to packs: their place did not pass
// to the epoch, or was lost. The collector handles local pieces that no commit needs. So if there
// are local pieces, resend visits the values of all commits with a tree here, and takes the pieces
// that the log lists as missing. Once after a renewal it takes all: a commit whose tree is not here
// may need a piece that only this device has.
func (p *Page) resend(ctx context.Context, g *gatherer, outside func(commit.ID) bool) error {
	if p.out.looked {
		return nil
	}
	var local []object.Digest
	err := p.o.Store.LocalPieces(ctx, func(d object.Digest) error {
		local = append(local, d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for local pieces: %w", err)
	}
	if len(local) > 0 {
		err = p.resendNeeded(ctx, g, outside)
	}
	if err == nil {
		err = p.resendAll(ctx, g, local)
	}
	p.out.looked = err == nil
	return err
}

// resendNeeded takes the local pieces that values of commits have, and those that the log lists as
// missing.
func (p *Page) resendNeeded(ctx context.Context, g *gatherer, outside func(commit.ID) bool) error {
	var ds []*delta
	err := p.o.Store.EachCommit(ctx, func(c *commit.Commit) error {
		ks, err := p.addHeld(ctx, nil, c)
		if err != nil || len(ks) == 0 || outside(c.ID) {
			return err
		}
		d := &delta{from: p.tree(btree.EmptyRoot), to: ks[0].tree, tally: tally{eager: true, lazy: true, plain: p.o.Plain != nil}}
		root, ok, err := p.o.Store.Explanation(ctx, c.ID)
		if err != nil {
			return fmt.Errorf("read its explanation: %w", err)
		}
		if ok {
			ds = append(ds, &delta{from: d.from, to: p.tree(root), tally: d.tally})
		}
		near, err := p.load(ctx, p.state.node(c).Near)
		if err == nil {
			near = slices.DeleteFunc(near, func(n *commit.Commit) bool { return outside(n.ID) })
			d.from, err = p.from(ctx, near)
		}
		ds = append(ds, d)
		return err
	})
	if err != nil {
		return err
	}
	g.forced = true
	if err := g.deltas(ds); err != nil {
		return err
	}
	return g.pieces(maps.Keys(p.state.Missing))
}

// resendAll takes all local pieces, unless storage.MetadataPlaced records that this was done, and
// records it there.
func (p *Page) resendAll(ctx context.Context, g *gatherer, local []object.Digest) error {
	done, err := p.o.Store.Metadata(ctx, storage.MetadataPlaced)
	if err != nil || done != nil {
		return err
	}
	if err := g.pieces(slices.Values(local)); err != nil {
		return fmt.Errorf("send all pieces that the bucket lacks: %w", err)
	}
	return p.submitAlone(ctx, &storage.SyncBatch{Metadata: []storage.Metadata{{Type: storage.MetadataPlaced, Value: []byte{1}}}})
}

// write writes the body.
func (m *maker) write(ctx context.Context, w *wire.Writer) error {
	for _, c := range m.p.state.Send {
		if err := w.Write(&wire.Gone{Commit: c}); err != nil {
			return err
		}
	}
	if err := m.p.writePacks(w); err != nil {
		return err
	}
	slices.SortFunc(m.inline, func(a, b inlinePiece) int { return a.digest.Compare(b.digest) })
	for _, q := range m.inline {
		if err := writePart(w, &wire.Piece{Digest: q.digest, Content: q.content}, q.plain); err != nil {
			return err
		}
	}
	for _, d := range m.missing {
		if err := w.Write(&wire.Missing{Piece: d}); err != nil {
			return err
		}
	}
	for _, c := range m.commits {
		if err := m.writeCommit(ctx, w, c); err != nil {
			return err
		}
	}
	for _, t := range m.tags {
		tag := &wire.Tag{Name: t.Name}
		if !t.Removed {
			tag.Commit = t.Commit
		}
		if err := w.Write(tag); err != nil {
			return err
		}
	}
	return nil
}

// writePart writes a record, compressed unless it is plain.
func writePart(w *wire.Writer, r wire.Record, plain bool) error {
	if plain {
		return w.Write(r)
	}
	return w.WriteCompressed(r)
}

func (m *maker) writeCommit(ctx context.Context, w *wire.Writer, c *commit.Commit) error {
	r := &wire.Commit{Commit: c, Near: m.near[short(c.ID)]}
	d := m.diffs[c.ID]
	if d == nil {
		r.Treeless = true
		return w.Write(r)
	}
	var err error
	r.Base = d.base
	if r.Diff, err = m.p.diffOf(ctx, d); err != nil {
		return err
	}
	if err := writePart(w, r, d.tally.plain); err != nil {
		return err
	}
	x := m.explains[c.ID]
	if x == nil {
		return nil
	}
	e := &wire.Explanation{Root: x.to.Root}
	if e.Diff, err = m.p.diffOf(ctx, x); err != nil {
		return err
	}
	return writePart(w, e, x.tally.plain)
}

// diffOf returns a difference in its stream form.
func (p *Page) diffOf(ctx context.Context, d *delta) (wire.Diff, error) {
	if d.place != nil {
		return wire.Diff{Place: d.place}, nil
	}
	if d.kept == nil && d.bytes > 0 {
		var kept bytes.Buffer
		if _, _, err := p.encodeDiff(ctx, d.from, d.to, &kept); err != nil {
			return wire.Diff{}, err
		}
		return wire.Diff{Inline: kept.Bytes()}, nil
	}
	return wire.Diff{Inline: d.kept}, nil
}
