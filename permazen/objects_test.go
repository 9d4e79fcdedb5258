package permazen_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/layout"
)

// elements returns the elements of a collection as text.
func elements(t testing.TB, tx *permazen.Tx, id permazen.ObjID, field string) (all []string) {
	t.Helper()
	for e, err := range tx.Elements(t.Context(), id, field) {
		must(t, err)
		all = append(all, fmt.Sprint(e.Key, "=", e.Value))
	}
	return all
}

// TestCollections: what sets, lists and maps answer, and what they refuse.
func TestCollections(t *testing.T) {
	ctx := t.Context()
	w := ordered.NewMemory()
	tx := begin(t, newDB(t, schemaA(t), nil), w)
	p, err := tx.Create(ctx, "Person")
	must(t, err)
	h, err := tx.Create(ctx, "House")
	must(t, err)
	for _, want := range []bool{true, false} {
		if added, err := tx.Add(ctx, p, "nick", "a"); err != nil || added != want {
			t.Error(added, err)
		}
	}
	must(t, tx.Append(ctx, p, "log", int32(1), int32(2), int32(3)))
	must(t, tx.Put(ctx, p, "tags", "k", "v"))
	must(t, tx.Put(ctx, p, "tags", "k", "w"))
	if n, err := tx.Len(ctx, p, "log"); err != nil || n != 3 {
		t.Error(n, err)
	}
	if v, err := tx.At(ctx, p, "log", 1); err != nil || v != int32(2) {
		t.Error(v, err)
	}
	if _, err := tx.At(ctx, p, "log", 3); !errors.Is(err, base.ErrNotFound) {
		t.Error(err)
	}
	if v, ok, err := tx.Lookup(ctx, p, "tags", "k"); err != nil || !ok || v != "w" {
		t.Error(v, ok, err)
	}
	if ok, err := tx.Contains(ctx, p, "nick", "b"); err != nil || ok {
		t.Error(ok, err)
	}
	if diff := cmp.Diff([]string{"0=1", "1=2", "2=3"}, elements(t, tx, p, "log")); diff != "" {
		t.Error(diff)
	}
	for _, f := range []string{"log", "nick", "tags"} {
		must(t, tx.Clear(ctx, p, f))
		if got := elements(t, tx, p, f); len(got) > 0 {
			t.Errorf("%s: %q", f, got)
		}
	}
	for name, c := range map[string]struct{ err, want error }{
		"an unknown field":           {tx.Set(ctx, p, "what", 1), permazen.ErrNoField},
		"a set as a value":           {tx.Set(ctx, p, "nick", "x"), base.ErrInvalid},
		"a value of another type":    {tx.Set(ctx, p, "age", "x"), base.ErrInvalid},
		"an enum that is not":        {tx.Set(ctx, p, "mood", "what"), base.ErrInvalid},
		"a target of another type":   {tx.Set(ctx, p, "spouse", h), permazen.ErrBadReference},
		"a target that is not there": {tx.Set(ctx, p, "boss", objID(t, idP1)), permazen.ErrBadReference},
		"a target that may be gone":  {tx.Set(ctx, p, "home", objID(t, idH1)), nil},
		"an object that is not":      {tx.Set(ctx, objID(t, idP1), "age", int32(1)), permazen.ErrNoObject},
		"behind a list":              {tx.Insert(ctx, p, "log", 5, int32(1)), base.ErrInvalid},
		"no element":                 {tx.RemoveAt(ctx, p, "log", 0), base.ErrInvalid},
		"a counter that is none":     {tx.Adjust(ctx, p, "age", 1), base.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) || (c.err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if _, err := tx.Create(ctx, "What"); !errors.Is(err, permazen.ErrNoType) {
		t.Error(err)
	}
	if res, err := jsck.Check(ctx, w, nil); err != nil || res.Issues > 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestOpening: what is no database is refused, a fixed schema stays, and a view of nothing is
// empty.
func TestOpening(t *testing.T) {
	ctx := t.Context()
	other := ordered.NewMemory()
	must(t, other.Put(ctx, []byte{0, 0xff, 1}, nil)) // of the app
	db := newDB(t, schemaA(t), nil)
	tx, err := db.View(ctx, other)
	must(t, err)
	ids, err := tx.Objects("Person")
	must(t, err)
	for id := range permazen.Each(ctx, ids) {
		t.Error(id)
	}
	if _, err := tx.Create(ctx, "Person"); !errors.Is(err, base.ErrReadOnly) {
		t.Error(err)
	}
	begin(t, db, other)
	fixed := newDB(t, `<Schema><ObjectType name="X"/></Schema>`, &permazen.Options{FixedSchema: true})
	if _, err := fixed.Begin(ctx, other); !errors.Is(err, base.ErrConflict) {
		t.Error(err)
	}
	must(t, other.Put(ctx, layout.FormatKey(), []byte{9}))
	if _, err := db.Begin(ctx, other); !errors.Is(err, base.ErrUnsupported) {
		t.Error(err)
	}
	foreign := ordered.NewMemory()
	must(t, foreign.Put(ctx, []byte("k"), nil))
	if _, err := db.Begin(ctx, foreign); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
}

// TestTypeIsGone: objects whose type is not in the new schema stay, and say so.
func TestTypeIsGone(t *testing.T) {
	ctx := t.Context()
	w := ordered.NewMemory()
	tx := begin(t, newDB(t, schemaA(t), nil), w)
	id, err := tx.Create(ctx, "House")
	must(t, err)
	tx = begin(t, newDB(t, `<Schema><ObjectType name="X"/></Schema>`, nil), w)
	if _, err := tx.Get(ctx, id, "name"); !errors.Is(err, permazen.ErrNoType) {
		t.Error(err)
	}
	if n, err := tx.MigrateAll(ctx); err != nil || n != 0 {
		t.Error(n, err)
	}
	if there, err := tx.Exists(ctx, id); err != nil || !there {
		t.Error(there, err)
	}
	if n, err := tx.RemoveSchemas(ctx); err != nil || n != 0 {
		t.Error(n, err)
	}
}
