package cloudsync_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

// TestTroubleOfAnIdlePageEnds has an idle page meet trouble when it proves the bucket: both
// directions fail, and both are well when the trouble is over, though there is nothing to send.
func TestTroubleOfAnIdlePageEnds(t *testing.T) { bubble(t, testTroubleOfAnIdlePageEnds) }

func testTroubleOfAnIdlePageEnds(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	w.rest(a.d)
	w.b.SetBefore(func(bucket.Op, string) error { return errNet })
	w.clock.Advance(7 * time.Hour) // the proof is too old
	w.eventually("trouble", time.Second, func() bool { return a.State().Upload == cloudsync.Failing }, a.d)
	w.b.SetBefore(nil)
	w.eventually("the end of it", time.Minute, func() bool {
		st := a.State()
		return st.Upload == cloudsync.Idle && st.Download == cloudsync.Idle && st.UploadErr == nil && st.DownloadErr == nil
	}, a.d)
}

// TestReadingGoesOnWithoutRightsToWrite has a device that may not write learn of others' entries
// while it tries to append.
func TestReadingGoesOnWithoutRightsToWrite(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	b.commit(edit{"b": text("1")})
	sync(t, b)
	puts := 0
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if puts++; op == bucket.OpPut && strings.Contains(name, "/log/") && puts > 1 {
			return fs.ErrPermission // the first one is a race that is lost
		}
		return nil
	})
	a.commit(edit{"a": text("1")})
	if err := a.Sync(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if st := a.State(); st.Upload != cloudsync.NeedsUser || st.Download == cloudsync.NeedsUser || st.DownloadErr != nil || st.Position != 4 {
		t.Errorf("state %+v", st)
	}
}

// TestBackgroundRestsWhileAMergeIsAwaited brings a device back that the log has passed by, and
// whose heads nobody can merge: what it has to send waits, and so does the background.
func TestBackgroundRestsWhileAMergeIsAwaited(t *testing.T) {
	bubble(t, testBackgroundRestsWhileAMergeIsAwaited)
}

func testBackgroundRestsWhileAMergeIsAwaited(t *testing.T) {
	w := worldWith(t, mem.NewClock(start), true)
	a, b := steady(t, w)
	b.close()
	delete(b.d.pages, "notes")
	a.commit(edit{"more": text("x")})
	sync(t, a)
	w.clock.Advance(200 * 24 * time.Hour) // longer than anybody waits
	a.reopen()
	a = a.d.pages["notes"]
	keepLast(t, a, 1)
	collectBucket(t, a, cloudsync.GCOptions{})
	w.clock.Advance(31 * 24 * time.Hour)
	if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects == 0 {
		t.Fatal("nothing was deleted")
	}
	b = b.d.page("notes")
	b.commit(edit{"own": text("late")}) // before anything of a comes
	if err := errors.Join(b.Page.Close(), b.d.s.Close()); err != nil {
		t.Fatal(err)
	}
	w.o.Manual = false
	b.d.connect()
	b.Page = b.d.s.OpenPage(cloudsync.PageOptions{Store: b.store, Ledger: "notes", Merge: func(context.Context) error { return errors.New("the resolver is out") }})
	w.eventually("two heads", 0, func() bool { return len(b.store.Heads()) == 2 }, b.d)
	w.rest(b.d)
	if st := b.State(); st.Unsynced == 0 || st.Upload != cloudsync.Pending {
		t.Errorf("state %+v", st)
	}
	if err := b.merge(t.Context()); err != nil { // somebody can
		t.Fatal(err)
	}
	w.eventually("the upload", 0, func() bool { return b.State().Unsynced == 0 }, b.d)
	w.rest(b.d)
}

// TestSyncWithoutAMerge: Sync says that nothing is sent before heads are merged.
func TestSyncWithoutAMerge(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	b.commit(edit{"own": text("late")})
	keepLast(t, a, 1)
	for i := range 2 {
		a.commit(edit{"more": text(fmt.Sprint(i))})
		sync(t, a)
	}
	collectBucket(t, a, cloudsync.GCOptions{})
	if err := b.Page.Close(); err != nil {
		t.Fatal(err)
	}
	b.Page = b.d.s.OpenPage(cloudsync.PageOptions{Store: b.store, Ledger: "notes"})
	if err := b.Sync(t.Context()); !errors.Is(err, base.ErrConflict) || len(b.store.Heads()) != 2 {
		t.Errorf("%d heads: %v", len(b.store.Heads()), err)
	}
	if err := b.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, b, a)
	sameHeads(t, a, b)
}

// TestWhoLeavesTakesNoRequest has many callers leave while they wait for the limit of requests: who
// comes later does not wait for them.
func TestWhoLeavesTakesNoRequest(t *testing.T) { bubble(t, testWhoLeavesTakesNoRequest) }

func testWhoLeavesTakesNoRequest(t *testing.T) {
	w := worldWith(t, mem.NewClock(start), true)
	w.o.Limits = cloudsync.Limits{RequestsPerSecond: 1}
	d := w.newDevice()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := d.s.Announced(gone); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	w.clock.Advance(2 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // against a test that hangs
	defer cancel()
	if _, err := d.s.Announced(ctx); err != nil {
		t.Error(err)
	}
}

// TestManyFailuresLoseNoCommit has a page fail to send a commit more often than commits may go
// before pieces that wait.
func TestManyFailuresLoseNoCommit(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpPut {
			return fs.ErrPermission
		}
		return nil
	})
	for i := range 40 {
		if err := a.Sync(t.Context()); !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("sync %d without rights: %v", i, err)
		}
	}
	w.b.SetBefore(nil)
	sync(t, a)
	sameHeads(t, a)
}
