package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// damageRefs changes or removes a row of references.
func (g *garden) damageRefs() {
	g.check(g.ix.Update(func(tx index.Tx) error {
		b := tx.Bucket("refcounts")
		c := b.Cursor()
		n := 0
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
		}
		if n == 0 {
			return nil
		}
		k, v := c.First()
		for range g.rng.IntN(n) {
			k, v = c.Next()
		}
		k, v = bytes.Clone(k), bytes.Clone(v)
		if err := b.Delete(k); err != nil {
			return err
		}
		switch g.rng.IntN(3) {
		case 0:
			return nil
		case 1:
			if len(v) > 0 {
				v[g.rng.IntN(len(v))] ^= 1 << g.rng.IntN(8)
				break
			}
			fallthrough
		default:
			k[g.rng.IntN(len(k))] ^= 1 << g.rng.IntN(8)
		}
		return b.Put(k, v)
	}))
}

// TestCollectDamagedReferences damages rows of references between steps of the collector: nothing
// reachable is deleted, though nobody has run a check, and the collector says so or has not come to
// the row.
func TestCollectDamagedReferences(t *testing.T) {
	told := 0
	for tries := 0; tries < 10 && told == 0; tries++ { // what some cases do not have, others have
		rapid.Check(t, func(rt *rapid.T) {
			g := newGarden(t, rt)
			g.cloud = &cloud{pieces: map[object.Digest][]byte{}}
			for _, op := range rapid.SliceOfN(rapid.IntRange(0, 9), 8, 40).Draw(rt, "operations") {
				switch op {
				case 0, 1, 2, 3:
					g.plant(g.pick())
				case 4:
					g.prune()
				case 5:
					g.damageRefs()
				case 6:
					g.check(g.s.Fold(context.Background()))
				default:
					for range 1 + g.rng.IntN(6) {
						if _, err := g.c.Step(context.Background()); errors.Is(err, base.ErrCorrupt) {
							told++
						} else {
							g.check(err)
						}
					}
				}
			}
			for range 40 {
				if _, err := g.c.Step(context.Background()); err != nil && !errors.Is(err, base.ErrCorrupt) {
					rt.Fatal(err)
				}
			}
			g.look()
			g.drop()
			g.close()
		})
	}
	if told == 0 {
		t.Error("the collector has never noticed damage")
	}
}

// cycles runs the collector until it has ended n cycles.
func cycles(t testing.TB, c *storage.Collector, n int) {
	t.Helper()
	for range n {
		for {
			more, err := c.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
		}
	}
}

