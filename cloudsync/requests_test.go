package cloudsync_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// steady brings two devices to rest, with a few entries behind them.
func steady(t *testing.T, w *world) (a, b *page) {
	a, b = w.device(), w.device()
	for i := range 3 {
		a.commit(edit{key(i): text("x")})
		sync(t, a, b)
	}
	return a, b
}

func TestSmallCommitCostsOnePut(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 40 {
		a.commit(edit{key(i): text("value")})
		got := a.counts(func() { sync(t, a) })
		if got.A != 1 || got.B != 0 || got.Free != 0 || got.Up > 1500 {
			t.Fatalf("commit %d cost %+v", i, got)
		}
		// A reader: the entry, and one that finds nothing.
		if got := b.counts(func() { sync(t, b) }); got.A != 0 || got.B != 2 {
			t.Fatalf("reading commit %d cost %+v", i, got)
		}
	}
}

func TestIdlePageCostsOneGetAPoll(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for _, p := range []*page{a, b} {
		sync(t, p)
		if got := p.counts(func() { sync(t, p, p, p) }); got != (bucket.Counts{B: 3}) {
			t.Errorf("three looks cost %+v", got)
		}
	}
}

func TestEmptyPageAsksLittle(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	got := a.counts(func() { sync(t, a) })
	if got.A > 2 || got.B > 9 || got.Up != 0 { // one of them looks for the next ring of the keyring
		t.Errorf("the first sync of a page with nothing cost %+v", got)
	}
	if got := a.counts(func() { sync(t, a, a) }); got != (bucket.Counts{B: 2}) {
		t.Errorf("two more cost %+v", got)
	}
	if names := w.b.Names(); len(names) != 1 {
		t.Errorf("a page with nothing left %q", names)
	}
}

func TestPollSlowsDownAndSpeedsUp(t *testing.T) { bubble(t, testPollSlowsDownAndSpeedsUp) }

func testPollSlowsDownAndSpeedsUp(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	w.eventually("the first upload", 0, func() bool { return a.State().Position == 1 }, a.d)
	looks := func(d time.Duration) int64 {
		before := a.d.m.Counts()
		for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
			at := w.clock.Now()
			w.eventually("a rest", 0, func() bool { return w.clock.Timers() > 0 }, a.d)
			w.clock.Advance(time.Second)
			_ = at
		}
		after := a.d.m.Counts()
		if after.A != before.A {
			t.Errorf("%d puts and lists while nothing happened", after.A-before.A)
		}
		return after.B - before.B
	}
	if n := looks(10 * time.Second); n < 2 || n > 5 {
		t.Errorf("%d looks in the ten seconds after a commit", n)
	}
	looks(10 * time.Minute)
	if n := looks(30 * time.Minute); n < 4 || n > 9 {
		t.Errorf("%d looks in half an hour of peace", n)
	}
	a.commit(edit{"k": text("w")})
	w.eventually("the second upload", 0, func() bool { return a.State().Position == 2 }, a.d)
	if n := looks(10 * time.Second); n < 2 || n > 5 {
		t.Errorf("%d looks in the ten seconds after a commit", n)
	}
}

func TestNamesShowNothing(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, n := range w.b.Names() {
		if strings.Contains(n, "notes") {
			t.Errorf("name %q", n)
		}
		if strings.HasPrefix(n, "pages/") {
			pages++
		}
	}
	if pages != 1 {
		t.Errorf("%d announcements", pages)
	}
}
