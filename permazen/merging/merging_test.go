package merging_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/internal/dump"
	"github.com/ledgerd/ledger/permazen/internal/histories"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/merging"
	"github.com/ledgerd/ledger/permazen/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t fataler, document string, seed byte) *permazen.DB {
	m, err := schema.Parse([]byte(document))
	must(t, err)
	db, err := permazen.New(m, &permazen.Options{Random: rand.NewChaCha8([32]byte{seed})})
	must(t, err)
	return db
}

// merge merges two versions as a page would.
func merge(ctx context.Context, t fataler, base, left, right *ordered.Memory, leftNewer bool) *ordered.Memory {
	t.Helper()
	result := base.Clone()
	m, err := merging.New(ctx, merging.Versions{
		Base: base, Left: left, Right: right, Result: result, LeftNewer: func(encoding.ObjID) bool { return leftNewer },
	})
	must(t, err)
	var all [3]map[string]string
	keys := map[string]bool{}
	for i, r := range []*ordered.Memory{base, left, right} {
		all[i] = map[string]string{}
		for row, err := range ordered.Rows(ctx, r, ordered.Range{}) {
			must(t, err)
			all[i][string(row.Key)] = string(row.Value)
			keys[string(row.Key)] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		b, inBase := all[0][key]
		l, inLeft := all[1][key]
		r, inRight := all[2][key]
		if inBase == inLeft && inBase == inRight && b == l && b == r {
			continue
		}
		must(t, m.Changed(ctx, []byte(key), [3]bool{inBase, inLeft, inRight}))
	}
	must(t, m.Finish(ctx))
	return result
}

func clean(ctx context.Context, t fataler, r ordered.Reader) {
	t.Helper()
	var issues []string
	_, err := jsck.Check(ctx, r, &jsck.Options{Report: func(i jsck.Issue) error {
		issues = append(issues, i.String())
		return nil
	}})
	must(t, err)
	if len(issues) > 0 {
		t.Fatalf("issues:\n%s", strings.Join(issues, "\n"))
	}
}

// TestLaws: M1, M2 and M3 for what two sides have made of one base.
func TestLaws(t *testing.T) {
	models := histories.Models()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := rt.Context()
		change := func(seed byte, w *ordered.Memory, n int) {
			for range rapid.IntRange(0, n).Draw(rt, "transactions") {
				tx, err := open(rt, models[rapid.IntRange(0, 2).Draw(rt, "schema")], seed).Begin(ctx, w)
				must(rt, err)
				for range rapid.IntRange(1, 8).Draw(rt, "operations") {
					must(rt, histories.Operate(ctx, rt, tx))
				}
				seed += 16
			}
		}
		base := ordered.NewMemory()
		_, err := open(rt, models[0], 1).Begin(ctx, base)
		must(rt, err)
		change(1, base, 3)
		left, right := base.Clone(), base.Clone()
		change(2, left, 3)
		change(3, right, 3)
		newer := rapid.Bool().Draw(rt, "left is newer")
		for _, v := range []*ordered.Memory{base, left, right} {
			clean(ctx, rt, v)
		}
		result := merge(ctx, rt, base, left, right, newer)
		clean(ctx, rt, result)
		if diff := dump.Diff(t, result, merge(ctx, rt, base, right, left, !newer)); diff != "" {
			rt.Fatalf("the other way:\n%s", diff)
		}
		one := merge(ctx, rt, base, left, base, newer)
		clean(ctx, rt, one)
		if diff := dump.Diff(t, one, left); diff != "" && keepsNumbers(ctx, rt, base, left) {
			rt.Fatalf("one side:\n%s", diff)
		}
		if diff := dump.Diff(t, merge(ctx, rt, base, left, left, newer), left); diff != "" {
			rt.Fatalf("same side:\n%s", diff)
		}
	})
}

// keepsNumbers reports whether no schema and no item has another number than in the base.
func keepsNumbers(ctx context.Context, t fataler, base, side *ordered.Memory) bool {
	b, err := layout.Load(ctx, base)
	must(t, err)
	s, err := layout.Load(ctx, side)
	must(t, err)
	names := map[uint32]string{}
	for id, n := range s.IDs {
		names[n] = id
	}
	for id, n := range b.IDs {
		if s.IDs[id] != 0 && s.IDs[id] != n || names[n] != "" && names[n] != id {
			return false
		}
	}
	for n, x := range b.Schemas {
		if y := s.Find(x.ID); y != nil && y.Index != n || s.Schemas[n] != nil && s.Schemas[n].ID != x.ID {
			return false
		}
	}
	return true
}

