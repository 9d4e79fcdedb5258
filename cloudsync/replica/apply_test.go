package replica_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/wire"
)

// TestApply: what one device commits, with values of all sorts, the other has.
func TestApply(t *testing.T) {
	for packed := range 5 {
		for _, long := range []bool{false, true} {
			t.Run(fmt.Sprint(packed, long), func(t *testing.T) {
				ctx := context.Background()
				w := newFleet(t, 2, 2) // the first one by hand
				a, b := w.devices[0], w.devices[1]
				a.packed, a.long = packed, long
				big := w.noise(300_000)
				a.commit(puts{"a": {content: []byte("1")}, "b": {content: w.noise(3000)}, "c": {content: big, lazy: true}, "d": {content: w.noise(200_000)}})
				a.commit(puts{"a": nil, "b": {content: big}})
				w.must(a.store.SetTag(ctx, "one", a.store.NewestHead().ID))
				w.must(a.sync(ctx))
				w.must(b.sync(ctx))
				w.same()
				b.commit(puts{"x": {content: w.noise(5000)}})
				w.must(b.store.DeleteTag(ctx, "one"))
				a.commit(puts{"y": {content: w.noise(5000)}})
				w.must(b.sync(ctx))
				w.must(a.sync(ctx))
				w.must(b.sync(ctx))
				w.same()
				b.reopen()
				w.must(b.sync(ctx))
				w.same()
			})
		}
	}
}

// same verifies that all devices have the same.
func (w *fleet) same() {
	w.t.Helper()
	ctx := context.Background()
	a := w.devices[0]
	if h := a.store.Heads(); len(h) != 1 {
		w.t.Fatalf("%d heads", len(h))
	}
	content := a.content(a.store.NewestHead())
	tags, err := a.store.Tags(ctx)
	w.must(err)
	for _, d := range w.devices {
		x, y := a.page.Position(), d.page.Position()
		if x.K != y.K || x.Epoch != y.Epoch || x.Number != y.Number || x.Hash != y.Hash {
			w.t.Errorf("%s is at %v, %s at %v", a.name, x, d.name, y)
		}
		if h := d.store.Heads(); len(h) != 1 || h[0].ID != a.store.NewestHead().ID {
			w.t.Fatalf("%s has %d heads, another first one", d.name, len(h))
		}
		same := func(x, y string) bool { return x == y || w.lossy && (x == lost || y == lost) }
		if got := d.content(d.store.NewestHead()); !maps.EqualFunc(got, content, same) {
			w.t.Errorf("%s has another content", d.name)
		}
		got, err := d.store.Tags(ctx)
		w.must(err)
		if !maps.Equal(got, tags) {
			w.t.Errorf("%s has tags %v, not %v", d.name, got, tags)
		}
		if left, err := d.store.Unsynced(ctx); err != nil || len(left) > 0 {
			w.t.Errorf("%s has %d unsynced commits: %v", d.name, len(left), err)
		}
		if x, y := fmt.Sprint(a.logState()), fmt.Sprint(d.logState()); x != y {
			w.t.Errorf("%s has the log state\n%s, %s\n%s", a.name, x, d.name, y)
		}
	}
}

// TestCut: a device that is where a cut is made, one that is behind and a new one enter alike.
func TestCut(t *testing.T) {
	ctx := context.Background()
	w := newFleet(t, 2, 3)
	a, b, c := w.devices[0], w.devices[1], w.devices[2]
	a.packed = 2
	step := func() { a.commit(puts{fmt.Sprint(w.random.IntN(9)): {content: w.noise(100 + w.random.IntN(4000))}}) }
	for i := range 5 {
		step()
		w.must(a.sync(ctx))
		w.must(b.sync(ctx))
		if i == 1 {
			w.must(c.sync(ctx))
		}
	}
	w.must(a.log.Cut(ctx))
	for _, d := range w.devices {
		w.must(d.sync(ctx))
	}
	w.same()
	for i := range 3 {
		for range 4 {
			step()
			w.must(a.sync(ctx))
		}
		b.commit(puts{fmt.Sprint("b", i): {content: w.noise(500), lazy: i == 1}})
		w.must(b.sync(ctx))
		if i == 1 {
			a.retain = &wire.Retention{Last: 2}
		}
		w.must(a.sync(ctx))
		w.must(a.log.Cut(ctx))
		w.must(b.sync(ctx))
		w.must(a.sync(ctx))
	}
	w.must(c.sync(ctx))
	n := w.device(false)
	w.must(n.sync(ctx))
	w.same()
}

// TestManyCommits: a body and a checkpoint with more commits than go into one batch of storage
// arrive whole, and what came as history gets its trees.
func TestManyCommits(t *testing.T) {
	ctx := context.Background()
	w, a, b := twoInSync(t)
	a.message = strings.Repeat("m", 16<<10)
	for i := range 700 {
		a.commit(puts{fmt.Sprint(i % 7): {content: fmt.Append(nil, i)}})
	}
	w.must(a.sync(ctx))
	w.must(b.sync(ctx))
	w.same()
	w.must(a.log.Cut(ctx))
	w.must(b.sync(ctx))
	c := w.device(false)
	w.must(c.sync(ctx))
	w.same()
	for _, d := range []*member{b, c} {
		ids, err := d.store.FindCommits(ctx, nil, false, 1<<20)
		w.must(err)
		if len(ids) != 702 {
			t.Errorf("%s has %d commits", d.name, len(ids))
		}
		w.must(d.page.BuildTrees(ctx, ids))
		for _, id := range ids {
			x, err := d.store.Commit(ctx, id)
			w.must(err)
			if held, err := d.store.TreeHeld(ctx, x); err != nil || !held {
				t.Fatalf("%s: tree of %s: %v, %v", d.name, id.Short(), held, err)
			}
		}
	}
}
