package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// TestHistoryThatWasGivenUp asks a page with a shallow history for what is left, and for what is
// not.
func TestHistoryThatWasGivenUp(t *testing.T) {
	ctx := t.Context()
	r := open(t, "", &ledger.Options{InMemory: true})
	p := page(t, r, "notes", "inbox")
	var ids []ledger.CommitID
	for _, v := range []string{"1", "2", "3", "4", "5"} {
		kv := []string{"n", v}
		if v == "3" {
			kv = append(kv, "color", "red")
		}
		ids = append(ids, put(t, p, kv...))
	}
	must(t, p.Tag(ctx, "release", ids[0]))
	if _, err := admin.Collect(ctx, r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 2}}); err != nil {
		t.Fatal(err)
	}
	var log []ledger.CommitID
	for c, err := range p.Log(ctx) {
		must(t, err)
		log = append(log, c.ID)
	}
	if len(log) != 2 || log[0] != ids[4] || log[1] != ids[3] {
		t.Errorf("log %v", log)
	}
	for rev, want := range map[string]error{"HEAD~1": nil, "release": nil, "HEAD~2": ledger.ErrGone, ids[1].String(): ledger.ErrNotFound} {
		if _, err := p.Resolve(ctx, rev); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v", rev, err)
		}
	}
	n := 0
	for c, err := range p.Diff(ctx, ids[0], ledger.CommitID{}, nil) { // the tag's content is there, whatever is between
		must(t, err)
		n += len(c.Key)
	}
	if n != len("n")+len("color") {
		t.Errorf("the difference has keys of %d bytes", n)
	}
	follower := newFollower(t, p, ledger.WatchOptions{From: ledger.FirstCommit()}, nil)
	defer follower.stop()
	if told := follower.take(); told.Commit.ID != ids[4] || !maps.Equal(follower.content, map[string]string{"n": "5", "color": "red"}) {
		t.Errorf("a watch from the first commit on tells %v", follower.content)
	}
	_, err := p.Undo(ctx, ids[3], nil)
	if wantErr(t, err, ledger.ErrGone); !strings.Contains(err.Error(), "was given up") {
		t.Error(err)
	}
	_, err = p.Undo(ctx, ids[0], &ledger.UndoOptions{})
	if wantErr(t, err, ledger.ErrGone); !strings.Contains(err.Error(), "was given up") {
		t.Error(err)
	}
	if u, err := p.Undo(ctx, ids[4], nil); err != nil || u.Changed != 1 {
		t.Errorf("undo of the newest: %+v, %v", u, err)
	}
	steps := 0
	for s, err := range p.Why(ctx, ledger.CommitID{}, []byte("color")) {
		must(t, err)
		if steps++; !s.Pruned || s.Commit.ID != ids[3] || s.Entry == nil {
			t.Errorf("why: %+v", s)
		}
	}
	if steps != 1 {
		t.Errorf("why gives %d steps", steps)
	}
	for _, err := range p.Watch(ctx, &ledger.WatchOptions{From: ids[1]}) {
		wantErr(t, err, ledger.ErrGone)
		break
	}
	checkClean(t, r)
}

