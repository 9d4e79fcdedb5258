package jsck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/internal/dump"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, name string) *ordered.Memory {
	t.Helper()
	return dump.Load(t, "../testdata/"+name+".kv")
}

func check(t testing.TB, r ordered.Reader) (jsck.Result, []jsck.Issue) {
	t.Helper()
	var issues []jsck.Issue
	res, err := jsck.Check(context.WithoutCancel(t.Context()), r, &jsck.Options{Report: collect(&issues)})
	if err != nil {
		t.Fatal(err)
	}
	return res, issues
}

func collect(to *[]jsck.Issue) func(jsck.Issue) error {
	return func(i jsck.Issue) error {
		*to = append(*to, i)
		return nil
	}
}

// TestClean: no false alarms.
func TestClean(t *testing.T) {
	for _, name := range []string{
		"01-empty-schemaA", "02-created", "03-filled", "04-back-to-default", "05-deleted-p2", "jsck-bad-counter-repaired",
		"jsck-bad-object-meta-repaired", "jsck-dangling-ref-repaired", "jsck-garbage-ranges-repaired",
		"jsck-missing-object-meta-repaired", "jsck-no-index-rows-repaired", "jsck-unknown-field-repaired",
	} {
		if res, issues := check(t, load(t, name)); len(issues) > 0 || res.Rows == 0 && name != "01-empty-schemaA" {
			t.Errorf("%s: %+v %v", name, res, issues)
		}
	}
}

// TestDamaged: repairs give the bytes of the reference, and check tells the same issues as repair.
func TestDamaged(t *testing.T) {
	for name, issues := range map[string]int{
		"bad-counter": 1, "bad-object-meta": 0, "dangling-ref": 0, "garbage-ranges": 3, "missing-object-meta": 0, "no-index-rows": 65, "unknown-field": 1,
	} {
		rows := load(t, "jsck-"+name+"-damaged")
		_, told := check(t, rows)
		if issues > 0 && len(told) != issues {
			t.Errorf("%s: %d issues, want %d: %v", name, len(told), issues, told)
		}
		repair(t, rows, told)
		if diff := dump.Diff(t, rows, load(t, "jsck-"+name+"-repaired")); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func repair(t testing.TB, rows *ordered.Memory, told []jsck.Issue) {
	t.Helper()
	var again []jsck.Issue
	if _, err := jsck.Repair(context.WithoutCancel(t.Context()), rows, &jsck.Options{Report: collect(&again)}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(again) != fmt.Sprint(told) {
		t.Fatalf("repair tells\n%v\ncheck\n%v", again, told)
	}
	seen := map[string]bool{}
	for _, i := range told {
		if k := fmt.Sprintf("%x %s", i.Key, i.Text); seen[k] {
			t.Fatalf("%s is told twice", i)
		} else {
			seen[k] = true
		}
	}
}

// TestDanglingList: a defect that the reference leaves behind.
func TestDanglingList(t *testing.T) {
	rows := load(t, "06-deleted-p1")
	_, issues := check(t, rows)
	if len(issues) != 2 || issues[0].Kind != jsck.InvalidValue || fmt.Sprintf("%x", issues[0].Key) != "04333333333333330800" {
		t.Fatal(issues)
	}
	repair(t, rows, issues)
	if _, issues := check(t, rows); len(issues) > 0 {
		t.Error(issues)
	}
}

// damages are ways to damage a row of a database.
var damages = map[string]func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error{
	"missing": func(ctx context.Context, w *ordered.Memory, row ordered.Row, _ byte) error {
		return w.Delete(ctx, row.Key)
	},
	"doubled": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		return w.Put(ctx, append(bytes.Clone(row.Key), b), row.Value)
	},
	"doubled beside": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		key := bytes.Clone(row.Key)
		key[len(key)-1] ^= b | 1
		return w.Put(ctx, key, row.Value)
	},
	"bit in the value": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		if len(row.Value) == 0 {
			return w.Put(ctx, row.Key, []byte{b})
		}
		v := bytes.Clone(row.Value)
		v[int(b)%len(v)] ^= 1 << (b % 8)
		return w.Put(ctx, row.Key, v)
	},
	"bit in the key": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		key := bytes.Clone(row.Key)
		key[int(b)%len(key)] ^= 1 << (b % 8)
		return errors.Join(w.Delete(ctx, row.Key), w.Put(ctx, key, row.Value))
	},
	"cut value": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		return w.Put(ctx, row.Key, row.Value[:min(len(row.Value), int(b)%8)])
	},
	"long value": func(ctx context.Context, w *ordered.Memory, row ordered.Row, b byte) error {
		return w.Put(ctx, row.Key, append(bytes.Clone(row.Value), b))
	},
}

// TestEachRow damages each row of a database in each way. What is told is repaired, or nothing is
// touched.
func TestEachRow(t *testing.T) {
	whole := load(t, "03-filled")
	b := byte(0)
	names := slices.Sorted(maps.Keys(damages))
	for row, err := range ordered.Rows(t.Context(), whole, ordered.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if os.Getenv("LEDGER_TIER") < "2" && (i+int(b))%2 == 1 {
				continue // rows beside it are damaged so
			}
			rows := whole.Clone()
			if err := damages[name](t.Context(), rows, row, b); err != nil {
				t.Fatal(err)
			}
			settle(t, fmt.Sprintf("%s %x with %d", name, row.Key, b), rows)
		}
		b += 0x4b
	}
}

