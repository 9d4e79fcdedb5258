package permazen_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/jsck"
)

type mood string

// everything has a field of each kind.
type everything struct {
	_ struct{} `permazen:"nameAge:name,age"`
	_ struct{} `permazen:"moodName:mood,name"`

	Name    string                               `permazen:",index"`
	Age     int32                                `permazen:"age"`
	Big     int                                  `permazen:"big,index"`
	Maybe   *int32                               `permazen:"maybe"`
	Text    *string                              `permazen:"text"`
	Mood    mood                                 `permazen:"mood,enum=HAPPY|SAD,index"`
	Home    string                               `permazen:"home,enc=URI"`
	Photo   []byte                               `permazen:"photo"`
	Born    encoding.LocalDate                   `permazen:"born"`
	Seen    time.Time                            `permazen:"seen"`
	Money   *big.Int                             `permazen:"money"`
	Numbers []int32                              `permazen:"numbers,enc=int[]"`
	Boss    permazen.Ref[everything]             `permazen:"boss"`
	Any     permazen.ObjID                       `permazen:"any,inverse=ignore"`
	Visits  permazen.Counter                     `permazen:"visits"`
	Nick    permazen.Set[string]                 `permazen:"nick,index"`
	Friends []permazen.Ref[everything]           `permazen:"friends,inverse=remove"`
	Owes    map[permazen.Ref[everything]]float32 `permazen:"owes,inverse=remove,valueindex"`
	Plain   string
}

func (e *everything) Validate() error {
	if e.Age < 0 {
		return errors.New("the age is below 0")
	}
	return nil
}

func goModel(t testing.TB) (*permazen.DB, *permazen.Collection[everything]) {
	t.Helper()
	var models permazen.Models
	c, err := permazen.Define[everything](&models, "Everything")
	must(t, err)
	m, err := models.Model()
	must(t, err)
	db, err := permazen.New(m, nil)
	must(t, err)
	return db, c
}

func TestGoModel(t *testing.T) {
	ctx := t.Context()
	db, c := goModel(t)
	w := ordered.NewMemory()
	tx := begin(t, db, w)
	empty := everything{}
	boss, err := c.Create(ctx, tx, &empty)
	must(t, err)
	five, text := int32(5), ""
	v := everything{
		Name: "Ann", Age: 7, Big: -1, Maybe: &five, Text: &text, Mood: "SAD", Home: "http://x", Photo: []byte{1}, Born: 5,
		Seen: time.Unix(5, 6).UTC(), Money: big.NewInt(-5), Numbers: []int32{1, 2}, Boss: boss, Any: boss.ID, Visits: 9,
		Nick: permazen.SetOf("a", ""), Friends: []permazen.Ref[everything]{boss, {}, boss}, Owes: map[permazen.Ref[everything]]float32{boss: 2, {}: 1},
	}
	r, err := c.Create(ctx, tx, &v)
	must(t, err)
	equal := func(want everything) {
		t.Helper()
		got, err := c.Get(ctx, tx, r)
		must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(everything{}), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
			t.Error(diff)
		}
	}
	// A null in a set of Go strings is the empty string.
	equal(v)
	must(t, c.Update(ctx, tx, r, func(v *everything) error { v.Name, v.Friends, v.Maybe = "Bea", v.Friends[:2], nil; return nil }))
	v.Name, v.Friends, v.Maybe = "Bea", v.Friends[:2], nil
	equal(v)
	before := w.Clone()
	must(t, c.Put(ctx, tx, r, &v))
	if before.Len() != w.Len() {
		t.Error("a put of what was there has changed something")
	}
	for _, q := range []struct {
		index  string
		values []any
	}{{"name", []any{"Bea"}}, {"nameAge", []any{"Bea", int32(7)}}, {"moodName", []any{"SAD", "Bea"}}, {"nick.element", []any{"a"}}, {"owes.value", []any{float32(2)}}, {"friends.element", []any{boss.ID}}} {
		n := 0
		for got, err := range c.Find(ctx, tx, q.index, q.values...) {
			must(t, err)
			if n++; got != r {
				t.Errorf("%s: %s", q.index, got.ID)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d objects", q.index, n)
		}
	}
	if err := c.Update(ctx, tx, r, func(v *everything) error { v.Age = -1; return nil }); !errors.Is(err, permazen.ErrInvalidObject) {
		t.Error(err)
	}
	if _, err := c.Create(ctx, tx, &everything{Boss: permazen.Ref[everything]{ID: permazen.ObjID{0x42, 1}}}); !errors.Is(err, permazen.ErrBadReference) {
		t.Error(err)
	}
	if _, err := c.Delete(ctx, tx, boss); !errors.Is(err, permazen.ErrReferenced) {
		t.Error(err)
	}
	if res, err := jsck.Check(ctx, w, nil); err != nil || res.Issues != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	equal(v)
}