// TestRetentionOfTheBucket sets the retention on one device: it gives up what that does at once,
// the other with its next sync, and what only one has not sent stays.
func TestRetentionOfTheBucket(t *testing.T) {
	ctx := t.Context()
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	pa := page(t, a, "notes", "inbox")
	for i := range 10 {
		put(t, pa, "n", string(key(i)))
	}
	syncAll(t, a, b)
	pb := page(t, b, "notes", "inbox")
	put(t, pa, "m", "1")
	syncAll(t, a, b)
	length := func(p *ledger.Page) (n int) {
		for _, err := range p.Log(ctx) {
			must(t, err)
			n++
		}
		return n
	}
	last := admin.CollectOptions{Retention: &admin.Retention{Commits: 1}}
	dry := last
	dry.DryRun = true
	got, err := admin.Collect(ctx, a, &dry)
	must(t, err)
	if got[0].Pruned < 9 || !got[0].InBucket || length(pa) != 12 {
		t.Errorf("dry run: %+v, %d commits", got[0], length(pa))
	}
	w.offline(true)
	_, err = admin.Collect(ctx, a, &last)
	wantErr(t, err, ledger.ErrNetwork)
	w.offline(false)
	got, err = admin.Collect(ctx, a, &last)
	must(t, err)
	if got[0].Pruned < 9 || !got[0].InBucket || length(pa) > 3 {
		t.Errorf("%+v, %d commits", got[0], length(pa))
	}
	put(t, pb, "own", "1")
	put(t, pb, "own", "2")
	w.offline(true)
	got, err = admin.Collect(ctx, b, nil)
	must(t, err)
	if got[0].Pruned != 0 || length(pb) < 14 {
		t.Errorf("before it has come: %+v, %d commits", got[0], length(pb))
	}
	w.offline(false)
	put(t, pb, "own", "3")
	must(t, errorOf(b.Sync(ctx)))
	if length(pb) > 8 {
		t.Errorf("%d commits", length(pb))
	}
	syncAll(t, b, a)
	wantContent(t, pa, map[string]string{"n": string(key(9)), "m": "1", "own": "3"})
	reports, err := admin.CollectCloud(ctx, a, nil)
	must(t, err)
	if len(reports) != 1 || reports[0].Commits == 0 || !reports[0].Cut || reports[0].WaitingObjects == 0 {
		t.Errorf("%+v", reports)
	}
	syncAll(t, a, b)
	wantContent(t, pb, map[string]string{"n": string(key(9)), "m": "1", "own": "3"})
	c := w.device(w.options())
	syncAll(t, c)
	pc := page(t, c, "notes", "inbox")
	wantContent(t, pc, map[string]string{"n": string(key(9)), "m": "1", "own": "3"})
	put(t, pc, "c", "1")
	syncAll(t, c, a, b)
	wantContent(t, pa, map[string]string{"n": string(key(9)), "m": "1", "own": "3", "c": "1"})
	for _, r := range []*ledger.Repository{a, b, c} {
		checkClean(t, r)
	}
}