// pruneTo prunes all commits but the given one.
func (w *world) pruneAll() {
	w.t.Helper()
	w.mu.Lock()
	var ids []commit.ID
	for _, c := range w.acked {
		ids = append(ids, c.ID)
	}
	w.mu.Unlock()
	kept, err := w.s.Prune(w.t.Context(), ids)
	if err != nil && !errors.Is(err, base.ErrConflict) {
		w.t.Fatal(err)
	}
	in := map[commit.ID]bool{}
	for _, id := range kept {
		in[id] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = nil
	for _, c := range w.maybe {
		if in[c.ID] {
			w.acked = append(w.acked, c)
		}
	}
}

// TestCollectSharedValues deletes two values that share chunks and index pieces one after the
// other: what they share goes with the last.
func TestCollectSharedValues(t *testing.T) {
	w := newWorld(t, 1, storage.Options{Cache: storage.NewNodeCache(1)})
	w.open()
	long := noise(w.rng, 3<<20)
	w.commit(edit{"a": long, "b": append(bytes.Clone(long), noise(w.rng, 40<<10)...)})
	w.commit(edit{"a": nil})
	w.pruneAll()
	c := w.s.NewCollector(storage.CollectOptions{})
	count := func() storage.SpaceCount {
		n, err := w.s.Garbage(t.Context())
		w.must(err)
		return n
	}
	wait := count()
	cycles(t, c, 2)
	if st := c.Stats(); wait.Count != st.Pieces+st.Nodes || wait.Bytes != st.Bytes || count().Count != 0 {
		t.Errorf("%+v waited and %+v went, with %+v left", wait, st, count())
	}
	few := c.Stats().Pieces
	w.must(w.verifyContent(w.s, w.s.NewestHead()))
	w.must(checkClean(w.s))
	w.commit(edit{"b": nil})
	w.pruneAll()
	cycles(t, c, 2)
	if all := c.Stats().Pieces; few == 0 || few > 10 || all < 100 {
		t.Errorf("%d pieces went with one value, %d with both", few, all)
	}
	w.must(checkClean(w.s))
	if c.Stats().Bytes < 3<<20 {
		t.Errorf("%d bytes", c.Stats().Bytes)
	}
	r, err := w.s.Space(t.Context())
	w.must(err)
	if r.Pieces.Count != 0 || r.Nodes.Count != 0 || r.Commits.Count != 1 || r.SegmentBytes == 0 {
		t.Errorf("space %+v", r)
	}
	w.close()
}

// TestPrunedParents reads a history whose beginning was pruned.
func TestPrunedParents(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	var cs []*commit.Commit
	for i := range 10 {
		cs = append(cs, w.commit(edit{"k": fmt.Append(nil, i)}))
	}
	release := w.s.Pin(cs[7].ID)
	kept, err := w.s.Prune(t.Context(), []commit.ID{cs[5].ID, cs[4].ID, cs[7].ID, cs[9].ID, commit.First().ID, {1}})
	if !errors.Is(err, base.ErrConflict) || len(kept) != 2 {
		t.Fatalf("kept %d, %v", len(kept), err)
	}
	release()
	n := 0
	for c, err := range commit.Walk(t.Context(), w.s, []commit.ID{cs[9].ID}) {
		w.must(err)
		if n++; c.Generation <= cs[5].Generation {
			t.Errorf("the walk comes to generation %d", c.Generation)
		}
	}
	if n != 4 {
		t.Errorf("%d commits", n)
	}
	if _, err := commit.IsAncestor(t.Context(), w.s, cs[2], cs[9]); !errors.Is(err, base.ErrGone) {
		t.Errorf("ancestor behind what was pruned: %v", err)
	}
	for _, want := range []struct {
		c   *commit.Commit
		err error
	}{{cs[5], base.ErrGone}, {cs[4], base.ErrNotFound}, {cs[3], nil}} {
		if _, err := w.s.Commit(t.Context(), want.c.ID); !errors.Is(err, want.err) {
			t.Errorf("generation %d: %v, want %v", want.c.Generation, err, want.err)
		}
	}
	if _, err := w.tryCommit(cs[5], edit{"x": []byte("y")}, 0); err == nil {
		t.Error("a commit on one that was pruned")
	}
	if _, err := w.tryCommit(cs[6], edit{"x": []byte("y")}, 0); err != nil {
		t.Errorf("a commit on one whose parent was pruned: %v", err)
	}
	w.must(checkClean(w.s))
	w.reopen()
	if _, err := w.s.Known(t.Context(), cs[5].ID); !errors.Is(err, base.ErrGone) {
		t.Errorf("after opening again: %v", err)
	}
	if r := w.s.Recovery(); r.IndexRebuilt != "" {
		t.Errorf("recovery %+v", r)
	}
	w.must(checkClean(w.s))
	w.close()
}

// TestCollectBesideJournals lets a journal rely on garbage at every moment of its deletion: what
// the journal commits is readable (I9).
func TestCollectBesideJournals(t *testing.T) {
	value := func(w *world) []byte { return noise(w.rng, 100<<10) }
	for at := range 6 {
		w := newWorld(t, uint64(at), storage.Options{Cache: storage.NewNodeCache(1)})
		w.open()
		v := value(w)
		old := w.commit(edit{"v": v, "a": []byte("1")})
		w.commit(edit{"v": nil, "a": []byte("2")})
		w.commit(edit{"b": []byte("3")})
		w.pruneAll()
		c := w.s.NewCollector(storage.CollectOptions{Deletions: 1})
		j := w.s.NewJournal()
		for range at {
			_, err := c.Step(t.Context())
			w.must(err)
		}
		// The content of the commit that was pruned, node by node and piece by piece.
		tx, err := w.make(j, edit{"v": v, "a": []byte("1"), "b": nil}, at%2, w.s.NewestHead())
		w.must(err)
		for range 8 {
			_, err := c.Step(t.Context())
			w.must(err)
		}
		txs, err := w.submitAll(j, tx)
		w.must(err)
		w.must(w.wait(txs[0]))
		if txs[0].c.Root != old.Root {
			t.Fatal("another tree")
		}
		cycles(t, c, 2)
		w.must(w.verifyContent(w.s, txs[0].c))
		w.must(checkClean(w.s))
		w.reopen()
		w.must(w.verifyContent(w.s, txs[0].c))
		w.close()
	}
}

// TestCollectBesideTreeless brings a commit without its tree: the content of garbage goes all the
// same, and its place stays.
func TestCollectBesideTreeless(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.withSync()
	w.open()
	long := noise(w.rng, 700)
	d := object.Sum(0, long)
	first := w.commit(edit{"a": []byte("1"), "b": []byte("2")})
	w.commit(edit{"long": long})
	last := w.commit(edit{"long": nil})
	if last.Root != first.Root {
		t.Fatal("the change was not taken back")
	}
	bare, err := commit.New(commit.Params{Now: time.Unix(9, 0), Root: first.Root, Parents: []*commit.Commit{first}})
	w.must(err)
	place := entryPlace(1)
	w.sync(nil, storage.SyncBatch{
		Commits:  []storage.ReceivedCommit{{Commit: bare, Treeless: true}},
		Places:   []storage.PlacedPiece{{Digest: d, Place: place}},
		Metadata: []storage.Metadata{{Type: "position", Value: []byte("here")}},
	})
	w.pruneAll()
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 4)
	wantState(t, w.s, d, false, &place)
	w.must(checkClean(w.s))
	w.close()
}

