package cloudsync_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/tier"
)

// packs returns the names of the packs.
func (w *world) packs() (names []string) {
	for _, n := range w.b.Names() {
		if strings.Contains(n, "/packs/") {
			names = append(names, n)
		}
	}
	return names
}

// TestGarbageOfALongLog collects garbage where there is none, behind few and many entries.
func TestGarbageOfALongLog(t *testing.T) {
	entries := 1500
	if tier.Nightly() {
		entries = 100_000
	}
	w := newWorld(t)
	a, _ := steady(t, w)
	fillLog(t, a, entries)
	w.clock.Advance(31 * 24 * time.Hour)
	first := collectBucket(t, a, cloudsync.GCOptions{})
	n := a.counts(func() {
		if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects != 0 || r.WaitingObjects != 0 {
			t.Errorf("there is still something to do: %+v", r)
		}
	})
	if n.A+n.B+n.Free > 5 {
		t.Errorf("%d requests", n.A+n.B+n.Free)
	}
	t.Logf("%d requests behind %d entries, %d objects were deleted before", n.A+n.B+n.Free, entries, first.DeletedObjects)
}

// TestGarbageIsDeletedAfterTheGrace deletes what past epochs have left, 30 days after they ended:
// entries, checkpoints, and packs that nobody has ever named.
func TestGarbageIsDeletedAfterTheGrace(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"big": noise(1, 3_000_000), "lazy": append([]byte("lazy:"), noise(2, 2_000_000)...)})
	sync(t, a)
	live := w.packs()
	orphan := live[0][:strings.LastIndex(live[0], "/")+1] + strings.Repeat("ab", 16)
	if err := w.b.PutIfAbsent(t.Context(), orphan, 5, bytes.NewReader([]byte("waste"))); err != nil {
		t.Fatal(err)
	}
	if r := collectBucket(t, a, cloudsync.GCOptions{}); r.Commits != 0 || r.DeletedObjects != 0 || r.WaitingObjects != 0 {
		t.Errorf("in the first epoch: %+v", r)
	}
	for i := range 4 {
		a.commit(edit{key(i): noise(uint64(i), 3000)})
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := w.b.Names()
	r := collectBucket(t, a, cloudsync.GCOptions{DryRun: true})
	if r.WaitingObjects < 8 || r.WaitingBytes < 5 || r.DeletedObjects != 0 || !slices.Equal(w.b.Names(), before) {
		t.Errorf("dry run: %+v", r)
	}
	sync(t, b)
	sameHeads(t, a, b)
	w.clock.Advance(29 * 24 * time.Hour)
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedObjects != 0 {
		t.Errorf("after 29 days: %+v", r)
	}
	w.clock.Advance(25 * time.Hour)
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedObjects < 8 {
		t.Errorf("after 30 days: %+v", r)
	}
	left := w.packs()
	for _, n := range live {
		if !slices.Contains(left, n) {
			t.Errorf("%s is gone", n)
		}
	}
	if slices.Contains(left, orphan) || len(w.entryNames("")) > 2 {
		t.Errorf("the orphan is there: %t; %d entries", slices.Contains(left, orphan), len(w.entryNames("")))
	}
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedObjects != 0 {
		t.Errorf("with nothing to do: %+v", r)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, c)
	sameContent(t, a, c)
}

// TestRequestsOfIdleCollection counts what a collection with nothing to do asks for, however many
// entries there have been.
func TestRequestsOfIdleCollection(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	for i := range tier.Of(100, 100, 3000) {
		a.commit(edit{key(i % 500): noise(uint64(i), 30)})
		sync(t, a)
	}
	w.clock.Advance(31 * 24 * time.Hour)
	for range 2 {
		collectBucket(t, a, cloudsync.GCOptions{})
	}
	if n := a.counts(func() { collectBucket(t, a, cloudsync.GCOptions{}) }); n.A+n.B+n.Free > 5 {
		t.Errorf("%+v", n)
	}
}

// TestPackBesideACut uploads a pack, and has another device cut the log before its entry, or just
// before that: the pack is named all the same, or uploaded again.
func TestPackBesideACut(t *testing.T) {
	for name, late := range map[string]bool{"before the entry": true, "between pack and entry": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := steady(t, w)
			b.commit(edit{"big": noise(3, 3_000_000)})
			done := false
			w.b.SetBefore(func(op bucket.Op, name string) error {
				switch {
				case done || op != bucket.OpPut || !strings.Contains(name, "/log/"):
					return nil
				case late:
					return errNet
				}
				done = true
				return a.Checkpoint(t.Context())
			})
			err := b.Sync(t.Context())
			w.b.SetBefore(nil)
			if late == (err == nil) {
				t.Fatal(err)
			}
			if late {
				w.clock.Advance(50 * time.Hour)
				a.commit(edit{"a": text("2")})
				if err := a.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			sync(t, b, a)
			w.clock.Advance(40 * 24 * time.Hour)
			if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects == 0 {
				t.Errorf("%+v", r)
			}
			c := w.device()
			sync(t, c)
			sameHeads(t, a, b, c)
			sameContent(t, b, a, c)
		})
	}
}

// TestCutThatComesTooLate lets a device write a checkpoint while another one cuts the log: what it
// has written is deleted like a past epoch.
func TestCutThatComesTooLate(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	before := w.b.Names()
	var lost []string
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op != bucket.OpPut || !strings.Contains(name, "/log/") {
			return nil
		}
		w.b.SetBefore(nil)
		lost = slices.DeleteFunc(w.b.Names(), func(n string) bool { return slices.Contains(before, n) })
		w.clock.Advance(time.Second)
		return a.Checkpoint(t.Context())
	})
	if err := b.Checkpoint(t.Context()); err != nil || len(lost) == 0 {
		t.Fatalf("%d objects: %v", len(lost), err)
	}
	left := func() (n int) {
		collectBucket(t, a, cloudsync.GCOptions{})
		for _, name := range w.b.Names() {
			if slices.Contains(lost, name) {
				n++
			}
		}
		return n
	}
	if n := left(); n != len(lost) {
		t.Errorf("%d of %d objects are there at once", n, len(lost))
	}
	w.clock.Advance(31 * 24 * time.Hour)
	if n := left(); n != 0 {
		t.Errorf("%d of %d objects are there after 31 days", n, len(lost))
	}
	c := w.device()
	sync(t, b, c)
	sameHeads(t, a, b, c)
	sameContent(t, a, b, c)
}

func TestRetentionIsKept(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	if err := a.SetRetention(t.Context(), cloudsync.Retention{Last: 7}); err != nil {
		t.Fatal(err)
	}
	sync(t, b)
	if err := b.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
}

// TestHoleBesideACollection has the bucket lose an entry before a device reads it, which then
// collects: what the entries behind the hole brought comes back from the device that has it.
func TestHoleBesideACollection(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	a.commit(edit{"lost": text("x")})
	sync(t, a)
	names := w.entryNames("")
	a.commit(edit{"big": noise(3, 3_000_000)})
	sync(t, a)
	w.remove(names[len(names)-1])
	w.clock.Advance(25 * time.Hour)
	collectBucket(t, b, cloudsync.GCOptions{})
	sync(t, a, b)
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
	sameContent(t, a, b, c)
}
