package cloudsync_test

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

// healed syncs pages until all that was damaged is mended, and checks that they and a new device
// are the same.
func healed(t *testing.T, w *world, ps ...*page) {
	t.Helper()
	for range 3 {
		sync(t, ps...)
	}
	same(t, append(ps, w.synced())...)
}

// TestHoleBelowOwnEntriesIsMended rolls the bucket back while a device is connected, which then
// puts entries above what is missing. It is mended within the hour, or when its next session
// begins. The other device stands before the hole, where nothing tells it that the log goes on: it
// finds the new epoch by its own audit, within the hour after its entry.
func TestHoleBelowOwnEntriesIsMended(t *testing.T) {
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
					a.reopen() // what it has put before is audited
					sync(t, a)
					w.b.Rollback(old)
					for i := range many {
						a.commit(edit{"above " + key(i): noise(3, 5000)})
						sync(t, a)
					}
					b.commit(edit{"b": text("y")})
					sync(t, b) // stands in the hole, and fills it, if it is small
					pass(w, a)
					for range 2 { // the second where the clock was set back
						sync(t, a, b)
						w.clock.Advance(time.Hour)
					}
					healed(t, w, a, b)
				})
			}
		}
	}
}

// TestAuditCostsLittle has a device that is alone with its log: an audit is made once, an hour
// after the first entry, and nothing that is there is found missing.
func TestAuditCostsLittle(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	total := a.counts(func() {
		for i := range 60 {
			a.commit(edit{key(i): text("y")})
			sync(t, a)
			w.clock.Advance(2 * time.Minute)
		}
	})
	// Two hours: 60 entries, one list, and twice or three times the keyring.
	if total.A > 60+1 || total.B > 60+3*3 {
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

// TestHoleIsNoticedWithoutLooks has a device that puts entries all the time, so that it does not
// look for those of others.
func TestHoleIsNoticedWithoutLooks(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	old := w.b.State()
	a.commit(edit{"lost": text("x")})
	sync(t, a)
	a.commit(edit{"lost too": text("x")})
	sync(t, a)
	w.b.Rollback(old)
	for i := range 25 {
		a.commit(edit{"k": text(key(i))})
		sync(t, a)
		w.clock.Advance(4 * time.Minute)
	}
	c := w.synced()
	same(t, a, c)
}

// TestHoleBelowTheLastEntryIsMended has the bucket lose the entry before the last one of a device,
// and another device fill its place: what the last one stands behind is another entry then.
func TestHoleBelowTheLastEntryIsMended(t *testing.T) {
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
	w.remove(names[len(names)-2])
	b.commit(edit{"b": text("y")})
	sync(t, b)
	a.reopen()
	healed(t, w, a, b)
}

// TestDiskOfAnotherDevice has a device go on with the disk of another one, before an entry that is
// missing.
func TestDiskOfAnotherDevice(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 2 {
		a.commit(edit{"k": text(key(i))})
		sync(t, a)
	}
	names := w.entryNames("")
	w.remove(names[len(names)-2])
	b.reopen()
	sync(t, b)
	b.d.key = deviceKey(0x80)
	b.reopen()
	b.commit(edit{"b": text("y")})
	healed(t, w, a, b)
}
