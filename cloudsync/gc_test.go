package cloudsync_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
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

func TestGarbageIsCondemnedAndThenDeleted(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"big": noise(1, 3_000_000), "lazy": append([]byte("lazy:"), noise(2, 2_000_000)...)})
	sync(t, a)
	for i := range 4 {
		a.commit(edit{key(i): noise(uint64(i), 3000)})
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	live := len(w.packs())
	orphan := strings.TrimSuffix(w.packs()[0], "0123456789abcdef") // of the same directory
	orphan = orphan[:strings.LastIndex(orphan, "/")+1] + strings.Repeat("ab", 16)
	if err := w.b.PutIfAbsent(t.Context(), orphan, 5, bytes.NewReader([]byte("waste"))); err != nil {
		t.Fatal(err)
	}
	collect := func(p *page, o cloudsync.GCOptions) *cloudsync.GCReport {
		t.Helper()
		r, err := p.CollectGarbage(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := collect(a, cloudsync.GCOptions{}); r.CondemnedPacks != 0 || r.CondemnedCheckpoints != 2 || r.DeletedObjects != 0 {
		t.Errorf("a pack of today: %+v", r)
	}
	w.clock.Advance(25 * time.Hour)
	entries := len(w.entryNames(""))
	if r := collect(a, cloudsync.GCOptions{DryRun: true}); r.CondemnedPacks != 1 || len(w.entryNames("")) != entries {
		t.Errorf("dry run: %+v", r)
	}
	if r := collect(a, cloudsync.GCOptions{}); r.CondemnedPacks != 1 || r.CondemnedCheckpoints != 0 || r.DeletedObjects != 0 || r.WaitingBytes < 5 {
		t.Errorf("a pack of yesterday: %+v", r)
	}
	sync(t, b)
	sameHeads(t, a, b)
	w.clock.Advance(29 * 24 * time.Hour)
	if r := collect(b, cloudsync.GCOptions{}); r.DeletedObjects != 2 { // the checkpoints
		t.Errorf("after 30 days: %+v", r)
	}
	w.clock.Advance(25 * time.Hour)
	if r := collect(b, cloudsync.GCOptions{}); r.DeletedObjects != 1 || r.DeletedBytes != 5 || r.WaitingBytes != 0 {
		t.Errorf("after 31 days: %+v", r)
	}
	if n := len(w.packs()); n != live || len(w.checkpoints()) != 2 {
		t.Errorf("%d packs, %d checkpoints", n, len(w.checkpoints()))
	}
	if r := collect(b, cloudsync.GCOptions{}); r.DeletedObjects != 0 || r.CondemnedPacks != 0 {
		t.Errorf("with nothing to do: %+v", r)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, c)
	if !maps.Equal(a.content(), c.content()) {
		t.Error("contents differ")
	}
}

func TestPackThatIsAnnouncedMeanwhileStays(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	// The device b uploads a pack and is then away for two days.
	b.commit(edit{"big": noise(3, 3_000_000)})
	away := true
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if away && op == bucket.OpPut && strings.Contains(name, "/log/") {
			return errNet
		}
		return nil
	})
	if err := b.Sync(t.Context()); err == nil {
		t.Fatal("the entry was put")
	}
	if len(w.packs()) == 0 {
		t.Fatal("no pack was uploaded")
	}
	away = false
	w.clock.Advance(50 * time.Hour)
	// It comes back just before a condemns the pack.
	fired := false
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if !fired && op == bucket.OpPut && strings.Contains(name, "/log/") {
			fired = true
			w.b.SetBefore(nil)
			sync(t, b)
		}
		return nil
	})
	r, err := a.CollectGarbage(t.Context(), cloudsync.GCOptions{})
	if err != nil || r.CondemnedPacks != 0 || !fired {
		t.Fatalf("%+v, %v", r, err)
	}
	sync(t, a, b)
	sameHeads(t, a, b)

	// It comes back after a has condemned the pack: it makes another.
	b.commit(edit{"big": noise(4, 3_000_000)})
	away = true
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if away && op == bucket.OpPut && strings.Contains(name, "/log/") {
			return errNet
		}
		return nil
	})
	if err := b.Sync(t.Context()); err == nil {
		t.Fatal("the entry was put")
	}
	away = false
	w.clock.Advance(50 * time.Hour)
	before := w.packs()
	if r, err := a.CollectGarbage(t.Context(), cloudsync.GCOptions{}); err != nil || r.CondemnedPacks == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	sync(t, b)
	if len(w.packs()) <= len(before) {
		t.Error("no other pack was made")
	}
	w.clock.Advance(40 * 24 * time.Hour)
	if r, err := a.CollectGarbage(t.Context(), cloudsync.GCOptions{}); err != nil || r.DeletedObjects == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(b.content(), c.content()) {
		t.Error("contents differ")
	}
}

func TestRetentionIsKept(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	if err := a.SetRetention(t.Context(), format.Retention{Commits: 7}); err != nil {
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

// TestNothingIsCollectedBesideAHole has the bucket lose an entry at which a device has not looked
// yet: what the entries behind it need is no garbage.
func TestNothingIsCollectedBesideAHole(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, a *page){
		"a later entry": func(t *testing.T, a *page) {
			a.commit(edit{"big": noise(3, 3_000_000)})
			sync(t, a)
		},
		"a checkpoint only": func(t *testing.T, a *page) {
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := steady(t, w)
			a.commit(edit{"lost": text("x")})
			sync(t, a)
			names := w.entryNames("")
			prepare(t, a)
			if err := w.b.Delete(t.Context(), names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(25 * time.Hour)
			before := w.b.Names()
			r, err := b.CollectGarbage(t.Context(), cloudsync.GCOptions{})
			if !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), names[len(names)-1]) {
				t.Errorf("%+v, %v, want that %s is missing", r, err, names[len(names)-1])
			}
			for _, n := range w.b.Names() {
				if strings.Contains(n, "/log/") && !slices.Contains(before, n) {
					t.Errorf("%s was put", n)
				}
			}
		})
	}
}

// TestCondemnationOfUnknownTimeDeletesNothing has a range, which is not sealed, say of each entry
// that it is not known when that was created: nothing that was condemned just now is deleted
// (protocol.CondemnedGone).
func TestCondemnationOfUnknownTimeDeletesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	names := format.NamesOf(w.ring, a.ledger, testPage)
	a.commit(edit{"a": noise(1, 3000)})
	sync(t, a)
	orphan := names.Pack(format.ID{1})
	if err := w.b.PutIfAbsent(t.Context(), orphan, 5, strings.NewReader("waste")); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(25 * time.Hour)
	for i := range 40 {
		a.commit(edit{key(i): noise(uint64(i), 3000)})
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 10 {
			if r, err := a.CollectGarbage(t.Context(), cloudsync.GCOptions{}); err != nil || r.CondemnedPacks != 1 || r.CondemnedCheckpoints == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	const from, to = 1, 32
	stored, _ := w.b.Content(names.Range(from, to))
	entries, err := format.ParseRange(from, to, stored)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		entries[i].Created = time.Time{}
	}
	if stored, err = format.EncodeRange(from, entries); err != nil {
		t.Fatal(err)
	}
	w.b.Replace(names.Range(from, to), stored)
	r, err := w.device().CollectGarbage(t.Context(), cloudsync.GCOptions{})
	if err != nil || r.DeletedObjects != 0 {
		t.Errorf("%+v, %v, want that nothing is deleted", r, err)
	}
}
