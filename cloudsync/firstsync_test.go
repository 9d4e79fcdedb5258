package cloudsync_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
)

// beforeCheckpoints has fn called before each put of a checkpoint.
func (w *world) beforeCheckpoints(fn func()) {
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut && strings.Contains(name, "/checkpoints/") {
			fn()
		}
		return nil
	})
}

// at returns a world whose bucket is as it was.
func (w *world) at(s mem.State) *world {
	w.t.Helper()
	b := mem.New(mem.Options{Clock: w.clock})
	b.Rollback(s)
	return &world{t: w.t, clock: w.clock, b: b, ring: w.ring, master: w.master, o: w.o, n: w.n + 100}
}

// portion returns how many values of a length a commit changes.
func portion(length int) int { return min(50, 100_000/length) }

// change returns edit i of a page.
func change(i, values, length int) edit {
	e, n := edit{}, portion(length)
	for k := range n {
		e[key((n*i+k)*7%values)] = noise(uint64(1<<20+n*i+k), length)
	}
	return e
}

// grow fills a page with values of a length in one commit, and changes some of them again and again
// until there are checkpoints. It returns what the bucket held just before each was put, and what
// the page holds in all.
func (w *world) grow(a *page, values, length, checkpoints int) (states *[]mem.State, content int64) {
	w.t.Helper()
	states = new([]mem.State)
	w.beforeCheckpoints(func() { *states = append(*states, w.b.State()) })
	all := edit{}
	for i := range values {
		all[key(i)] = noise(uint64(i), length)
		content += int64(len(key(i)) + length)
	}
	a.commit(all)
	sync(w.t, a)
	for i := 0; len(*states) < checkpoints; i++ {
		if i*portion(length) > 4*values*checkpoints {
			w.t.Fatalf("%d checkpoints after %d changes of %d values", len(*states), i*portion(length), values)
		}
		a.commit(change(i, values, length))
		sync(w.t, a)
	}
	return states, content
}

// TestFirstSyncAfterManyCuts rewrites a page again and again: what a new device reads stays within
// twice the content, however many cuts there were.
func TestFirstSyncAfterManyCuts(t *testing.T) {
	const keys, length = 2000, 200
	w := newWorld(t)
	a := w.device()
	first := edit{}
	for i := range keys {
		first[key(i)] = noise(uint64(i), length)
	}
	a.commit(first)
	sync(t, a)
	want := func(content int64) {
		t.Helper()
		c := w.device()
		if got := c.counts(func() { sync(t, c) }); got.Down > 2*content {
			t.Errorf("after %d cuts: a first sync reads %d bytes for %d", w.cuts(), got.Down, content)
		}
		sameHeads(t, a, c)
	}
	for i := range 1000 {
		e := edit{}
		for k := range 8 {
			e[key((8*i+k)%keys)] = noise(uint64(10_000+8*i+k), length)
		}
		a.commit(e)
		sync(t, a)
		if i%25 == 24 {
			want(keys * (length + 10))
		}
	}
	if n := w.cuts(); n < 8 {
		t.Errorf("only %d cuts", n)
	}
}

// TestFirstSyncAtTheWorstMoment lets a device begin just before a checkpoint is written, when the
// log is longest. What does not stand in the entries themselves counts as well: the first commit is
// a diff, or a pack, of its own.
func TestFirstSyncAtTheWorstMoment(t *testing.T) {
	for _, c := range []struct{ values, length, checkpoints int }{{8000, 200, 2}, {2000, 1000, 5}, {3000, 300, 3}, {150, 20_000, 3}} {
		t.Run(fmt.Sprint(c.length), func(t *testing.T) {
			w := newWorld(t)
			a := w.device()
			states, content := w.grow(a, c.values, c.length, c.checkpoints)
			for i, s := range *states {
				b := w.at(s).device()
				got := b.counts(func() { sync(t, b) })
				t.Logf("before checkpoint %d: %d bytes of content, %+v", i+1, content, got)
				if got.Down > 2*content || got.A+got.B > content/(4<<20)+200 || got.Up > 0 {
					t.Errorf("before checkpoint %d a first sync cost %+v for %d bytes", i+1, got, content)
				}
			}
		})
	}
}

// TestCheckpointCostsReadersLittle lets a device read on while another writes checkpoints, whose
// packs have what it has already.
func TestCheckpointCostsReadersLittle(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	states, content := w.grow(a, 2000, 1000, 2)
	sync(t, b)
	for i := 1000; len(*states) < 4; i++ {
		if i == 1500 {
			t.Fatalf("%d checkpoints", len(*states))
		}
		a.commit(change(i, 2000, 1000))
		sync(t, a)
		got := b.counts(func() { sync(t, b) })
		if got.Up == 0 && got.Down > content/4 { // else it has written a checkpoint itself
			t.Fatalf("reading on cost %+v, of a page with %d bytes", got, content)
		}
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(a.content(), c.content()) || !maps.Equal(a.content(), b.content()) {
		t.Error("contents differ")
	}
}

// TestDeadPartsOfPacksAreNotRead has a pack of 10 MB of which a part in the middle is dead for the
// head. What a new device reads of it stays below twice the content.
func TestDeadPartsOfPacksAreNotRead(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	all := edit{}
	for i := range 24 {
		all[key(i)] = noise(uint64(i), 400_000)
	}
	a.commit(all)
	sync(t, a)
	dead := edit{}
	for i := range 8 {
		dead[key(i+8)] = text("none")
	}
	a.commit(dead)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := w.device()
	got := b.counts(func() { sync(t, b) })
	sameHeads(t, a, b)
	if !maps.Equal(a.content(), b.content()) {
		t.Error("contents differ")
	}
	const live = 16 * 400_000
	t.Logf("a new device: %+v", got)
	// The history is kept, so that all of the pack is needed: it is read in one go.
	if got.Down > 2*live || got.Down < live || got.B > 20 {
		t.Errorf("a new device cost %+v, for %d bytes that are live", got, live)
	}
	c := w.device() // it has the values already
	c.commit(all)
	sync(t, c)
	sync(t, a, b, c)
	sync(t, a, b, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(a.content(), c.content()) || !maps.Equal(a.content(), b.content()) {
		t.Error("contents differ")
	}
}
