package pages_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// TestNumberOfADeletedRecord: two devices make a record with one number, and one of the records is
// deleted while a third device changes it.
func TestNumberOfADeletedRecord(t *testing.T) {
	all := newDevices(t, newKey(t), 3, func(d *device) { d.upgrade(items) })
	defer closeAll(all)
	all[0].put(nil, "own", "")
	all[1].put(nil, "other", "")
	all[1].sync()
	all[2].sync()
	all[2].merge()
	all[1].remove(1)
	all[2].put(1.0, "other", "changed")
	meet(all)
	if got := slices.Sorted(maps.Keys(all[0].numbers())); !slices.Equal(got, []string{"other changed", "own "}) {
		t.Errorf("%q, want both records", got)
	}
}

// TestStoresWithOneNumber: two devices create object stores, which get the same number, and a
// record in each.
func TestStoresWithOneNumber(t *testing.T) {
	all := newDevices(t, newKey(t), 2, func(d *device) { d.upgrade(items) })
	defer closeAll(all)
	names := []string{"first", "second"}
	for i, name := range names {
		all[i].upgrade(func(ctx context.Context, u *idb.Upgrade) error {
			_, err := u.CreateObjectStore(name, nil)
			return err
		})
		for n := range 3 {
			all[i].in(name, func(ctx context.Context, s *idb.ObjectStore) error {
				_, err := s.Put(ctx, value.NewObject("of", name), float64(10*i+n))
				return err
			})
		}
	}
	meet(all)
	for i, name := range names {
		all[0].in(name, func(ctx context.Context, s *idb.ObjectStore) error {
			got, err := s.GetAllRecords(ctx, nil, 0, idb.Next)
			for n, r := range got {
				of, _ := r.Value.(*value.Object).Get("of")
				if of != name || r.PrimaryKey.Number() != float64(10*i+n) {
					t.Errorf("object store %q has record %v of %q", name, r.PrimaryKey.Number(), of)
				}
			}
			if len(got) != 3 {
				t.Errorf("object store %q has %d records, want 3", name, len(got))
			}
			return err
		})
	}
}

// TestDamageInAStoreThatMoves damages a record of an object store that a merge gives another
// number. The merge is made all the same, and the record is still damaged.
func TestDamageInAStoreThatMoves(t *testing.T) {
	all := newDevices(t, newKey(t), 2, func(d *device) { d.upgrade(items) })
	defer closeAll(all)
	for i, d := range all {
		name := []string{"first", "second"}[i]
		d.upgrade(func(ctx context.Context, u *idb.Upgrade) error {
			_, err := u.CreateObjectStore(name, nil)
			return err
		})
		d.in(name, func(ctx context.Context, s *idb.ObjectStore) error {
			_, err := s.Put(ctx, value.NewObject("of", name), "whole")
			return err
		})
		key, _ := indexeddb.PageKey(nil, indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 3, Primary: indexeddb.StringKey("damaged")})
		need(d, d.page.Put(t.Context(), key, []byte{0xff}))
	}
	all[0].sync()
	all[1].sync()
	_, err := all[1].page.Merge(t.Context())
	must(t, err)
	rows := 0
	for _, store := range []int64{3, 4} {
		for _, name := range []string{"whole", "damaged"} {
			key, _ := indexeddb.PageKey(nil, indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: store, Primary: indexeddb.StringKey(name)})
			if _, err := all[1].page.Get(t.Context(), key); err == nil {
				rows++
			}
		}
	}
	if rows != 4 {
		t.Errorf("%d rows of records, want 4", rows)
	}
}

func closeAll(all []*device) {
	for _, d := range all {
		need(d, d.repo.Close())
	}
}
