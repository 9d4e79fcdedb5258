package records_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/records"
	"pgregory.net/rapid"
)

// TestVersionsBesideEachOther: a device with a new version of the app shares a page with one that
// has the old version. Both write offline. Whatever they do, they end with the same rows, the new
// one can read every record, and each record has a title that was put.
func TestVersionsBesideEachOther(t *testing.T) {
	newer := options()
	newer.Version = 1
	newer.Migrate = func(_ uint32, b []byte) (*note, error) {
		n := &note{}
		err := json.Unmarshal(b, n)
		n.Title = strings.ToUpper(n.Title)
		return n, err
	}
	refusals := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, all := t.Context(), devices(t, 2)
		var err error
		all[1].c, err = records.Open(ctx, all[1].page, "notes", newer)
		must(t, err)
		put := map[string]bool{}
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			for i, d := range all {
				for n := range rapid.IntRange(0, 3).Draw(rt, "changes") {
					id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")
					_, err := d.c.Get(ctx, id)
					refused := errors.Is(err, records.ErrNewer)
					if err != nil && !errors.Is(err, ledger.ErrNotFound) && (!refused || i == 1) {
						rt.Fatalf("device %d: %v", i, err)
					}
					title := fmt.Sprint("t", i, n, len(put))
					err = d.c.Put(ctx, id, &note{Title: title, Tags: []string{title}, Views: 1})
					if refused != errors.Is(err, records.ErrNewer) || err != nil && !refused {
						rt.Fatalf("device %d: put: %v, refused %v", i, err, refused)
					}
					if refused {
						refusals++
						continue
					}
					put[strings.ToUpper(title)] = true
				}
				if i == 1 && rapid.Bool().Draw(rt, "migrate") {
					_, err := d.c.MigrateAll(ctx)
					must(t, err)
				}
			}
			for _, d := range all {
				if rapid.Bool().Draw(rt, "sync") {
					d.sync(t)
				}
			}
		}
		for range 2 {
			for _, d := range all {
				d.sync(t)
			}
		}
		if x, y := all[0].rows(t), all[1].rows(t); !maps.Equal(x, y) {
			rt.Fatalf("%d and %d rows differ", len(x), len(y))
		}
		all[1].answers(t, func(format string, args ...any) { rt.Fatalf(format, args...) })
		for r, err := range all[1].c.Scan(ctx) {
			must(t, err)
			if !put[strings.ToUpper(r.Value.Title)] {
				rt.Errorf("title %q", r.Value.Title)
			}
		}
	})
	if refusals == 0 {
		t.Error("the old version has never seen a record of the new one")
	}
}
