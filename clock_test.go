package ledger_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
)

const (
	day = 24 * time.Hour
	// lastClock is the latest time at which a commit can be made.
	lastClock = time.Duration(1<<62) - day
)

// handClock is a clock that is set by hand, in time since 1970.
type handClock struct{ ns atomic.Int64 }

func (c *handClock) set(d time.Duration) { c.ns.Store(int64(d)) }

func (c *handClock) now() time.Time { return time.Unix(0, c.ns.Load()) }

// clockDevice is a device with its clock and its open page.
type clockDevice struct {
	*ledger.Repository
	clock *handClock
	page  *ledger.Page
}

func newClockDevice(t testing.TB, w *cloudWorld) clockDevice {
	t.Helper()
	c := &handClock{}
	c.set(1000 * day)
	o := w.options()
	o.Now, o.Sync.Merge = c.now, true
	r := w.device(o)
	return clockDevice{r, c, page(t, r, "notes", "inbox")}
}

// TestClockOfTheFuture: what is written after a commit from the end of time stays possible on all
// devices, and the last one wins again.
func TestClockOfTheFuture(t *testing.T) {
	w := newCloudWorld(t)
	a, b, c := newClockDevice(t, w), newClockDevice(t, w), newClockDevice(t, w)
	syncBoth := func(ds ...clockDevice) {
		t.Helper()
		for range 2 {
			for _, d := range ds {
				must(t, errorOf(d.Sync(t.Context())))
			}
		}
	}
	want := func(v string) {
		t.Helper()
		for _, d := range []clockDevice{a, b, c} {
			wantContent(t, d.page, map[string]string{"k": v})
		}
	}
	put(t, b.page, "k", "before")
	syncBoth(b, a, c)
	a.clock.set(lastClock)
	put(t, a.page, "k", "future")
	put(t, b.page, "k", "beside it")
	syncBoth(a, b, c)
	want("future") // b had not received it

	for i, d := range []clockDevice{b, c, a} { // a has a right clock again
		a.clock.set(1000 * day)
		v := "after " + string(rune('0'+i))
		id := put(t, d.page, "k", v)
		commit, err := d.page.Commit(t.Context(), id)
		must(t, err)
		if ahead := commit.Time.Sub(d.clock.now()); ahead < 0 || ahead > day {
			t.Errorf("the commit is %v ahead of the clock", ahead)
		}
		syncBoth(d, a, b, c)
		want(v)
	}

	// Of what is written side by side on top of it the last one wins, whoever syncs first and
	// however many commits there are.
	b.clock.set(1005 * day)
	put(t, b.page, "k", "later")
	c.clock.set(1003 * day)
	for _, v := range []string{"1", "2", "earlier"} {
		put(t, c.page, "k", v)
	}
	syncBoth(b, c, a)
	want("later")
}

// TestClockAtTheEnd: a device whose clock shows a time beyond all commits is told so, and changes
// nothing.
func TestClockAtTheEnd(t *testing.T) {
	w := newCloudWorld(t)
	d := newClockDevice(t, w)
	put(t, d.page, "k", "v")
	for _, at := range []time.Duration{lastClock + 1, 1 << 62, 1<<63 - 1} {
		d.clock.set(at)
		_, err := d.page.Update(t.Context(), func(tx *ledger.Tx) error { return tx.Put(t.Context(), []byte("k"), []byte("w")) })
		if wantErr(t, err, ledger.ErrInvalid); !strings.Contains(err.Error(), "clock") {
			t.Errorf("%v does not name the clock", err)
		}
		wantContent(t, d.page, map[string]string{"k": "v"})
	}
	d.clock.set(1001 * day)
	put(t, d.page, "k", "w")
	wantContent(t, d.page, map[string]string{"k": "w"})
}

// TestClocksInAnyOrder: whatever the clocks of the devices show, each can always write, all come to
// one content, and what one of them writes when it has everything is what all have.
func TestClocksInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newCloudWorld(t)
		ds := []clockDevice{newClockDevice(t, w), newClockDevice(t, w), newClockDevice(t, w)}
		clocks := rapid.SampledFrom([]time.Duration{0, 5, 999 * day, 1000 * day, 1000*day + time.Hour, 1002 * day, lastClock - 1, lastClock})
		syncAllTwice := func() {
			for range 2 * len(ds) {
				for _, d := range ds {
					must(t, errorOf(d.Sync(t.Context())))
				}
			}
		}
		for i := range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for n, d := range ds {
				d.clock.set(clocks.Draw(rt, "clock"))
				if rapid.Bool().Draw(rt, "writes") {
					put(t, d.page, "k", string(rune('a'+n))+string(rune('0'+i)))
				}
				if rapid.Bool().Draw(rt, "syncs") {
					must(t, errorOf(d.Sync(t.Context())))
				}
			}
			if rapid.Bool().Draw(rt, "all sync") {
				syncAllTwice()
				put(t, ds[i%len(ds)].page, "k", "on top")
				syncAllTwice()
				for _, d := range ds {
					wantContent(t, d.page, map[string]string{"k": "on top"})
				}
			}
		}
		syncAllTwice()
		content := pageContent(t, ds[0].page)
		for _, d := range ds {
			wantContent(t, d.page, content)
			closeIt(t, d.page)
			closeIt(t, d.Repository)
		}
	})
}
