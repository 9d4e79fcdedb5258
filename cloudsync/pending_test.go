package cloudsync_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
)

// TestPacksThatAreGoneAreNotAnnounced has packs go up, and not the entry that names them; then all
// or one of them are gone from the bucket. The log is as it was, so that nothing else tells.
func TestPacksThatAreGoneAreNotAnnounced(t *testing.T) {
	all := func(w *world, old mem.State, _ []string) { w.b.Rollback(old) }
	first := func(w *world, _ mem.State, packs []string) { w.remove(packs[0]) }
	half := func(w *world, _ mem.State, packs []string) {
		content, _ := w.b.Content(packs[0])
		w.b.Replace(packs[0], content[:len(content)/2])
	}
	restart := func(_ *world, a *page) { a.reopen() }
	nothing := func(*world, *page) {}
	wait := func(w *world, _ *page) { w.clock.Advance(50 * time.Minute) }
	for name, c := range map[string]struct {
		lose  func(w *world, old mem.State, packs []string)
		then  func(w *world, a *page)
		kind  string
		packs int
	}{
		"all, restart":                  {all, restart, "", 1},
		"all, restart, lazy":            {all, restart, "lazy:", 1},
		"all, error":                    {all, nothing, "", 1},
		"all, long after":               {all, wait, "", 1},
		"first of two, restart, lazy":   {first, restart, "lazy:", 2},
		"first of two is cut, an error": {half, nothing, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := steady(t, w)
			old, before := w.b.State(), len(w.packs())
			w.b.SetBefore(func(op bucket.Op, name string) error {
				if op == bucket.OpPut && strings.Contains(name, "/log/") {
					return errNet
				}
				return nil
			})
			a.commit(edit{"long": append([]byte(c.kind), noise(7, 2_000_000+(c.packs-1)*(15<<20))...), "short": noise(8, 5000)})
			if err := a.Sync(t.Context()); err == nil {
				t.Fatal("an entry was put")
			}
			w.b.SetBefore(nil)
			packs := w.packs()
			if len(packs) < before+c.packs {
				t.Fatalf("%d packs", len(packs))
			}
			c.lose(w, old, packs)
			c.then(w, a)
			sync(t, a, b)
			same(t, a, b, w.synced())
			a.commit(edit{"more": text("x")}) // nothing is looked for again
			if n := a.counts(func() { sync(t, a) }); n.A != 1 || n.B != 0 {
				t.Errorf("a commit took %+v", n)
			}
		})
	}
}