// settle checks, repairs, and checks again.
func settle(t testing.TB, what string, rows *ordered.Memory) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	damaged := rows.Clone()
	var told []jsck.Issue
	if _, err := jsck.Check(ctx, rows, &jsck.Options{Report: collect(&told)}); err != nil {
		if errors.Is(err, base.ErrUnsupported) || errors.Is(err, base.ErrTooLarge) || errors.Is(err, layout.ErrUninitialized) {
			return
		}
		t.Fatalf("%s: %v", what, err)
	}
	if diff := dump.Diff(t, rows, damaged); diff != "" {
		t.Fatalf("%s: check has changed\n%s", what, diff)
	}
	repair(t, rows, told)
	res, again := check(t, rows)
	if res.Stopped {
		if diff := dump.Diff(t, rows, damaged); diff != "" || len(told) == 0 {
			t.Fatalf("%s: told %v and changed\n%s", what, told, diff)
		}
		return
	}
	if len(again) > 0 {
		t.Fatalf("%s: told %v\nand then %v", what, told, again)
	}
	if len(told) == 0 && dump.Diff(t, rows, damaged) != "" {
		t.Fatalf("%s: repaired what was not told", what)
	}
}

// TestManyRows damages several rows.
func TestManyRows(t *testing.T) {
	whole := load(t, "03-filled")
	var all []ordered.Row
	for row, err := range ordered.Rows(t.Context(), whole, ordered.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	objects := 0 // most damage is to what is behind the tables
	for objects < len(all) && all[objects].Key[0] == 0 && all[objects].Key[1] < 0x80 {
		objects++
	}
	rapid.Check(t, func(rt *rapid.T) {
		rows := whole.Clone()
		for range rapid.IntRange(1, 8).Draw(rt, "rows") {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(damages))).Draw(rt, "damage")
			row := all[rapid.IntRange(objects, len(all)-1).Draw(rt, "row")]
			if err := damages[name](t.Context(), rows, row, rapid.Byte().Draw(rt, "byte")); err != nil {
				rt.Fatal(err)
			}
		}
		settle(t, "several rows", rows)
	})
}

// TestTables: what happens to the rows of schemas and storage ids.
func TestTables(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		damage  func(w *ordered.Memory) error
		stopped bool
		whole   bool // the repair brings back what was there
	}{
		"no format version":     {func(w *ordered.Memory) error { return w.Delete(ctx, layout.FormatKey()) }, false, true},
		"format version 0":      {func(w *ordered.Memory) error { return w.Put(ctx, layout.FormatKey(), []byte{0}) }, false, true},
		"no schema":             {func(w *ordered.Memory) error { return w.Delete(ctx, layout.SchemaKey(1)) }, true, false},
		"damaged schema":        {func(w *ordered.Memory) error { return w.Put(ctx, layout.SchemaKey(1), []byte("x")) }, true, false},
		"no storage id":         {func(w *ordered.Memory) error { return w.Delete(ctx, layout.StorageKey(5)) }, false, true},
		"no last storage id":    {func(w *ordered.Memory) error { return w.Delete(ctx, layout.StorageKey(31)) }, false, true},
		"damaged storage id":    {func(w *ordered.Memory) error { return w.Put(ctx, layout.StorageKey(5), []byte("x")) }, false, true},
		"another storage id":    {func(w *ordered.Memory) error { return w.Put(ctx, layout.StorageKey(5), []byte("x\x00")) }, false, true},
		"storage id of no item": {func(w *ordered.Memory) error { return w.Put(ctx, layout.StorageKey(99), []byte("x\x00")) }, false, true},
		"two storage ids gone": {func(w *ordered.Memory) error {
			return errors.Join(w.Delete(ctx, layout.StorageKey(5)), w.Delete(ctx, layout.StorageKey(6)))
		}, true, false},
		"schema twice": {func(w *ordered.Memory) error {
			v, err := w.Get(ctx, layout.SchemaKey(1))
			return errors.Join(err, w.Put(ctx, layout.SchemaKey(2), v))
		}, false, true},
		"row between the tables": {func(w *ordered.Memory) error { return w.Put(ctx, []byte{0, 3}, nil) }, false, true},
		"empty key":              {func(w *ordered.Memory) error { return w.Put(ctx, nil, nil) }, false, true},
		"row of the app":         {func(w *ordered.Memory) error { return w.Delete(ctx, []byte{0, 0xff, 7}) }, false, true},
	} {
		rows := load(t, "03-filled")
		if err := rows.Put(ctx, []byte{0, 0xff, 8}, []byte("of the app")); err != nil {
			t.Fatal(err)
		}
		before := rows.Clone()
		if err := c.damage(rows); err != nil {
			t.Fatal(err)
		}
		res, _ := check(t, rows)
		if res.Stopped != c.stopped {
			t.Errorf("%s: %+v", name, res)
		}
		settle(t, name, rows)
		if diff := dump.Diff(t, rows, before); c.whole && diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if _, err := jsck.Check(ctx, ordered.NewMemory(), nil); !errors.Is(err, layout.ErrUninitialized) {
		t.Error(err)
	}
	other := load(t, "03-filled")
	if err := other.Put(ctx, layout.FormatKey(), []byte{7}); err != nil {
		t.Fatal(err)
	}
	if _, err := jsck.Check(ctx, other, nil); !errors.Is(err, base.ErrUnsupported) {
		t.Error(err)
	}
}
