package pages_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// put stores an item, under a key when that is not nil.
func (d *device) put(key any, is, name string) {
	d.Helper()
	d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
		o := value.NewObject("is", is, "name", name)
		if key != nil {
			o.Set("id", key)
		}
		_, err := s.Put(ctx, o, nil)
		return err
	})
}

func (d *device) remove(key float64) {
	d.Helper()
	d.in("items", func(ctx context.Context, s *idb.ObjectStore) error { return s.Delete(ctx, key) })
}

// numbers returns what the items are, with their names and numbers.
func (d *device) numbers() map[string]float64 {
	d.Helper()
	all := map[string]float64{}
	d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
		records, err := s.GetAllRecords(ctx, nil, 0, idb.Next)
		for _, r := range records {
			is, _ := r.Value.(*value.Object).Get("is")
			name, _ := r.Value.(*value.Object).Get("name")
			all[fmt.Sprint(is, " ", name)] = r.PrimaryKey.Number()
		}
		return err
	})
	return all
}

// TestChangeBehindANewNumber: two devices make a record with one number, and a third one merges
// them, so that one of the records gets another number. Its device has not seen that yet when it
// changes the record.
func TestChangeBehindANewNumber(t *testing.T) {
	key := newKey(t)
	for name, c := range map[string]struct {
		change func(owner *device, is string)
		third  func(third *device, is string, number float64)
		want   []string // "own" stands for the record that got the number, and "other" for the one that kept it
	}{
		"changed":                    {func(d *device, is string) { d.put(1.0, is, "new") }, nil, []string{"other", "own new"}},
		"changed twice":              {func(d *device, is string) { d.put(1.0, is, "newer"); d.put(1.0, is, "new") }, nil, []string{"other", "own new"}},
		"deleted":                    {func(d *device, _ string) { d.remove(1) }, nil, []string{"other"}},
		"and another one is made":    {func(d *device, is string) { d.put(1.0, is, "new"); d.put(nil, "more", "") }, nil, []string{"more ", "other", "own new"}},
		"changed on the third":       {func(*device, string) {}, func(d *device, is string, n float64) { d.put(n, is, "third") }, []string{"other", "own third"}},
		"changed on both":            {func(d *device, is string) { d.put(1.0, is, "new") }, func(d *device, is string, n float64) { d.put(n, is, "third") }, []string{"other", "own new", "own third"}},
		"deleted on the third":       {func(d *device, is string) { d.put(1.0, is, "new") }, func(d *device, _ string, n float64) { d.remove(n) }, []string{"other", "own new"}},
		"deleted, and changed there": {func(d *device, _ string) { d.remove(1) }, func(d *device, is string, n float64) { d.put(n, is, "third") }, []string{"other", "own third"}},
		"deleted on both":            {func(d *device, _ string) { d.remove(1) }, func(d *device, _ string, n float64) { d.remove(n) }, []string{"other"}},
		"the other one is deleted":   {func(d *device, is string) { d.put(1.0, is, "new") }, func(d *device, _ string, _ float64) { d.remove(1) }, []string{"own new"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := newDevices(t, key, 3, func(d *device) { d.upgrade(items) })
			defer func() {
				for _, d := range all {
					need(t, d.repo.Close())
				}
			}()
			all[0].put(nil, "a", "of a")
			all[1].put(nil, "b", "of b")
			all[0].sync()
			all[1].sync()
			third := all[2]
			third.sync()
			third.merge()
			own, other, owner := "a", "b", all[0]
			at := third.numbers()
			if at["a of a"] == 1 {
				own, other, owner = "b", "a", all[1]
			}
			number := at[own+" of "+own]
			if len(at) != 2 || number < 2 {
				t.Fatalf("after the first merge: %v", at)
			}
			if c.third != nil {
				c.third(third, own, number)
			}
			third.sync()
			c.change(owner, own)
			meet(all)
			got := all[0].numbers()
			var want []string
			for _, w := range c.want {
				switch w {
				case "own new", "own third":
					w = own + w[len("own"):]
				case "other":
					w = other + " of " + other
				}
				want = append(want, w)
			}
			slices.Sort(want)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
				t.Errorf("%v, want %v", got, want)
			}
			if slices.Equal(c.want, []string{"other", "own new"}) && c.third == nil && got[own+" new"] != number {
				t.Errorf("%v, want the changed one at %v", got, number)
			}
		})
	}
}

// TestLeftOut: what a unique index leaves out is counted exactly, until the record is written again
// with a key that is free.
func TestLeftOut(t *testing.T) {
	all := newDevices(t, newKey(t), 3, func(d *device) { d.upgrade(items) })
	defer func() {
		for _, d := range all {
			need(t, d.repo.Close())
		}
	}()
	for i, d := range all {
		d.put(nil, fmt.Sprint("item ", i), "same")
		d.put(nil, fmt.Sprint("other ", i), fmt.Sprint("own ", i))
	}
	meet(all)
	first := all[0]
	want := func(leftOut int64) {
		t.Helper()
		if got := first.clean(); got.LeftOut != leftOut || got.Records == 0 {
			t.Errorf("%d rows left out of %d records, want %d", got.LeftOut, got.Records, leftOut)
		}
	}
	want(2)
	at := first.numbers()
	if len(at) != 6 {
		t.Fatalf("%v, want 6 items", at)
	}
	for i := range 3 {
		is := fmt.Sprint("item ", i)
		first.put(at[is+" same"], is, fmt.Sprint("free ", i))
	}
	want(0)
}
