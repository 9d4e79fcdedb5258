package permazen_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/internal/dump"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func objID(t testing.TB, s string) permazen.ObjID {
	t.Helper()
	id, err := encoding.ParseObjID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func model(t testing.TB, document string) *schema.Model {
	t.Helper()
	m, err := schema.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newDB(t testing.TB, document string, o *permazen.Options) *permazen.DB {
	t.Helper()
	db, err := permazen.New(model(t, document), o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func begin(t testing.TB, db *permazen.DB, w ordered.Writer) *permazen.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func schemaA(t testing.TB) string {
	b, err := os.ReadFile("testdata/schemaA.xml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func same(t testing.TB, got ordered.Reader, name string) {
	t.Helper()
	if diff := dump.Diff(t, got, dump.Load(t, "testdata/"+name)); diff != "" {
		t.Errorf("%s differs:\n%s", name, diff)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The objects of the dumps.
const (
	idP1 = "0411111111111111"
	idP2 = "0422222222222222"
	idP3 = "0433333333333333"
	idP4 = "0444444444444444"
	idH1 = "01aaaaaaaaaaaaaa"
)

// TestLife does what the reference has done, and wants its bytes after each step.
func TestLife(t *testing.T) {
	w := ordered.NewMemory()
	db := newDB(t, schemaA(t), nil)
	tx := begin(t, db, w)
	same(t, w, "01-empty-schemaA.kv")
	ctx := t.Context()
	for _, id := range []string{idP1, idP2, idP3, idP4, idH1} {
		if created, err := tx.CreateID(ctx, objID(t, id)); err != nil || !created {
			t.Fatal(created, err)
		}
	}
	same(t, w, "02-created.kv")
	fill(t, tx)
	same(t, w, "03-filled.kv")
	p1, p2, p3 := objID(t, idP1), objID(t, idP2), objID(t, idP3)
	must(t, tx.Set(ctx, p1, "name", nil), tx.Set(ctx, p1, "age", int32(0)))
	same(t, w, "04-back-to-default.kv")

	_, err := tx.Delete(ctx, p3)
	var referenced *permazen.ReferencedError
	if !errors.As(err, &referenced) || referenced.By != p1 || referenced.Field != "boss" || !errors.Is(err, permazen.ErrReferenced) {
		t.Errorf("delete p3: %v", err)
	}
	same(t, w, "04-back-to-default.kv")
	if ok, err := tx.Delete(ctx, p2); err != nil || !ok {
		t.Fatal(ok, err)
	}
	same(t, w, "05-deleted-p2.kv")
	if ok, err := tx.Delete(ctx, p1); err != nil || !ok {
		t.Fatal(ok, err)
	}
	// The reference leaves every second of adjacent duplicates in a list.
	want := dump.Load(t, "testdata/06-deleted-p1.kv")
	must(t, want.Delete(ctx, append(p3[:], 8, 0)), want.Delete(ctx, append(append([]byte{9}, p1[:]...), append(p3[:], 0)...)))
	if diff := dump.Diff(t, w, want); diff != "" {
		t.Error(diff)
	}
}

func fill(t *testing.T, tx *permazen.Tx) {
	ctx := t.Context()
	p1, p2, p3, p4, h1 := objID(t, idP1), objID(t, idP2), objID(t, idP3), objID(t, idP4), objID(t, idH1)
	set := func(id permazen.ObjID, field string, v any) { t.Helper(); must(t, tx.Set(ctx, id, field, v)) }
	for field, v := range map[string]any{
		"name": "Alice", "age": int32(30), "height": float32(1.75), "score": -2.5, "mood": "SAD", "spouse": p2, "boss": p3, "home": h1,
	} {
		set(p1, field, v)
	}
	must(t, tx.Adjust(ctx, p1, "visits", 5), tx.Adjust(ctx, p1, "visits", -7))
	for _, v := range []any{"Al", "Ally", "", nil} {
		_, err := tx.Add(ctx, p1, "nick", v)
		must(t, err)
	}
	must(t, tx.Append(ctx, p1, "log", int32(10), int32(20), int32(30)), tx.Insert(ctx, p1, "log", 1, int32(15)),
		tx.RemoveAt(ctx, p1, "log", 0), tx.SetAt(ctx, p1, "log", 1, int32(25)), tx.Append(ctx, p1, "log", int32(25)),
		tx.Append(ctx, p1, "friends", p2, p3, p2, nil),
		tx.Put(ctx, p1, "owes", p2, float32(12.5)), tx.Put(ctx, p1, "owes", p3, float32(7)),
		tx.Put(ctx, p1, "owes", p4, float32(0)), tx.Put(ctx, p1, "owes", nil, float32(1)))
	for field, v := range map[string]any{
		"name": "Bob", "age": int32(-1000), "male": true, "photo": []byte{1, 0, 0xff}, "born": encoding.LocalDate(-1), "mood": "HAPPY", "spouse": p1,
	} {
		set(p2, field, v)
	}
	must(t, tx.SetCounter(ctx, p2, "visits", 1<<63-1), tx.Put(ctx, p2, "tags", "", "e"), tx.Put(ctx, p2, "tags", "n", nil),
		tx.Put(ctx, p2, "tags", nil, "z"), tx.Append(ctx, p3, "friends", p1, p2, p1))
	set(p4, "owner", p2)
	set(h1, "addr", "1 \x00\x01 Main \U0001f600 \u00fb\uffff")
	set(h1, "name", "Alice")
}

// TestReadDump: what the reference has written is read as what it is.
func TestReadDump(t *testing.T) {
	w := dump.Load(t, "testdata/03-filled.kv")
	tx, err := newDB(t, schemaA(t), nil).View(t.Context(), w)
	must(t, err)
	var got []string
	for _, q := range []struct{ typ, index string }{{"Person", "moodScoreSpouse"}, {"Person", "nameAge"}, {"House", "name"}, {"Person", "log.element"}, {"Person", "owes.value"}} {
		x, err := tx.Index(q.typ, q.index)
		must(t, err)
		for e, err := range x.Range(t.Context(), permazen.Bounds{}) {
			must(t, err)
			got = append(got, fmt.Sprint(q.index, e.Values, e.ID, e.Element))
		}
	}
	want := []string{
		"moodScoreSpouse[HAPPY 0 0411111111111111] 0422222222222222 <nil>", "moodScoreSpouse[SAD -2.5 0422222222222222] 0411111111111111 <nil>",
		"moodScoreSpouse[<nil> 0 <nil>] 0433333333333333 <nil>", "moodScoreSpouse[<nil> 0 <nil>] 0444444444444444 <nil>",
		"nameAge[Alice 30] 0411111111111111 <nil>", "nameAge[Bob -1000] 0422222222222222 <nil>",
		"nameAge[<nil> 0] 0433333333333333 <nil>", "nameAge[<nil> 0] 0444444444444444 <nil>", "name[Alice] 01aaaaaaaaaaaaaa <nil>",
		"log.element[15] 0411111111111111 0", "log.element[25] 0411111111111111 1", "log.element[25] 0411111111111111 3", "log.element[30] 0411111111111111 2",
		"owes.value[0] 0411111111111111 0444444444444444", "owes.value[1] 0411111111111111 <nil>",
		"owes.value[7] 0411111111111111 0433333333333333", "owes.value[12.5] 0411111111111111 0422222222222222",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("entries are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if err := tx.Set(t.Context(), objID(t, idP1), "age", int32(1)); err == nil {
		t.Error("a view was changed")
	}
}

// TestMigrate: the reference has reset the value of a field that changed its type.
func TestMigrate(t *testing.T) {
	w := dump.Load(t, "testdata/03-filled.kv")
	ctx := t.Context()
	changed := strings.Replace(schemaA(t), `name="age" encoding="urn:fdc:permazen.io:2020:int"`, `name="age" encoding="urn:fdc:permazen.io:2020:long"`, 1)
	changed = strings.Replace(changed, `<CounterField name="visits"/>`, `<CounterField name="calls"/>`, 1)
	p1, p2 := objID(t, idP1), objID(t, idP2)
	db := newDB(t, changed, &permazen.Options{Migrate: func(ctx context.Context, m *permazen.Migration) error {
		if m.Type != "Person" || m.ID == p1 {
			return nil
		}
		if err := m.Tx.Set(ctx, m.ID, "age", int64(m.Old["age"].(int32))); err != nil {
			return err
		}
		return m.Tx.SetCounter(ctx, m.ID, "calls", m.Old["visits"].(int64))
	}})
	tx := begin(t, db, w)
	for id, want := range map[permazen.ObjID]int64{p1: 0, p2: -1000} {
		if v, err := tx.Get(ctx, id, "age"); err != nil || v != want {
			t.Errorf("age of %s is %v, %v", id, v, err)
		}
	}
	if v, err := tx.Get(ctx, p1, "name"); err != nil || v != "Alice" {
		t.Error(v, err)
	}
	if n, err := tx.Counter(ctx, p2, "calls"); err != nil || n != 1<<63-1 {
		t.Error(n, err)
	}
	if len(tx.Tables().Schemas) != 2 {
		t.Errorf("%d schemas", len(tx.Tables().Schemas))
	}
	if res, err := jsck.Check(ctx, w, nil); err != nil || res.Issues > 0 {
		t.Errorf("with two schemas of one type: %+v, %v", res, err)
	}
	if n, err := tx.MigrateAll(ctx); err != nil || n != 3 {
		t.Errorf("%d objects, %v", n, err)
	}
	if n, err := tx.RemoveSchemas(ctx); err != nil || n != 1 {
		t.Errorf("%d schemas removed, %v", n, err)
	}
	for row, err := range ordered.Rows(ctx, w, ordered.Prefix(layout.ObjectsTable[:])) {
		must(t, err)
		if !bytes.HasPrefix(row.Key, []byte{0, 0x80, 2}) {
			t.Errorf("row %x is left", row.Key)
		}
	}
	if _, err := w.Get(ctx, layout.StorageKey(5)); err == nil {
		t.Error("the storage id of the old field is left")
	}
}
