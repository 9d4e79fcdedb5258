package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// garden is a page from which commits are pruned while its garbage is collected.
type garden struct {
	*world
	t      *rapid.T
	c      *storage.Collector
	values [][]byte
	kept   []*commit.Commit // here, in any order
	pruned []*commit.Commit
	tagged map[string]commit.ID
	pins   map[commit.ID][]func()
	open   []*planting
	synced bool            // something of sync has been done
	olds   []*index.Memory // copies of page.db
	full   bool            // the disk is

	deleted int
}

// planting is a journal that is left open.
type planting struct {
	j       *storage.Journal
	base    *commit.Commit
	release func()
	e       edit
}

func newGarden(tb testing.TB, t *rapid.T) *garden {
	seed := rapid.Uint64().Draw(t, "seed")
	o := storage.Options{Cache: storage.NewNodeCache(1)}
	if rapid.Bool().Draw(t, "small segments") {
		o.SegmentBytes = 8192
	}
	if rapid.Bool().Draw(t, "fold often") {
		o.FoldRows = 40
	}
	g := &garden{world: newWorld(tb, seed, o), t: t, tagged: map[string]commit.ID{}, pins: map[commit.ID][]func(){}, kept: []*commit.Commit{commit.First()}}
	for range 6 {
		g.values = append(g.values, noise(g.rng, 300+g.rng.IntN(40<<10)))
	}
	long := noise(g.rng, 150<<10)
	g.values = append(g.values, long, append(slices.Clone(long), noise(g.rng, 9000)...)) // which share chunks
	g.open1()
	return g
}

func (g *garden) open1() {
	g.world.open()
	g.c = g.s.NewCollector(storage.CollectOptions{Numbers: 1 + g.rng.IntN(600), Candidates: 1 + g.rng.IntN(300), Deletions: 1 + g.rng.IntN(60)})
}

func (g *garden) check(err error) {
	if err != nil {
		g.t.Helper()
		g.t.Fatal(err)
	}
}

func (g *garden) edit() edit {
	e := edit{}
	for range 1 + g.rng.IntN(6) {
		k := fmt.Sprintf("key %03d", g.rng.IntN(60))
		switch g.rng.IntN(5) {
		case 0:
			e[k] = nil
		case 1, 2:
			e[k] = g.values[g.rng.IntN(len(g.values))]
		default: // few values, so that nodes come back that have been deleted
			e[k] = fmt.Appendf(nil, "value %d", g.rng.IntN(3))
		}
	}
	return e
}

func (g *garden) pick() *commit.Commit { return g.kept[g.rng.IntN(len(g.kept))] }

// plant makes a commit on one that is kept.
func (g *garden) plant(on *commit.Commit) {
	release := g.s.Pin(on.ID)
	defer release()
	j := g.s.NewJournal()
	defer j.Rollback()
	t, err := g.submitJournal(j, g.edit(), g.rng.IntN(3), on)
	g.check(err)
	g.check(g.wait(t))
	g.add(t.c)
}

func (g *garden) add(c *commit.Commit) {
	if !slices.ContainsFunc(g.kept, func(k *commit.Commit) bool { return k.ID == c.ID }) {
		g.kept = append(g.kept, c)
	}
	g.pruned = slices.DeleteFunc(g.pruned, func(k *commit.Commit) bool { return k.ID == c.ID })
}

// leave begins a journal and leaves it open, or goes on with one, or ends one.
func (g *garden) leave() {
	ctx := context.Background()
	if len(g.open) < 2 && g.rng.IntN(2) == 0 {
		on := g.pick()
		g.open = append(g.open, &planting{g.s.NewJournal(), on, g.s.Pin(on.ID), edit{}})
		return
	}
	if len(g.open) == 0 {
		return
	}
	i := g.rng.IntN(len(g.open))
	p := g.open[i]
	switch g.rng.IntN(4) {
	case 0, 1:
		e := g.edit()
		for k, v := range e {
			_, err := putValue(ctx, p.j, k, v, g.rng.IntN(2))
			g.check(err)
		}
		maps.Copy(p.e, e)
		return
	case 2:
		p.j.Rollback()
	case 3: // nodes go ahead of the commit
		t, err := g.make(p.j, p.e, 0, p.base)
		g.check(err)
		g.check(p.j.Flush(ctx))
		for range g.rng.IntN(4) {
			g.step()
		}
		ts, err := g.submitAll(p.j, t)
		g.check(err)
		g.check(g.wait(ts[0]))
		g.add(t.c)
	}
	p.release()
	g.open = slices.Delete(g.open, i, i+1)
}

// drop forgets what a process holds in memory.
func (g *garden) drop() {
	for _, p := range g.open {
		p.j.Rollback()
		p.release()
	}
	g.open = nil
	for _, rs := range g.pins {
		for _, r := range rs {
			r()
		}
	}
	clear(g.pins)
}

