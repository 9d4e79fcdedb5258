package cloudsync_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// rest waits until the background of all devices waits for the clock.
func (w *world) rest(ds ...*device) {
	w.t.Helper()
	w.eventually("a rest", 0, func() bool { return w.clock.Timers() >= len(ds) }, ds...)
}

func TestDevicesSyncByThemselves(t *testing.T) { bubble(t, testDevicesSyncByThemselves) }

func testDevicesSyncByThemselves(t *testing.T) {
	w := liveWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"one": text("A")})
	b.commit(edit{"two": text("B")})
	w.eventually("one head on both", 100*time.Millisecond, func() bool {
		for _, p := range []*page{a, b} {
			if len(p.store.Heads()) > 1 {
				if err := p.merge(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		st, tt := a.State(), b.State()
		return st.Unsynced == 0 && tt.Unsynced == 0 && len(a.content()) == 2 && a.store.NewestHead().ID == b.store.NewestHead().ID
	}, a.d, b.d)
	sameHeads(t, a, b)
	if a.State().ServerTime.IsZero() || a.State().Position < 3 {
		t.Errorf("state %+v", a.State())
	}
}

func TestStatesFollowWhatHappens(t *testing.T) { bubble(t, testStatesFollowWhatHappens) }

func testStatesFollowWhatHappens(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	w.rest(a.d)
	if st := a.State(); st.Upload != cloudsync.Idle || st.Download != cloudsync.Idle || st.LastSuccess.IsZero() {
		t.Errorf("at rest: %+v", st)
	}
	var seen []cloudsync.Activity
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpPut {
			seen = append(seen, a.State().Upload)
			return fs.ErrPermission
		}
		return nil
	})
	a.commit(edit{"k": text("v")})
	w.eventually("trouble", 0, func() bool { return a.State().Upload == cloudsync.NeedsUser }, a.d)
	if !slices.Equal(seen, []cloudsync.Activity{cloudsync.InProgress}) {
		t.Errorf("during the put: %v", seen)
	}
	w.rest(a.d)
	w.clock.Advance(20 * time.Minute) // looks go on, puts do not
	w.rest(a.d)
	if len(seen) != 1 {
		t.Errorf("%d puts within half an hour", len(seen))
	}
	w.b.SetBefore(nil)
	a.d.s.Resume() // the user has mended it
	w.eventually("success", 0, func() bool { st := a.State(); return st.Upload == cloudsync.Idle && st.Unsynced == 0 }, a.d)
	for _, x := range []cloudsync.Activity{cloudsync.Idle, cloudsync.Pending, cloudsync.InProgress, cloudsync.Failing, cloudsync.NeedsUser, 9} {
		if x.String() == "" {
			t.Errorf("activity %d has no name", x)
		}
	}
}

func TestBackgroundTriesForEver(t *testing.T) { bubble(t, testBackgroundTriesForEver) }

func testBackgroundTriesForEver(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	w.rest(a.d)
	var requests atomic.Int64
	w.b.SetBefore(func(bucket.Op, string) error { requests.Add(1); return errNet })
	a.commit(edit{"k": text("v")})
	w.eventually("a failure", time.Second, func() bool { return a.State().Upload == cloudsync.Failing }, a.d)
	if st := a.State(); !errors.Is(st.UploadErr, base.ErrNetwork) {
		t.Errorf("state %+v", st)
	}
	for range 120 { // two hours
		w.rest(a.d)
		w.clock.Advance(time.Minute)
	}
	if n := requests.Load(); n < 20 || n > 600 {
		t.Errorf("%d requests in two hours without a network", n)
	}
	w.b.SetBefore(nil)
	w.eventually("success", 10*time.Second, func() bool { return a.State().Unsynced == 0 && a.State().Download == cloudsync.Idle }, a.d)
}

// TestStateOfWhoLeftEnds has a caller leave while it is looked whether the bucket is the right one:
// it is not known then whether there is anything to send, and the background finds out.
func TestStateOfWhoLeftEnds(t *testing.T) { bubble(t, testStateOfWhoLeftEnds) }