// TestBadModels: what cannot be a model.
func TestBadModels(t *testing.T) {
	define := func(f func(*permazen.Models) error) {
		t.Helper()
		var m permazen.Models
		err := f(&m)
		if err == nil {
			_, err = m.Model()
		}
		if err == nil {
			t.Error("no error")
		}
	}
	type unknownWord struct {
		A int32 `permazen:"a,what"`
	}
	type channel struct {
		A chan int `permazen:"a"`
	}
	type unexported struct {
		a int32 `permazen:"a"`
	}
	type other struct{}
	type undefined struct {
		A permazen.Ref[other] `permazen:"a"`
	}
	type badEnum struct {
		A int32 `permazen:"a,enum=X"`
	}
	define(func(m *permazen.Models) error { _, err := permazen.Define[unknownWord](m, "A"); return err })
	define(func(m *permazen.Models) error { _, err := permazen.Define[channel](m, "A"); return err })
	define(func(m *permazen.Models) error { _, err := permazen.Define[unexported](m, "A"); return err })
	define(func(m *permazen.Models) error { _, err := permazen.Define[undefined](m, "A"); return err })
	define(func(m *permazen.Models) error { _, err := permazen.Define[badEnum](m, "A"); return err })
	define(func(m *permazen.Models) error { _, err := permazen.Define[int](m, "A"); return err })
	_ = unexported{}.a
}

// TestIDs: intersections and unions are sorted and have each id once, for all sets.
func TestIDs(t *testing.T) {
	ctx := t.Context()
	db, c := goModel(t)
	w := ordered.NewMemory()
	tx := begin(t, db, w)
	want := map[permazen.ObjID]bool{}
	for i := range 200 {
		v := everything{Name: fmt.Sprint(i % 3), Big: i % 5, Nick: permazen.SetOf("x", fmt.Sprint(i%2))}
		r, err := c.Create(ctx, tx, &v)
		must(t, err)
		if i%3 == 1 && (i%5 == 2 || i%5 == 3) {
			want[r.ID] = true
		}
	}
	equal := func(index string, v any) permazen.IDs {
		x, err := tx.Index("Everything", index)
		must(t, err)
		ids, err := x.Equal(v)
		must(t, err)
		return ids
	}
	big, err := tx.Index("Everything", "big")
	must(t, err)
	within, err := big.Within(ctx, permazen.Bounds{From: []any{int64(2)}, To: []any{int64(3)}, ToClosed: true})
	must(t, err)
	objects, err := tx.Objects("Everything")
	must(t, err)
	last := permazen.ObjID{}
	n := 0
	for id, err := range permazen.Each(ctx, permazen.Intersect(objects, equal("name", "1"), equal("nick.element", "x"), permazen.Union(equal("big", int64(2)), equal("big", int64(3))), within, tx.WithSchema(1))) {
		must(t, err)
		if n++; !want[id] || id.String() <= last.String() {
			t.Errorf("id %s behind %s", id, last)
		}
		last = id
	}
	if n != len(want) {
		t.Errorf("%d objects, want %d", n, len(want))
	}
	counts := map[string]int{}
	for _, b := range []permazen.Bounds{{From: []any{int64(3)}}, {From: []any{int64(3)}, FromOpen: true}, {To: []any{int64(1)}}, {To: []any{int64(1)}, ToClosed: true, Reverse: true}} {
		for e, err := range big.Range(ctx, b) {
			must(t, err)
			counts[fmt.Sprint(b.From, b.To, b.FromOpen, b.ToClosed)]++
			_ = e
		}
	}
	if diff := cmp.Diff(counts, map[string]int{"[3] [] false false": 80, "[3] [] true false": 40, "[] [1] false false": 40, "[] [1] false true": 80}); diff != "" {
		t.Error(diff)
	}
}
