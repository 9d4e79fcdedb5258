package pages_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/pages"
)

// TestWatch: changes are told by field, with what was and what is.
func TestWatch(t *testing.T) {
	ctx := t.Context()
	page := ledgertest.Page(t, ledgertest.Open(t), "app", "objects")
	var first, second permazen.Models
	people, err := permazen.Define[oldPerson](&first, "Person")
	must(t, err)
	_, err = permazen.Define[newPerson](&second, "Person")
	must(t, err)
	db := pages.Open(page, prefix, database(&first, &permazen.Options{Random: random(1)}))
	next := pages.Open(page, prefix, database(&second, nil))
	update := func(d *pages.DB, f func(tx *permazen.Tx) error) ledger.CommitID {
		t.Helper()
		id, err := d.Update(ctx, f)
		must(t, err)
		return id
	}
	var from ledger.CommitID
	var r permazen.Ref[oldPerson]
	told := func(o pages.WatchOptions, n int) (all []string) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o.From = from
		for note, err := range db.Watch(ctx, &o) {
			must(t, err)
			for _, c := range note.Objects {
				if c.ID != r.ID || c.Type != "Person" {
					t.Errorf("%+v", c)
				}
				all = append(all, fmt.Sprint(c.Kind, c.Field, c.Key, c.Old, c.New))
			}
			if len(all) >= n {
				break
			}
		}
		return all
	}
	from = update(db, func(tx *permazen.Tx) (err error) {
		r, err = people.Create(ctx, tx, &oldPerson{Name: "Bob", Nicks: permazen.SetOf("A")})
		return err
	})
	update(db, func(tx *permazen.Tx) error {
		return people.Update(ctx, tx, r, func(p *oldPerson) error {
			p.Name, p.Boss, p.Visits, p.Nicks = "", r, 3, permazen.SetOf("B")
			return nil
		})
	})
	want := []string{
		fmt.Sprint(pages.Changed, "boss", nil, nil, r.ID), fmt.Sprint(pages.Changed, "name", nil, "Bob", nil),
		fmt.Sprint(pages.Changed, "nicks", nil, "A", nil), fmt.Sprint(pages.Changed, "nicks", nil, nil, "B"), fmt.Sprint(pages.Changed, "visits", nil, int64(0), int64(3)),
	}
	if diff := cmp.Diff(want, told(pages.WatchOptions{}, len(want))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[1:2], told(pages.WatchOptions{Type: "Person", Fields: []string{"name"}}, 1)); diff != "" {
		t.Error(diff)
	}
	from = update(db, func(*permazen.Tx) error { return nil })
	update(next, func(tx *permazen.Tx) error { _, err := tx.MigrateAll(ctx); return err })
	if got := told(pages.WatchOptions{Fields: nil}, 1); len(got) != 1 || got[0] != fmt.Sprint(pages.Migrated, "", nil, nil, nil) {
		t.Error(got)
	}
	from = update(db, func(*permazen.Tx) error { return nil })
	update(db, func(tx *permazen.Tx) error { _, err := tx.Delete(ctx, r.ID); return err })
	if got := told(pages.WatchOptions{}, 1); len(got) != 4 || got[0] != fmt.Sprint(pages.Deleted, "", nil, nil, nil) {
		t.Error(got)
	}
}