const people = `<Schema><ObjectType name="P">
 <SimpleField name="name" encoding="urn:fdc:permazen.io:2020:String" indexed="true"/>
 <SimpleField name="age" encoding="urn:fdc:permazen.io:2020:int"/>
 <ReferenceField name="boss" inverseDelete="EXCEPTION"/><ReferenceField name="spouse" inverseDelete="NULLIFY"/><ReferenceField name="owner" inverseDelete="DELETE"/>
 <ReferenceField name="house" inverseDelete="NULLIFY" forwardDelete="true"/>
 <CounterField name="n"/>
 <ListField name="log"><SimpleField encoding="urn:fdc:permazen.io:2020:String" indexed="true"/></ListField>
 <ListField name="friends"><ReferenceField inverseDelete="REMOVE"/></ListField>
 <MapField name="tags"><SimpleField encoding="urn:fdc:permazen.io:2020:String"/><SimpleField encoding="urn:fdc:permazen.io:2020:String"/></MapField>
 <CompositeIndex name="nameAge"><Field name="name"/><Field name="age"/></CompositeIndex>
</ObjectType>%s</Schema>`

func id(n byte) permazen.ObjID { return permazen.ObjID{1, n, n, n, n, n, n, n} }

// TestFields: what becomes of each kind of field that both sides have changed, the right one last.
func TestFields(t *testing.T) {
	ctx := t.Context()
	db := open(t, fmt.Sprintf(people, ""), 1)
	type edit func(tx *permazen.Tx) error
	in := func(w ordered.Writer, edits ...edit) {
		t.Helper()
		tx, err := db.Begin(ctx, w)
		must(t, err)
		for _, e := range edits {
			must(t, e(tx))
		}
	}
	set := func(o byte, field string, v any) edit {
		return func(tx *permazen.Tx) error { return tx.Set(ctx, id(o), field, v) }
	}
	list := func(values ...any) edit {
		return func(tx *permazen.Tx) error {
			if err := tx.Clear(ctx, id(1), "log"); err != nil {
				return err
			}
			return tx.Append(ctx, id(1), "log", values...)
		}
	}
	put := func(k string, v any) edit {
		return func(tx *permazen.Tx) error { return tx.Put(ctx, id(1), "tags", k, v) }
	}
	drop := func(k string) edit {
		return func(tx *permazen.Tx) error { _, err := tx.Remove(ctx, id(1), "tags", k); return err }
	}
	adjust := func(n int64) edit { return func(tx *permazen.Tx) error { return tx.Adjust(ctx, id(1), "n", n) } }
	del := func(o byte) edit { return func(tx *permazen.Tx) error { _, err := tx.Delete(ctx, id(o)); return err } }
	friend := func(o byte) edit {
		return func(tx *permazen.Tx) error { return tx.Append(ctx, id(1), "friends", id(o)) }
	}
	all := func(edits ...edit) edit {
		return func(tx *permazen.Tx) error {
			for _, e := range edits {
				if err := e(tx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	nothing := all()
	for name, c := range map[string]struct {
		base, left, right edit
		want              edit // of the base
	}{
		"two fields of a composite index": {nothing, set(1, "name", "L"), set(1, "age", int32(5)), all(set(1, "name", "L"), set(1, "age", int32(5)))},
		"one field":                       {nothing, set(1, "name", "L"), set(1, "name", "R"), set(1, "name", "R")},
		"counter":                         {adjust(10), adjust(5), adjust(-2), adjust(3)},
		"list, two places":                {list("a", "b", "c"), list("x", "a", "b", "c"), list("a", "b"), list("x", "a", "b")},
		"list, one place":                 {list("a", "b"), list("a", "L", "b"), list("a", "R", "b"), list("a", "L", "R", "b")},
		"list, one element":               {list("a", "b"), list("L", "b"), list("R", "b"), list("R", "b")},
		"map, two keys":                   {nothing, put("l", "1"), put("r", "2"), all(put("l", "1"), put("r", "2"))},
		"map, one key":                    {put("k", "0"), put("k", "1"), put("k", "2"), put("k", "2")},
		"map, removed and changed":        {put("k", "0"), put("k", "1"), drop("k"), put("k", "1")},
		"map, removed":                    {put("k", "0"), nothing, drop("k"), drop("k")},
		"deleted and changed":             {nothing, del(2), set(2, "name", "R"), set(2, "name", "R")},
		"deleted":                         {nothing, del(2), set(1, "name", "R"), all(del(2), set(1, "name", "R"))},
		"reference that forbids":          {nothing, del(2), set(1, "boss", id(2)), set(1, "boss", id(2))},
		"reference that becomes null":     {nothing, del(2), set(1, "spouse", id(2)), del(2)},
		"reference that deletes":          {nothing, del(2), set(1, "owner", id(2)), all(del(2), del(1))},
		"reference in a list":             {nothing, del(2), all(friend(2), friend(3), friend(2)), all(del(2), friend(3))},
		"what is deleted together":        {nothing, del(2), all(set(1, "owner", id(2)), set(1, "house", id(3)), set(4, "house", id(3))), all(del(2), del(1), del(3))},
		"deleted together, forbidden": {nothing, del(2), all(set(1, "owner", id(2)), set(1, "house", id(3)), set(4, "boss", id(3))),
			all(set(1, "owner", id(2)), set(1, "house", id(3)), set(4, "boss", id(3)))},
		"deleted together, and with another": {set(1, "house", id(3)), del(1), set(3, "name", "R"), all(set(3, "name", "R"), set(1, "house", nil), del(1))},
		"what deletes is forbidden":          {nothing, del(2), all(set(1, "owner", id(2)), set(3, "boss", id(1))), all(set(1, "owner", id(2)), set(3, "boss", id(1)))},
	} {
		base := ordered.NewMemory()
		in(base, func(tx *permazen.Tx) error {
			for n := byte(1); n <= 4; n++ {
				if _, err := tx.CreateID(ctx, id(n)); err != nil {
					return err
				}
			}
			return nil
		}, c.base)
		left, right, want := base.Clone(), base.Clone(), base.Clone()
		in(left, c.left)
		in(right, c.right)
		in(want, c.want)
		if diff := dump.Diff(t, merge(ctx, t, base, left, right, false), want); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestOneNumberOfTwoThings: both sides have given an object a schema and a counter of their own
// under the same numbers, so that its rows are the same on both. A base of several commits has the
// rows on which they agree.
func TestOneNumberOfTwoThings(t *testing.T) {
	ctx := t.Context()
	with := func(counter string) string {
		return strings.Replace(fmt.Sprintf(people, ""), `<CounterField name="n"/>`, `<CounterField name="n"/><CounterField name="`+counter+`"/>`, 1)
	}
	for n := range 8 { // which of the two keeps a number follows from the names
		start := ordered.NewMemory()
		tx, err := open(t, fmt.Sprintf(people, ""), 1).Begin(ctx, start)
		must(t, err)
		_, err = tx.CreateID(ctx, id(1))
		must(t, err)
		left, right, both := start.Clone(), start.Clone(), ordered.NewMemory()
		for name, w := range map[string]*ordered.Memory{"l": left, "r": right} {
			tx, err := open(t, with(fmt.Sprint(name, n)), 1).Begin(ctx, w)
			must(t, err)
			_, err = tx.MigrateAll(ctx)
			must(t, err)
		}
		for row, err := range ordered.Rows(ctx, left, ordered.Range{}) {
			must(t, err)
			v, err := right.Get(ctx, row.Key)
			if same := err == nil && bytes.Equal(v, row.Value); same {
				must(t, both.Put(ctx, row.Key, v))
			} else if mine := id(1); bytes.HasPrefix(row.Key, mine[:]) {
				t.Fatalf("the row %x of the object is not the same on both sides", row.Key)
			}
		}
		result := merge(ctx, t, both, left, right, true)
		clean(ctx, t, result)
		if diff := dump.Diff(t, result, merge(ctx, t, both, right, left, false)); diff != "" {
			t.Fatalf("the other way:\n%s", diff)
		}
	}
}

// TestNumbers: types and schemas that took one number on two sides get two, with all that they
// name, also when the greatest number is in use.
func TestNumbers(t *testing.T) {
	numbers(t, "")
	numbers(t, fmt.Sprintf(`<ObjectType name="Z" storageId="%d"/>`, encoding.MaxUint))
}

func numbers(t *testing.T, types string) {
	ctx := t.Context()
	base := ordered.NewMemory()
	_, err := open(t, fmt.Sprintf(people, types), 1).Begin(ctx, base)
	must(t, err)
	left, right := base.Clone(), base.Clone()
	var made []permazen.ObjID
	for i, w := range []*ordered.Memory{left, right} {
		name := string(rune('Q' + i))
		tx, err := open(t, fmt.Sprintf(people, types+`<ObjectType name="`+name+`"><SimpleField name="x`+name+`" encoding="urn:fdc:permazen.io:2020:int" indexed="true"/>
		  <ReferenceField name="to`+name+`"/></ObjectType>`), byte(i)).Begin(ctx, w)
		must(t, err)
		a, err := tx.Create(ctx, name)
		must(t, err)
		b, err := tx.Create(ctx, name)
		must(t, err)
		must(t, tx.Set(ctx, a, "to"+name, b))
		must(t, tx.Set(ctx, a, "x"+name, int32(7)))
		made = append(made, a)
	}
	if !bytes.Equal(made[0][:1], made[1][:1]) {
		t.Fatalf("the types have different numbers: %s, %s", made[0], made[1])
	}
	result := merge(ctx, t, base, left, right, true)
	clean(ctx, t, result)
	for _, name := range []string{"Q", "R"} {
		tx, err := open(t, fmt.Sprintf(people, types+`<ObjectType name="`+name+`"><SimpleField name="x`+name+`" encoding="urn:fdc:permazen.io:2020:int" indexed="true"/>
		  <ReferenceField name="to`+name+`"/></ObjectType>`), 9).View(ctx, result)
		must(t, err)
		x, err := tx.Index(name, "x"+name)
		must(t, err)
		ids, err := x.Equal(int32(7))
		must(t, err)
		n := 0
		for a, err := range permazen.Each(ctx, ids) {
			must(t, err)
			n++
			b, err := tx.Get(ctx, a, "to"+name)
			must(t, err)
			if there, err := tx.Exists(ctx, b.(permazen.ObjID)); err != nil || !there {
				t.Errorf("%s refers to %v, %v", a, b, err)
			}
		}
		if n != 1 {
			t.Errorf("%d objects of type %s", n, name)
		}
	}
}
