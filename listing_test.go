package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// TestWatchPages tells the pages that are there, those that another device makes, and those that
// are deleted, and not that a page is evicted.
func TestWatchPages(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	first := evictable(t, b, "notes", "first", "k", "v")
	must(t, page(t, b, "notes", "open").Close())
	steps := []func(){
		func() {},
		func() {
			_, err := admin.Evict(t.Context(), b, &admin.EvictOptions{Pages: []ledger.PageRef{first}})
			must(t, err)
			evictable(t, a, "notes", "theirs", "k", "v")
			syncAll(t, b)
		},
		func() {
			_, err := b.DeletePage(t.Context(), first, nil)
			must(t, err)
		},
	}
	want := []string{"first false", "open false", "theirs false", "first true"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := map[string]bool{}
	for c, err := range b.WatchPages(ctx) {
		if len(told) == len(want) {
			wantErr(t, err, context.Canceled)
			break
		}
		must(t, err)
		told[fmt.Sprint(c.Name, " ", c.State == ledger.PageDeleted)] = true
		if n := len(told); n == 2 || n == 3 {
			steps[n-1]()
		} else if n == len(want) {
			stop()
		}
	}
	for _, s := range want {
		if !told[s] {
			t.Errorf("it does not tell %q: %v", s, told)
		}
	}
	must(t, b.Close())
	for _, err := range b.WatchPages(t.Context()) {
		wantErr(t, err, ledger.ErrClosed)
	}
}