func testStateOfWhoLeftEnds(t *testing.T) {
	w := liveWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	var looked atomic.Int64 // when it was looked whether the bucket is the right one
	var leaves atomic.Bool
	w.b.SetBefore(func(_ bucket.Op, name string) error {
		if !strings.HasPrefix(name, wire.KeysPrefix) {
			return nil
		}
		if looked.Store(w.clock.Now().UnixNano()); leaves.Load() {
			leave()
			return errNet
		}
		return nil
	})
	a := w.device()
	a.commit(edit{"k": text("v")})
	atRest := func() bool {
		st := a.State()
		return st.Unsynced == 0 && st.Upload == cloudsync.Idle && st.Download == cloudsync.Idle
	}
	sync(t, a)
	w.eventually("the upload", time.Second, atRest, a.d)
	for age := time.Duration(0); age < 6*time.Hour; age = w.clock.Now().Sub(time.Unix(0, looked.Load())) { // the background may be the first to look again
		w.clock.Advance(min(time.Minute, 6*time.Hour-age))
		w.rest(a.d)
	}
	leaves.Store(true)
	if err := a.Sync(ctx); err == nil {
		t.Fatal("the caller has not left")
	}
	if st := a.State(); st.Upload != cloudsync.Pending || st.UploadErr != nil {
		t.Errorf("state %+v", st)
	}
	leaves.Store(false)
	w.eventually("rest", time.Minute, atRest, a.d)
}

func TestPauseStopsTheBackgroundOnly(t *testing.T) { bubble(t, testPauseStopsTheBackgroundOnly) }

func testPauseStopsTheBackgroundOnly(t *testing.T) {
	w := liveWorld(t)
	w.o.Paused = true
	a := w.device()
	a.commit(edit{"k": text("v")})
	for range 10 {
		w.clock.Advance(time.Hour)
	}
	if got := a.d.m.Counts(); got != (bucket.Counts{}) {
		t.Errorf("%+v in pause", got)
	}
	if st := a.State(); !st.Paused || st.Upload != cloudsync.Pending || st.Unsynced != 1 {
		t.Errorf("state %+v", st)
	}
	sync(t, a) // works all the same
	if st := a.State(); !st.Paused || st.Unsynced != 0 {
		t.Errorf("state %+v", st)
	}
	a.commit(edit{"k": text("w")})
	changed := a.d.s.Changed()
	a.d.s.Resume()
	<-changed
	w.eventually("the upload", 0, func() bool { return a.State().Unsynced == 0 }, a.d)
	w.rest(a.d)

	// A pause ends what is going on, and that is no failure.
	entered, release := make(chan struct{}), make(chan struct{})
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpPut {
			close(entered)
			<-release
			return errNet
		}
		return nil
	})
	a.commit(edit{"k": text("x")})
	<-entered
	a.d.s.Pause()
	w.b.SetBefore(nil)
	close(release)
	w.eventually("the end of the round", 0, func() bool { return a.State().Upload == cloudsync.Pending }, a.d)
	if st := a.State(); st.UploadErr != nil {
		t.Errorf("state %+v", st)
	}
	a.d.s.Resume()
	w.eventually("the upload", time.Second, func() bool { return a.State().Unsynced == 0 }, a.d)
}

func TestWaitSynced(t *testing.T) { bubble(t, testWaitSynced) }

func testWaitSynced(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	c := a.commit(edit{"k": text("v")})
	if err := a.WaitSynced(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if ids, err := a.store.Unsynced(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("%d unsynced, %v", len(ids), err)
	}
	if err := a.WaitSynced(t.Context(), commit.ID{1}); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("an unknown commit: %v", err)
	}
	w.rest(a.d)
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpPut {
			return fs.ErrPermission
		}
		return nil
	})
	c = a.commit(edit{"k": text("w")})
	if err := a.WaitSynced(t.Context(), c.ID); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without rights: %v", err)
	}
	if err := a.WaitSynced(t.Context(), c.ID); !errors.Is(err, fs.ErrPermission) { // a new attempt
		t.Errorf("without rights: %v", err)
	}
	a.d.s.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.WaitSynced(ctx, c.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	w.b.SetBefore(nil)
	done := make(chan error, 1)
	go func() { done <- a.WaitSynced(t.Context(), c.ID) }()
	a.d.s.Resume()
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
}

