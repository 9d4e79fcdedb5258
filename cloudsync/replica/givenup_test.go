package replica_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/split"
)

// TestMergeWithGivenUpBase: a device comes back with commits on a commit that was given up. It
// merges them with that commit as the base, and sends nothing before. Then it prunes the commit. A
// cut waits until the log has one head.
func TestMergeWithGivenUpBase(t *testing.T) {
	ctx := t.Context()
	w, a, b := twoInSync(t)
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
	if body, err := b.page.Next(ctx, b.log.Append); body != nil || len(h) != 2 || !errors.Is(err, replica.ErrWaits) {
		t.Errorf("%d heads, which have to be merged: sends %v before the merge, %v", len(h), body, err)
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

// TestEqualMergesBesideASnapshot: of two devices with equal heads, one still has a given-up commit,
// since a snapshot stands on it. Both make the same merge.
func TestEqualMergesBesideASnapshot(t *testing.T) {
	ctx := t.Context()
	w := newFleet(t, 4, 3)
	a, b, c := w.devices[0], w.devices[1], w.devices[2]
	a.commit(puts{"a": {content: []byte("1")}})
	w.must(a.store.SetTag(ctx, "v1", a.store.NewestHead().ID))
	for _, d := range w.devices[:3] {
		w.must(d.sync(ctx))
	}
	w.clock.Advance(time.Minute)
	a.commit(puts{"q": {content: []byte("given up")}})
	w.must(a.sync(ctx))
	w.must(b.sync(ctx))
	defer b.store.Pin(b.store.NewestHead().ID)()
	w.clock.Advance(time.Minute)
	c.commit(puts{"q": {content: []byte("later")}})
	w.clock.Advance(time.Minute)
	a.retain = &wire.Retention{Last: 1}
	a.commit(puts{"z": {content: []byte("head")}})
	w.must(a.sync(ctx))
	w.must(a.log.Cut(ctx))
	_, err := a.page.Prune(ctx)
	w.must(err)
	w.must(b.sync(ctx))
	_, err = c.log.CatchUp(ctx)
	w.must(err)
	body, err := c.body(ctx)
	w.must(err)
	_, err = c.log.Append(ctx, body)
	w.must(err)
	var merges []commit.ID
	for _, d := range []*member{a, b} {
		_, err = d.log.CatchUp(ctx)
		w.must(err)
		merges = append(merges, d.mergeAll().ID)
	}
	if merges[0] != merges[1] || len(a.page.State().GiveUp) != 0 || len(b.page.State().GiveUp) != 1 {
		t.Errorf("merges %v, with %d and %d given-up commits", merges, len(a.page.State().GiveUp), len(b.page.State().GiveUp))
	}
}

// mergeAll makes the merge of the heads as a page does, and discards it.
func (d *member) mergeAll() *commit.Commit {
	ctx := d.t.Context()
	st, err := replica.StandingOf(ctx, d.store)
	d.must(err)
	j := d.store.NewJournal()
	defer j.Rollback()
	env := &merge.Env{
		View: merge.View{
			Page: fleetPage, Commits: st.Over(d.store, d.store),
			Tree: func(c *commit.Commit) btree.Tree { return btree.Tree{Page: fleetPage, Source: j, Root: c.Root} },
		},
		Sink: j, Pieces: j, Table: split.DefaultTable(),
	}
	merged, err := merge.Heads(ctx, env, merge.Rules{}, d.store.Heads())
	d.must(err)
	return merged[0].Commit
}

// TestPruneWhileATransactionEnds: the commit of a transaction keeps its base, also if the
// transaction ends while Prune looks.
func TestPruneWhileATransactionEnds(t *testing.T) {
	ctx := t.Context()
	w, a, b := twoInSync(t)
	on := b.store.NewestHead()
	release := b.store.Pin(on.ID)
	a.retain = &wire.Retention{Last: 1}
	a.commit(puts{"b": {content: []byte("2")}})
	w.must(a.sync(ctx))
	w.must(a.log.Cut(ctx))
	_, err := b.log.CatchUp(ctx)
	w.must(err)
	p, err := replica.Open(ctx, replica.Options{
		Store: b.store, Bucket: b.bucket, Sealer: b.sealer, Names: b.names, NewID: w.id,
		InUse: func() []commit.ID {
			b.commit(puts{"c": {content: []byte("3")}}, on)
			release()
			return nil
		},
	})
	w.must(err)
	if n, err := p.Prune(ctx); err != nil || n != 0 {
		t.Errorf("pruned %d, %v", n, err)
	}
	st, err := replica.StandingOf(ctx, b.store)
	w.must(err)
	h := b.store.Heads()
	if r, err := merge.Relate(ctx, st.Over(b.store, b.store), h[0], h[1]); err != nil || r.Bases[0].ID != on.ID {
		t.Errorf("bases %v, want %s, %v", r.Bases, on.ID.Short(), err)
	}
}

// TestTreeOfACommitOnAGivenUpBase: the difference of such a commit leads from a head of the log, as
// its parent is not there. A cut that keeps the commit lets it lead from a lesser generation, so
// that a new device builds the trees in the order of the checkpoint.
func TestTreeOfACommitOnAGivenUpBase(t *testing.T) {
	ctx := t.Context()
	w, a, b := twoInSync(t)
	long := puts{}
	for i := range 2000 {
		long[fmt.Sprintf("k%04d", i)] = &value{content: w.noise(100)}
	}
	mine := b.commit(long)
	a.retain = &wire.Retention{Last: 1}
	for i := range 3 {
		a.commit(puts{"a": {content: fmt.Append(nil, i)}})
	}
	w.must(a.sync(ctx))
	w.must(a.log.Cut(ctx))
	w.must(a.store.SetTag(ctx, "top", a.commit(puts{"a": {content: []byte("top")}}).ID))
	w.must(a.sync(ctx))
	w.must(b.store.SetTag(ctx, "mine", mine.ID))
	w.must(b.sync(ctx))
	w.must(a.sync(ctx))
	w.must(a.log.Cut(ctx))
	c := w.device(false)
	w.must(c.sync(ctx))
	w.must(c.page.BuildTrees(ctx, []commit.ID{mine.ID}))
	if got, want := c.content(mine), b.content(mine); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
}

// TestEnterWithoutGivingUp: a device enters a cut that gives nothing up, with what it has not sent:
// a commit and a tag on a commit below the head.
func TestEnterWithoutGivingUp(t *testing.T) {
	ctx := t.Context()
	w, a, b := twoInSync(t)
	old := a.store.NewestHead()
	w.must(a.store.SetTag(ctx, "theirs", old.ID))
	for i := range 3 {
		a.commit(puts{"a": {content: fmt.Append(nil, i)}})
		w.must(a.sync(ctx))
	}
	_, err := b.log.CatchUp(ctx)
	w.must(err)
	top := b.store.NewestHead()
	mine := b.commit(puts{"b": {content: []byte("2")}}, old)
	w.must(b.store.SetTag(ctx, "mine", old.ID))
	w.must(a.log.Cut(ctx))
	_, err = b.log.CatchUp(ctx)
	w.must(err)
	if got, want := b.page.Position(), a.page.Position(); got != want {
		t.Fatalf("position %+v, want %+v", got, want)
	}
	unsynced, err := b.store.Unsynced(ctx)
	w.must(err)
	tags, err := b.store.Tags(ctx)
	w.must(err)
	own, err := b.store.UnsyncedTags(ctx)
	w.must(err)
	if len(unsynced) != 1 || unsynced[0] != mine.ID || len(own) != 1 || tags["mine"] != old.ID || tags["theirs"] != old.ID {
		t.Errorf("unsynced %v, tags %v, unsynced tags %v", unsynced, tags, own)
	}
	heads, err := b.page.HeadsOfLog(ctx)
	w.must(err)
	if from := b.page.State().From; len(heads) != 1 || heads[0].ID != top.ID || len(from) != 1 || len(b.store.Heads()) != 2 {
		t.Errorf("heads %v, of the log %v, of the checkpoint %v", b.store.Heads(), heads, from)
	}
	for _, d := range []*member{b, a, b} {
		w.must(d.sync(ctx))
	}
	w.check()
}
