package replica_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
)

// TestFold: a device that comes back with commits on what was given up meanwhile merges them with
// the true base, with one head of the log and with two. Then it gives up what the others have given
// up.
func TestFold(t *testing.T) {
	for _, heads := range []int{1, 2} {
		t.Run(fmt.Sprint(heads), func(t *testing.T) {
			ctx := t.Context()
			w := newFleet(t, 4, 2)
			a, b := w.devices[0], w.devices[1]
			a.commit(puts{"a": {content: []byte("1")}})
			w.must(a.sync(ctx))
			w.must(b.sync(ctx))
			on := b.store.NewestHead()
			mine := b.commit(puts{"b": {content: []byte("2")}})
			a.retain = &wire.Retention{Last: 1}
			for i := range 3 {
				a.commit(puts{"a": {content: fmt.Append(nil, i)}})
				w.must(a.sync(ctx))
			}
			if heads == 2 {
				top := a.store.NewestHead()
				a.commit(puts{"x": {content: []byte("x")}}, top)
				a.commit(puts{"y": {content: []byte("y")}}, top)
				body, err := a.body(ctx)
				w.must(err)
				_, err = a.log.Append(ctx, body)
				w.must(err)
			}
			w.must(a.log.Cut(ctx))
			if _, err := b.log.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if first, err := b.page.Folding(ctx); err != nil || len(first) != 2 || slices.ContainsFunc(first, func(c *commit.Commit) bool { return c.ID == mine.ID }) != (heads == 1) {
				t.Fatalf("%d heads to merge first, %v", len(first), err)
			}
			if _, err := b.page.Prune(ctx); err != nil {
				t.Fatal(err)
			}
			if heads == 2 {
				if ok, err := b.fold(ctx); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			h := b.store.Heads()
			if first, err := b.page.Folding(ctx); err != nil || len(h) != 2 || len(first) != 2 {
				t.Fatalf("%d heads, of which %d are merged first, %v", len(h), len(first), err)
			}
			st, err := replica.StandingOf(ctx, b.store)
			if err != nil {
				t.Fatal(err)
			}
			r, err := merge.Relate(ctx, st.Over(b.store, b.store), h[0], h[1])
			if err != nil || len(r.Bases) != 1 || r.Bases[0].ID != on.ID {
				t.Fatalf("bases %v of %s, want %s: %v", r.Bases, mine.ID.Short(), on.ID.Short(), err)
			}
			b.reopen()
			for _, d := range []*member{b, a, b} {
				w.must(d.sync(ctx))
			}
			w.check()
			if _, err := b.store.Commit(ctx, on.ID); err == nil || len(b.page.State().GiveUp) > 0 {
				t.Errorf("the base is still here: %v, %d are to be given up", err, len(b.page.State().GiveUp))
			}
		})
	}
}

// TestFoldBeginsWithTheHeadsOfTheLog: a merge that a device has not sent stands on one of two heads
// of the log and on a commit that a cut gives up. The two heads are merged first: nothing says that
// the other head stands on that commit too.
func TestFoldBeginsWithTheHeadsOfTheLog(t *testing.T) {
	ctx := t.Context()
	w := newFleet(t, 5, 2)
	a, b := w.devices[0], w.devices[1]
	commits := func(d *member, v string) *commit.Commit {
		return d.commit(puts{d.name: {content: []byte(v)}}, d.store.NewestHead())
	}
	appends := func(d *member) {
		body, err := d.body(ctx)
		w.must(err)
		_, err = d.log.Append(ctx, body)
		w.must(err)
	}
	reads := func(d *member) {
		_, err := d.log.CatchUp(ctx)
		w.must(err)
	}
	a.commit(puts{"a": {content: []byte("1")}})
	w.must(a.sync(ctx))
	w.must(b.sync(ctx))
	a.retain = &wire.Retention{Last: 1}
	appends(a)
	reads(b)
	mine := commits(b, "2")
	given := commits(a, "3")
	appends(a)
	reads(b)
	appends(b)
	b.merge(given, mine)
	theirs := commits(a, "4")
	reads(a)
	appends(a)
	w.must(a.log.Cut(ctx))
	reads(b)

	first, err := b.page.Folding(ctx)
	var ids []commit.ID
	for _, c := range first {
		ids = append(ids, c.ID)
	}
	if err != nil || !slices.Equal(setOf(ids), setOf([]commit.ID{mine.ID, theirs.ID})) {
		t.Fatalf("%v are merged first, %v", ids, err)
	}
	if ok, err := b.fold(ctx); err != nil || !ok {
		t.Fatal(ok, err)
	}
	st, err := replica.StandingOf(ctx, b.store)
	w.must(err)
	h := b.store.Heads()
	r, err := merge.Relate(ctx, st.Over(b.store, b.store), h[0], h[1])
	if err != nil || len(h) != 2 || len(r.Bases) != 2 || !slices.ContainsFunc(r.Bases, func(c *commit.Commit) bool { return c.ID == given.ID }) {
		t.Fatalf("%d heads with bases %v, want %s: %v", len(h), r.Bases, given.ID.Short(), err)
	}
	for _, d := range []*member{b, a, b} {
		w.must(d.sync(ctx))
	}
	w.check()
}
