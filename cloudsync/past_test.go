package cloudsync_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
)

// TestWhatRetentionGaveUpIsNotSentAgain has a device with all of the history upload anew to a
// bucket that has given up most of it: nothing goes up, also what is tagged meanwhile, and what was
// deleted stays deleted.
func TestWhatRetentionGaveUpIsNotSentAgain(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	first := a.commit(edit{"deleted": text("x")})
	for i := range 8 {
		a.commit(edit{key(i): text("x")})
	}
	a.commit(edit{"deleted": nil})
	a.commit(edit{"last": text("x")})
	sync(t, a, b)
	keepLast(t, b, 1)
	sync(t, a)
	a.reopen() // says how far it is
	a = a.d.pages["notes"]
	w.clock.Advance(24 * time.Hour)
	collectBucket(t, b, cloudsync.GCOptions{})
	if n := b.history(); n > 3 {
		t.Fatalf("%d commits are left", n)
	}
	if err := a.store.SetTag(t.Context(), "v1", first.ID); err != nil {
		t.Fatal(err)
	}
	before := len(w.entryNames(""))
	if _, err := a.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(w.entryNames("")) - before; n > 2 {
		t.Errorf("%d entries went up", n)
	}
	if ids, err := a.store.Unsynced(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("%d commits are unsynced, %v", len(ids), err)
	}
	c := w.device()
	sync(t, b, c, a)
	sameHeads(t, a, b, c)
	for i, p := range []*page{a, b, c} {
		if heads := p.store.Heads(); len(heads) != 1 {
			t.Errorf("device %d has %d heads", i, len(heads))
		}
		if _, there := p.content()["deleted"]; there {
			t.Errorf("device %d has what was deleted", i)
		}
	}
	if tags, err := c.store.Tags(t.Context()); err != nil || len(tags) > 0 {
		t.Errorf("a new device has the tags %v, %v", tags, err)
	}
	if all, err := c.store.FindCommits(t.Context(), nil, false, 100); err != nil || len(all) > 4 {
		t.Errorf("a new device has %d commits, %v", len(all), err)
	}
}

// TestABucketIsPutBackToWhatWasGivenUp rolls a bucket back to a commit that one device has given up
// since. That device uploads anew: nobody gets back what was deleted meanwhile.
func TestABucketIsPutBackToWhatWasGivenUp(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"deleted": text("x"), "kept": text("1")})
	sync(t, a, b)
	old := w.b.State()
	a.commit(edit{"deleted": nil})
	for i := range 4 {
		a.commit(edit{"kept": text(key(i))})
	}
	keepLast(t, a, 1)
	sync(t, a, b)
	collectBucket(t, b, cloudsync.GCOptions{})
	if n := b.history(); n > 3 {
		t.Fatalf("%d commits are left", n)
	}
	w.b.Rollback(old)
	b.reopen()
	b = b.d.pages["notes"]
	if _, err := b.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.device()
	sync(t, c)
	a.reopen()
	a = a.d.pages["notes"]
	if _, err := a.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, b, c, a)
	sameHeads(t, a, b, c)
	for i, p := range []*page{a, b, c} {
		if heads, content := p.store.Heads(), p.content(); len(heads) != 1 || content["deleted"] != "" || content["kept"] != key(3) {
			t.Errorf("device %d has %d heads, and %v", i, len(heads), content)
		}
	}
}