// TestCommitOfWhatIsBeingDeleted makes a commit with the nodes and the value of a pruned one, while
// the record of their deletion is on its way to the log: the commit stores them again.
func TestCommitOfWhatIsBeingDeleted(t *testing.T) {
	for _, nodes := range []bool{true, false} { // the nodes go first
		g := &gate{reached: make(chan struct{}), end: make(chan struct{})}
		w := newWorld(t, 1, storage.Options{})
		w.o.FS = vfstest.NewFaulty(w.mem, g.inject)
		w.open()
		again := edit{"again": noise(w.rng, 3000)}
		w.commit(again)
		w.commit(edit{"again": nil})
		w.pruneAll()
		c := w.s.NewCollector(storage.CollectOptions{})
		collect := func() (err error) {
			for n := c.Stats(); err == nil && n.Nodes+n.Pieces == c.Stats().Nodes+c.Stats().Pieces; {
				_, err = c.Step(t.Context())
			}
			return err
		}
		if !nodes {
			w.must(collect())
		}
		w.must(w.s.Fold(t.Context()))
		g.mu.Lock()
		g.armed = true
		g.mu.Unlock()
		var wg sync.WaitGroup
		var collectErr error
		wg.Go(func() { collectErr = collect() })
		<-g.reached
		made, err := w.submit(nil, again, 0)
		w.must(err)
		close(g.end)
		wg.Wait()
		w.must(collectErr)
		w.must(w.wait(made))
		w.must(w.verifyContent(w.s, made.c))
		cycles(t, c, 3)
		w.reopen()
		w.must(w.verifyContent(w.s, made.c))
		w.must(checkClean(w.s))
		w.close()
	}
}