// TestDeletePageEverywhere deletes a page for all devices, and then one that is not here; the
// bucket is emptied by a device that has it no more.
func TestDeletePageEverywhere(t *testing.T) {
	ctx := t.Context()
	w := newCloudWorld(t)
	now := w.stopped()
	a, b := w.device(w.options()), w.device(w.options())
	refs := map[string]ledger.PageRef{}
	for _, name := range []string{"one", "two"} {
		refs[name] = evictable(t, a, "l", name, "k", "v")
	}
	syncAll(t, a, b)
	everywhere := ledger.DeleteOptions{Everywhere: true}
	p := page(t, a, "l", "one")
	put(t, p, "k", "only here")
	closeIt(t, p)
	_, err := a.DeletePage(ctx, refs["one"], &everywhere)
	wantErr(t, err, ledger.ErrConflict)
	must(t, errorOf(a.Sync(ctx)))
	w.offline(true)
	_, err = a.DeletePage(ctx, refs["one"], &everywhere)
	wantErr(t, err, ledger.ErrNetwork)
	w.offline(false)
	d, err := a.DeletePage(ctx, refs["one"], &everywhere)
	must(t, err)
	if !d.Everywhere || d.InCloud || d.Bytes == 0 {
		t.Errorf("%+v", d)
	}
	if d, err = a.DeletePage(ctx, refs["one"], &everywhere); err != nil || !d.Everywhere {
		t.Errorf("once more: %+v, %v", d, err)
	}
	_, err = a.DeletePage(ctx, ledger.PageRef{Ledger: "l", ID: ledger.PageID{7}}, &everywhere)
	wantErr(t, err, ledger.ErrNotFound)
	done, err := a.Sync(ctx)
	must(t, err)
	if len(done) != 1 {
		t.Errorf("%d pages are synced", len(done))
	}
	c := w.device(w.options())
	d, err = c.DeletePage(ctx, refs["two"], &everywhere) // it never was there
	must(t, err)
	if !d.Everywhere || d.Name != "two" {
		t.Errorf("%+v", d)
	}
	if names := namesHere(t, b); len(names) != 2 {
		t.Errorf("the other device has %v", names)
	}
	_, err = a.DeletePage(ctx, refs["two"], &ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	wantErr(t, errorOf(b.Sync(ctx, refs["one"])), ledger.ErrDeleted)
	objects := len(w.bucket.Names())
	reports, err := admin.CollectCloud(ctx, a, nil)
	if err != nil || len(w.bucket.Names()) != objects {
		t.Errorf("%+v, %v", reports, err)
	}
	now.Advance(31 * 24 * time.Hour)
	if _, err = admin.CollectCloud(ctx, a, nil); err != nil {
		t.Error(err)
	}
	for _, n := range w.bucket.Names() {
		if strings.Contains(n, "/log/") || strings.Contains(n, "/packs/") {
			t.Errorf("the bucket has %s", n)
		}
	}
	if len(w.bucket.Names()) >= objects {
		t.Error("nothing was deleted")
	}
}

// TestConflictsAfterHistoryWasGivenUp lists the decision of a merge whose parents are no longer
// there: the value that was taken is known, the one that lost is not.
func TestConflictsAfterHistoryWasGivenUp(t *testing.T) {
	p := manualPage(t)
	base := put(t, p, "color", "red")
	a := putOn(t, p, base, "color", "blue")
	putOn(t, p, base, "color", "green")
	merged := mergeAll(t, p)
	put(t, p, "n", "1")
	_, err := admin.Collect(t.Context(), p.Repository(), &admin.CollectOptions{Retention: &admin.Retention{Commits: 2}})
	must(t, err)
	_, err = p.Commit(t.Context(), a)
	wantErr(t, err, ledger.ErrGone)
	all := decisions(t, p, merged)
	if len(all) != 1 {
		t.Fatalf("decisions %+v", all)
	}
	d := all[0]
	if !d.Pruned || d.Outcome != "right" || d.LeftWriter != a || d.Left != nil || valueOf(t, d.Right) != "green" || valueOf(t, d.Result) != "green" {
		t.Errorf("decision %+v", d)
	}
}

// TestHistoryIsGivenUpWhileMerging has a resolver run while another caller gives history up. The
// merge begins again, with what is left of the history.
func TestHistoryIsGivenUpWhileMerging(t *testing.T) {
	var r *ledger.Repository
	asked := 0
	resolve := func(_ context.Context, c *ledger.MergeConflict) (ledger.Resolution, error) {
		if asked++; asked == 1 {
			pages, err := admin.Collect(t.Context(), r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}})
			if err != nil || pages[0].Pruned == 0 {
				t.Errorf("collect: %+v, %v", pages, err)
			}
		}
		return ledger.Resolution{Take: ledger.TakeRight}, nil
	}
	p := memoryPage(t, ledger.Options{ManualMerge: true, MergeRules: func(string, ledger.PageID) []ledger.MergeRule {
		return []ledger.MergeRule{{Strategy: ledger.Automatic(resolve)}}
	}})
	r = p.Repository()
	base := put(t, p, "k", "0")
	for i := range 5 {
		base = put(t, p, "k", fmt.Sprint(i))
	}
	sibling(t, p, base, "k", "a")
	sibling(t, p, base, "k", "b")
	results, err := p.Merge(t.Context())
	must(t, err)
	if len(results) != 1 || asked != 2 {
		t.Errorf("%d merges, asked %d times", len(results), asked)
	}
	oneHead(t, p)
	checkClean(t, r)
}