func (g *garden) prune() {
	ctx := context.Background()
	var ids []commit.ID
	for _, c := range g.kept {
		if g.rng.IntN(2) == 0 {
			ids = append(ids, c.ID)
		}
	}
	kept, err := g.s.Prune(ctx, ids)
	if len(kept) > 0 != errors.Is(err, base.ErrConflict) {
		g.t.Fatalf("prune keeps %d: %v", len(kept), err)
	}
	if err != nil && !errors.Is(err, base.ErrConflict) {
		g.t.Fatal(err)
	}
	heads := map[commit.ID]bool{}
	for _, h := range g.s.Heads() {
		heads[h.ID] = true
	}
	used := func(id commit.ID) bool {
		return heads[id] || len(g.pins[id]) > 0 || slices.ContainsFunc(g.open, func(p *planting) bool { return p.base.ID == id }) ||
			slices.Contains(slices.Collect(maps.Values(g.tagged)), id)
	}
	for _, id := range ids {
		if used(id) && !slices.Contains(kept, id) && id != commit.First().ID {
			g.t.Fatalf("commit %s is used and was pruned", id.Short())
		}
		if id == commit.First().ID || slices.Contains(kept, id) {
			continue
		}
		i := slices.IndexFunc(g.kept, func(c *commit.Commit) bool { return c.ID == id })
		g.pruned = append(g.pruned, g.kept[i])
		g.kept = slices.Delete(g.kept, i, i+1)
	}
}

func (g *garden) step() bool {
	was := g.c.Stats()
	more, err := g.c.Step(context.Background())
	g.check(err)
	g.deleted += g.c.Stats().Pieces + g.c.Stats().Nodes - was.Pieces - was.Nodes
	return more
}

// crash cuts the power.
func (g *garden) crash() {
	keep := g.rng.Float64
	if g.rng.IntN(3) == 0 {
		keep = vfstest.KeepNone
	}
	ix := g.ix.Clone()
	if g.rng.IntN(4) == 0 {
		ix = index.NewMemory()
	}
	old, mem := g.s, g.mem.CrashClone(keep)
	g.drop()
	g.check(old.Close())
	g.mem, g.ix = mem, ix
	g.o.FS, g.o.MemoryIndex = mem, ix
	g.open1()
}

func (g *garden) reopen() {
	g.drop()
	g.close()
	if g.rng.IntN(3) == 0 {
		g.ix = index.NewMemory()
		g.o.MemoryIndex = g.ix
	}
	g.open1()
}

func (g *garden) tag() {
	name := fmt.Sprint("tag ", g.rng.IntN(3))
	if c := g.pick(); g.rng.IntN(2) == 0 {
		g.check(g.s.SetTag(context.Background(), name, c.ID))
		g.tagged[name] = c.ID
	} else if _, ok := g.tagged[name]; ok {
		g.check(g.s.DeleteTag(context.Background(), name))
		delete(g.tagged, name)
	}
}

func (g *garden) pin() {
	c := g.pick()
	if rs := g.pins[c.ID]; len(rs) > 0 && g.rng.IntN(2) == 0 {
		rs[0]()
		g.pins[c.ID] = rs[1:]
		return
	}
	g.pins[c.ID] = append(g.pins[c.ID], g.s.Pin(c.ID))
}

func (g *garden) merge() {
	h := g.s.Heads()
	if len(h) < 2 {
		return
	}
	j := g.s.NewJournal()
	defer j.Rollback()
	t, err := g.make(j, edit{"merged": g.values[g.rng.IntN(len(g.values))]}, g.rng.IntN(2), h[0], h[1])
	if err == nil && g.rng.IntN(2) == 0 {
		err = g.explain(j, &t, g.rng, 1+g.rng.IntN(20))
	}
	g.check(err)
	g.check(g.submitAndWait(j, []tx{t}))
	g.add(t.c)
}

// share tells the page that the bucket has some pieces, and drops some of them.
func (g *garden) share() {
	ctx := context.Background()
	g.synced = true
	var ds []object.Digest
	g.check(g.s.LocalPieces(ctx, func(d object.Digest) error { ds = append(ds, d); return nil }))
	ds = slices.DeleteFunc(ds, func(object.Digest) bool { return g.rng.IntN(2) == 0 })
	if len(ds) == 0 {
		return
	}
	b := storage.SyncBatch{Metadata: []storage.Metadata{{Type: storage.MetadataPlaced, Value: []byte{1}}}}
	for _, d := range ds {
		content, err := g.s.Piece(ctx, d)
		g.check(err)
		g.cloud.put(d, bytes.Clone(content))
		b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: entryPlace(1)})
	}
	p, err := g.s.SubmitSync(ctx, nil, &b)
	g.check(err)
	g.check(p.Wait())
	_, err = g.s.DropPieces(ctx, ds[:g.rng.IntN(len(ds)+1)])
	g.check(err)
}