func TestSyncsAtOnceShareARound(t *testing.T) { bubble(t, testSyncsAtOnceShareARound) }

func testSyncsAtOnceShareARound(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	release := make(chan struct{})
	first := true
	w.b.SetBefore(func(bucket.Op, string) error {
		if first {
			first = false
			<-release
		}
		return nil
	})
	const callers = 20
	done := make(chan error, callers+1)
	before := a.d.m.Counts()
	for range callers + 1 {
		go func() { done <- a.Sync(t.Context()) }()
		synctest.Wait() // until it waits for the bucket, or for the first
	}
	close(release)
	for range callers + 1 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := a.d.m.Counts().B - before.B; got != 2 {
		t.Errorf("%d gets for %d calls", got, callers+1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if st := a.State(); st.UploadErr != nil || st.DownloadErr != nil {
		t.Errorf("state %+v", st)
	}
}

func TestMergeThatFailsDoesNotStopUpload(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	mine := errors.New("resolver is out")
	a.Page.Close()
	a.Page = a.d.s.OpenPage(cloudsync.PageOptions{Store: a.store, Ledger: "notes", Merge: func(context.Context) error { return mine }})
	a.commit(edit{"a": text("1")})
	b.commit(edit{"b": text("2")})
	sync(t, b)
	if err := a.Sync(t.Context()); !errors.Is(err, mine) {
		t.Fatalf("sync: %v", err)
	}
	if n := len(a.store.Heads()); n != 2 {
		t.Errorf("%d heads", n)
	}
	if st := a.State(); st.Unsynced != 0 || st.UploadErr != nil {
		t.Errorf("state %+v", st)
	}
	sync(t, b, b)
	sameHeads(t, b)
	sync(t, a)
	sameHeads(t, a, b)
}

func TestClockThatJumpsStopsNothing(t *testing.T) { bubble(t, testClockThatJumpsStopsNothing) }

func testClockThatJumpsStopsNothing(t *testing.T) {
	w := liveWorld(t)
	a, b := w.device(), w.device()
	w.rest(a.d, b.d)
	for i, jump := range []time.Duration{-30 * 365 * 24 * time.Hour, 50 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour} {
		w.clock.Advance(jump)
		a.commit(edit{"k": text(key(i))})
		if err := a.WaitSynced(t.Context(), a.store.NewestHead().ID); err != nil {
			t.Fatal(err)
		}
		sync(t, b)
		sameHeads(t, a, b)
		w.clock.Advance(jump / 2)
		a.commit(edit{"k": text(key(i) + " again")})
		b.d.s.Resume() // timers of this clock do not know of the jump
		w.eventually("the other device", time.Second, func() bool { return b.store.NewestHead().ID == a.store.NewestHead().ID }, a.d, b.d)
	}
}

// TestStalledBucketIsTriedAgain has a bucket that answers nothing for a while: the background goes
// on by itself.
func TestStalledBucketIsTriedAgain(t *testing.T) { bubble(t, testStalledBucketIsTriedAgain) }

func testStalledBucketIsTriedAgain(t *testing.T) {
	w := liveWorld(t)
	w.o.Stall = time.Minute
	d := w.newDevice()
	hang, entered := make(chan struct{}), make(chan struct{}, 100)
	if err := d.s.Close(); err != nil {
		t.Fatal(err)
	}
	o := w.o
	o.Keyring, o.Key, o.Bucket = w.ring, d.key, &onceHanging{Bucket: w.b, h: hanging{w.b, hang, entered}}
	d.s = cloudsync.New(o)
	a := d.page("notes")
	a.commit(edit{"k": text("v")})
	<-entered
	w.eventually("the upload", time.Minute, func() bool { return a.State().Unsynced == 0 }, d)
}

// onceHanging is a bucket whose first get hangs.
type onceHanging struct {
	bucket.Bucket
	h    hanging
	once atomic.Bool
}

func (b *onceHanging) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if !b.once.Swap(true) {
		return b.h.Get(ctx, name, off, n)
	}
	return b.Bucket.Get(ctx, name, off, n)
}
