package cloudsync_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
)

// TestDeviceNoticesAHoleBelowItsOwnEntries rolls the bucket back while a device is connected, which
// then puts entries above what is missing. It notices within the hour, or when its next session
// begins, and uploading anew mends it.
func TestDeviceNoticesAHoleBelowItsOwnEntries(t *testing.T) {
	notice := map[string]func(w *world, a *page){
		"an hour later":                 func(w *world, _ *page) { w.clock.Advance(time.Hour) },
		"an hour later, with a commit":  func(w *world, a *page) { w.clock.Advance(time.Hour); a.commit(edit{"later": text("x")}) },
		"restart":                       func(_ *world, a *page) { a.reopen() },
		"restart, with a commit":        func(_ *world, a *page) { a.reopen(); a.commit(edit{"later": text("x")}) },
		"clock that was set back later": func(w *world, _ *page) { w.clock.Advance(-time.Hour) },
	}
	for when, pass := range notice {
		for _, many := range []int{1, 20} {
			for _, filled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d entries, filled %v", when, many, filled), func(t *testing.T) {
					w := newWorld(t)
					a, b := steady(t, w)
					old := w.b.State()
					if !filled {
						a.commit(edit{"lost first": noise(1, 5000)})
						sync(t, a)
					}
					a.commit(edit{"lost": noise(2, 5000)})
					sync(t, a)
					a.reopen() // what it has put before is proved
					sync(t, a)
					w.b.Rollback(old)
					for i := range many {
						a.commit(edit{"above " + key(i): noise(3, 5000)})
						sync(t, a)
					}
					b.commit(edit{"b": text("y")})
					sync(t, b) // stands in the hole, and fills it, if it is small
					pass(w, a)
					target := cloudsync.ErrBucketRolledBack
					if filled {
						target = cloudsync.ErrBucketReplaced
					}
					for range 2 {
						err := a.Sync(t.Context())
						if !errors.Is(err, target) || !strings.Contains(err.Error(), "/log/") {
							t.Fatalf("%v, want %v", err, target)
						}
						if st := a.State(); st.Upload != cloudsync.NeedsUser || st.Download != cloudsync.NeedsUser {
							t.Errorf("state %+v", st)
						}
					}
					if missing, err := a.Reupload(t.Context()); err != nil || missing != 0 {
						t.Fatalf("%d missing, %v", missing, err)
					}
					for range 2 {
						for _, p := range []*page{b, a} {
							if err := p.Sync(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
					}
					same(t, a, b, w.synced())
				})
			}
		}
	}
}

// TestProofOfOwnEntriesIsMadeOnce has a device that is alone with its log: what it puts entries
// behind is looked at once an hour, and nothing that is there is found missing, also when a
// checkpoint and a floor stand for it.
func TestProofOfOwnEntriesIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	total := a.counts(func() {
		for i := range 60 {
			a.commit(edit{key(i): text("y")})
			sync(t, a)
			w.clock.Advance(2 * time.Minute)
		}
	})
	// Two hours: 60 entries, 1 range, and twice or three times the keyring, the position, a list
	// and the first entry behind it.
	if total.A > 60+1+3 || total.B > 60+3*3 {
		t.Errorf("%+v", total)
	}
	before := maps.Clone(a.content())
	for range 3 {
		a.reopen()
		sync(t, a)
	}
	if !maps.Equal(a.content(), before) {
		t.Error("content has changed")
	}
}

// TestHoleIsNoticedByWhoNeverLooks has a device that puts entries all the time, so that it does not
// look for those of others.
func TestHoleIsNoticedByWhoNeverLooks(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	old := w.b.State()
	a.commit(edit{"lost": text("x")})
	a.commit(edit{"lost too": text("x")})
	sync(t, a)
	w.b.Rollback(old)
	var err error
	entries := 0
	for ; err == nil && entries < 25; entries++ { // a range would have the entry that is lost
		a.commit(edit{"k": text(key(entries))})
		err = a.Sync(t.Context())
		w.clock.Advance(4 * time.Minute)
	}
	if !errors.Is(err, cloudsync.ErrBucketRolledBack) || entries < 14 {
		t.Fatalf("after %d entries: %v", entries, err)
	}
}

// TestHoleBelowTheLastEntryIsNoticed has the bucket lose the entry before the last one of a device,
// and another device fill its place: what the last one stands behind is another entry then.
func TestHoleBelowTheLastEntryIsNoticed(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 3 {
		a.commit(edit{"k": text(key(i))})
		sync(t, a)
		if i == 0 {
			sync(t, b)
		}
	}
	names := w.entryNames("")
	lost := names[len(names)-2]
	if err := w.b.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b.commit(edit{"b": text("y")})
	sync(t, b)
	a.reopen()
	if err := a.Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketReplaced) || !strings.Contains(err.Error(), lost) {
		t.Fatal(err)
	}
}

// TestDiskOfAnotherDeviceLooksForTheEnd has a device go on with the disk of another one, before an
// entry that is missing: it has not looked for the end of the log itself, and does so.
func TestDiskOfAnotherDeviceLooksForTheEnd(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 2 {
		a.commit(edit{"k": text(key(i))})
		sync(t, a)
	}
	names := w.entryNames("")
	lost := names[len(names)-2]
	if err := w.b.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	sync(t, b) // it has once seen the end of the log
	b.d.id[0] ^= 0x80
	b.reopen()
	b.commit(edit{"b": text("y")})
	if err := b.Sync(t.Context()); !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), lost) {
		t.Fatal(err)
	}
}