// look reads everything that must be there.
func (g *garden) look() {
	ctx := context.Background()
	for _, c := range g.kept {
		got, err := g.s.Commit(ctx, c.ID)
		if err != nil || got.ID != c.ID {
			g.t.Fatalf("kept commit: %v", err)
		}
		g.check(g.verifyContent(g.s, c))
	}
	for _, c := range g.pruned {
		_, err := g.s.Commit(ctx, c.ID)
		if !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
			g.t.Fatalf("pruned commit: %v", err)
		}
		if slices.ContainsFunc(g.kept, func(k *commit.Commit) bool { return slices.Contains(k.Parents, c.ID) }) {
			if _, err := g.s.Known(ctx, c.ID); !errors.Is(err, base.ErrGone) {
				g.t.Fatalf("pruned parent: %v", err)
			}
		}
	}
	for _, p := range g.open {
		for k, v := range p.e {
			if len(v) <= btree.InlineLimit {
				continue
			}
			_, err := split.SplitBytes(ctx, split.DefaultTable(), v, func(ctx context.Context, s split.Piece) error {
				_, err := p.j.Piece(ctx, s.Digest)
				return err
			})
			if err != nil {
				g.t.Fatalf("value of %q in an open journal: %v", k, err)
			}
		}
	}
}

// reachable returns the digests that kept commits reach.
func (g *garden) reachable() map[object.Digest]bool {
	ctx := context.Background()
	out := map[object.Digest]bool{}
	var pieces func(d object.Digest)
	pieces = func(d object.Digest) {
		if out[d] {
			return
		}
		out[d] = true
		content, err := g.s.Piece(ctx, d)
		g.check(err)
		children, err := split.Children(d, content)
		g.check(err)
		for _, c := range children {
			pieces(c)
		}
	}
	var node func(d object.Digest)
	node = func(d object.Digest) {
		if out[d] {
			return
		}
		if out[d] = true; d == btree.EmptyRoot {
			return
		}
		n, err := g.s.Node(ctx, d)
		g.check(err)
		for i := range n.NumChildren() {
			node(n.Child(i).Digest)
		}
		for i := range n.Len() {
			if !n.Inline(i) {
				pieces(n.Entry(i).Digest)
			}
		}
	}
	for _, c := range g.kept {
		if c.Root == btree.EmptyRoot {
			out[c.Root] = true
			continue
		}
		node(c.Root)
		if root, ok, err := g.s.Explanation(ctx, c.ID); err != nil {
			g.t.Fatal(err)
		} else if ok {
			node(root)
		}
	}
	return out
}

// TestCollectModel does random things to a page, with steps of the collector between any two: what
// is reachable stays readable, and what is not is gone after two cycles (I9).
func TestCollectModel(t *testing.T) {
	var dead, deleted int
	for tries := 0; tries < 10 && (dead == 0 || deleted == 0); tries++ { // what some cases do not have, others have
		rapid.Check(t, func(rt *rapid.T) {
			g := newGarden(t, rt)
			g.cloud = &cloud{pieces: map[object.Digest][]byte{}}
			g.s.SetFetcher(g.cloud)
			withSync := rapid.Bool().Draw(rt, "sync")
			for _, op := range rapid.SliceOfN(rapid.IntRange(0, 23), 5, 60).Draw(rt, "operations") {
				switch op {
				case 0, 1, 2, 3, 4:
					h := g.s.Heads()
					g.plant(h[g.rng.IntN(len(h))])
				case 5:
					g.plant(g.pick())
				case 6:
					g.merge()
				case 7, 8, 9:
					g.leave()
				case 10, 11, 12:
					g.prune()
				case 13:
					g.tag()
				case 14:
					g.pin()
				case 15:
					g.crash()
				case 16:
					g.reopen()
				case 17:
					g.check(g.s.Fold(context.Background()))
				case 18:
					if withSync {
						g.share()
					}
				default:
					for range 1 + g.rng.IntN(6) {
						g.step()
					}
				}
				if rapid.IntRange(0, 3).Draw(rt, "look") == 0 {
					g.look()
				}
				for range g.rng.IntN(3) {
					g.step()
				}
			}
			g.drop()
			g.look()
			cycles := 2
			if g.synced {
				cycles = 4
			}
			g.c = g.s.NewCollector(storage.CollectOptions{})
			for range cycles {
				for g.step() {
				}
			}
			g.look()
			g.check(checkClean(g.s))
			rows, bases, err := storage.ObjectRows(g.ix)
			g.check(err)
			want := g.reachable()
			dead += len(bases)
			deleted += g.deleted
			for d, held := range rows {
				st, err := g.s.PieceState(d)
				g.check(err)
				if !want[d] && !bases[d] && (held || !st.Synced) {
					rt.Fatalf("garbage %s has a row, held: %v", d, held)
				}
			}
			if rows := rowKeys(t, g.s, "transient/objects"); len(rows) > 0 {
				rt.Fatalf("%d transient rows", len(rows))
			}
			g.reopen()
			g.look()
			g.check(checkClean(g.s))
			g.close()
		})
	}
	if dead == 0 || deleted == 0 {
		t.Errorf("%d nodes were kept as bases, %d pieces deleted", dead, deleted)
	}
}
