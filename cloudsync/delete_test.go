package cloudsync_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// DeleteEverywhere deletes the page for all devices.
func (p *page) DeleteEverywhere(ctx context.Context) error {
	return p.d.s.DeleteEverywhere(ctx, p.ledger, testPage)
}

// TestDeleteEverywhere deletes a page for all devices: nothing local goes, nothing is sent any
// more, and the bucket is emptied after the grace, but for the epochs.
func TestDeleteEverywhere(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	a.commit(edit{"big": noise(1, 2_000_000)})
	sync(t, a, b)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(b.content())
	if err := a.DeleteEverywhere(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.DeleteEverywhere(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := a.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
		t.Errorf("sync of who deleted it: %v", err)
	}
	w.clock.Advance(25 * time.Hour)
	c := b.commit(edit{"late": text("x")})
	if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
		t.Errorf("sync of another device: %v", err)
	}
	if ids, err := b.store.Unsynced(t.Context()); err != nil || len(ids) != 1 || ids[0] != c.ID {
		t.Errorf("%d commits are not synced, %v", len(ids), err)
	}
	fresh := w.device()
	if err := fresh.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
		t.Errorf("sync of a new device: %v", err)
	}
	if ads, err := fresh.d.s.Announced(t.Context()); err != nil || len(ads) != 0 {
		t.Errorf("%d pages are announced, %v", len(ads), err)
	}
	r, err := b.CollectGarbage(t.Context(), cloudsync.GCOptions{})
	if err != nil || r.DeletedObjects != 0 || r.WaitingBytes < 2_000_000 {
		t.Errorf("before the grace is over: %+v, %v", r, err)
	}
	w.clock.Advance(30 * 24 * time.Hour)
	for i := range 2 {
		r, err = b.CollectGarbage(t.Context(), cloudsync.GCOptions{})
		if err != nil || (r.DeletedBytes > 2_000_000) != (i == 0) {
			t.Errorf("after the grace: %+v, %v", r, err)
		}
	}
	for _, n := range w.b.Names() {
		if !strings.HasPrefix(n, wire.KeysPrefix) && !strings.Contains(n, "/epochs/") {
			t.Errorf("the bucket still has %s", n)
		}
	}
	b.reopen()
	b = b.d.pages["notes"]
	if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
		t.Errorf("sync after all is gone: %v", err)
	}
	delete(before, "late")
	got := maps.Clone(b.content())
	delete(got, "late")
	if !maps.Equal(got, before) {
		t.Error("local content changed")
	}
}

// TestDeleteEverywhereOnceMore loses the race for the epoch, and the answer to its put.
func TestDeleteEverywhereOnceMore(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	fired := false
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if !fired && op == bucket.OpPut && strings.Contains(name, "/epochs/") {
			fired = true
			if err := b.DeleteEverywhere(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err := a.DeleteEverywhere(t.Context()); err != nil || !fired {
		t.Fatal(err)
	}
	for _, p := range []*page{a, b} {
		if err := p.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
			t.Errorf("sync: %v", err)
		}
	}
}

// TestDeletedPageIsNoticedByTheNextLook deletes a page while others have listed the epochs a moment
// ago: who looks for entries, and who sends one, learns of it at once.
func TestDeletedPageIsNoticedByTheNextLook(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	c, d := w.device(), w.device()
	sync(t, c, d)
	raced := false
	w.b.SetBefore(func(op bucket.Op, object string) error {
		if op == bucket.OpPut && strings.Contains(object, "/log/") && !raced {
			raced = true // an entry comes before what closes the log
			d.commit(edit{"d": text("late")})
			sync(t, d)
		}
		return nil
	})
	for range 2 {
		if err := a.DeleteEverywhere(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.b.SetBefore(nil)
	if n := len(w.entryNames("")); n != 5 {
		t.Errorf("%d entries, with what closes the log", n)
	}
	c.commit(edit{"c": text("x")})
	for i, p := range []*page{b, c, d} {
		got := p.counts(func() {
			if err := p.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
				t.Errorf("device %d: %v", i, err)
			}
		})
		if got.A+got.B > 12 {
			t.Errorf("device %d learns of it with %+v", i, got)
		}
	}
	if ids, err := c.store.Unsynced(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("%d commits are not synced, %v", len(ids), err)
	}
	w.clock.Advance(31 * 24 * time.Hour)
	if _, err := b.CollectGarbage(t.Context(), cloudsync.GCOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := len(w.entryNames("")); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrDeleted) {
		t.Errorf("after all is gone: %v", err)
	}
}
