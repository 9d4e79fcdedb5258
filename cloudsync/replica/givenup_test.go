package replica_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/merge"
)

// TestMergeWithGivenUpBase: a device that comes back with commits on what was given up meanwhile
// merges them with the true base, and sends nothing before. Then it gives up what the others have
// given up. A cut waits until the log has one head.
func TestMergeWithGivenUpBase(t *testing.T) {
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
	top := a.store.NewestHead()
	a.commit(puts{"x": {content: []byte("x")}}, top)
	a.commit(puts{"y": {content: []byte("y")}}, top)
	body, err := a.body(ctx)
	w.must(err)
	_, err = a.log.Append(ctx, body)
	w.must(err)
	if err := a.log.Cut(ctx); !errors.Is(err, replica.ErrHeads) {
		t.Fatalf("a cut while the log has two heads: %v", err)
	}
	w.must(a.sync(ctx))
	w.must(a.log.Cut(ctx))
	if _, err := b.log.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.page.Prune(ctx); err != nil {
		t.Fatal(err)
	}
	h := b.store.Heads()
	if waits, err := b.page.Waits(ctx); err != nil || len(h) != 2 || !waits {
		t.Fatalf("%d heads, which have to be merged: %t, %v", len(h), waits, err)
	}
	if body, err := b.body(ctx); body != nil || err != nil {
		t.Errorf("sends %v before the merge, %v", body, err)
	}
	st, err := replica.StandingOf(ctx, b.store)
	w.must(err)
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
}
