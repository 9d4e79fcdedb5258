package idb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/indexeddb/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests in this package that have wpt in their comments are the cases of web-platform-tests,
// directory IndexedDB, with the names that they have there. What is of scripts alone is left out:
// events and their order, getters, prototypes, conversion of arguments, and requests that are made
// while another one is under way.

// tb is what a test and a check by rapid have in common.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Context() context.Context
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// have is must for calls that give something.
func have[T any](t tb) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// is wants an error, none when want is nil.
func is(t tb, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// opened returns a database of version 1 that upgrade has made in memory.
func opened(t tb, upgrade func(ctx context.Context, u *idb.Upgrade)) (*idb.Memory, *idb.DB) {
	t.Helper()
	rows := idb.NewMemory()
	db, err := idb.New(rows, nil).Open(t.Context(), "db", 1, func(ctx context.Context, u *idb.Upgrade) error {
		upgrade(ctx, u)
		return nil
	})
	must(t, err)
	return rows, db
}

// inUpgrade calls fn in the upgrade of a new database, which is aborted then.
func inUpgrade(t *testing.T, fn func(ctx context.Context, u *idb.Upgrade)) {
	t.Helper()
	stop := errors.New("stop")
	_, err := idb.New(idb.NewMemory(), nil).Open(t.Context(), "db", 1, func(ctx context.Context, u *idb.Upgrade) error {
		fn(ctx, u)
		return stop
	})
	is(t, "open", err, idb.ErrAbort)
	is(t, "open", err, stop)
}

// begin returns an object store in a transaction.
func begin(t tb, db *idb.DB, mode idb.Mode, store string) *idb.ObjectStore {
	t.Helper()
	tx := have[*idb.Tx](t)(db.Begin(t.Context(), mode, store))
	return have[*idb.ObjectStore](t)(tx.ObjectStore(store))
}

func commit(t tb, s *idb.ObjectStore) {
	t.Helper()
	must(t, s.Tx().Commit(t.Context()))
}

// clean checks what is stored: that all rows are well formed, and index rows are those of the
// records.
func clean(t tb, rows idb.Rows) profile.Result {
	t.Helper()
	r, end, err := rows.View(t.Context())
	must(t, err)
	p, err := profile.OpenPage(t.Context(), r, nil)
	must(t, err)
	result, err := p.Check(t.Context())
	must(t, err)
	must(t, p.Close())
	must(t, end())
	return result
}

// object makes an object of names and values in turns, with numbers of Go.
func object(namesAndValues ...any) *value.Object {
	for i := range namesAndValues {
		namesAndValues[i] = js(namesAndValues[i])
	}
	return value.NewObject(namesAndValues...)
}

// js makes a value of a script of numbers and slices of Go.
func js(v any) value.Value {
	switch v := v.(type) {
	case nil:
		return value.Null{}
	case int:
		return float64(v)
	case []any:
		a := value.NewArray()
		for _, e := range v {
			a.Elements = append(a.Elements, js(e))
			a.Length++
		}
		return a
	}
	return v
}

// array is js of a slice.
func array(elements ...any) value.Value { return js(elements) }

// text returns a value for comparisons.
func text(v any) string {
	switch v := v.(type) {
	case *value.Object:
		parts := make([]string, len(v.Properties))
		for i, p := range v.Properties {
			parts[i] = p.Name + ":" + text(p.Value)
		}
		return "{" + strings.Join(parts, " ") + "}"
	case *value.Array:
		return text(v.Elements)
	case []value.Value:
		return list(v)
	case []indexeddb.Key:
		return list(v)
	case *idb.Record:
		return fmt.Sprintf("%v/%v/%s", v.Key, v.PrimaryKey, text(v.Value))
	case []*idb.Record:
		return list(v)
	}
	return fmt.Sprint(v)
}

func list[T any](all []T) string {
	parts := make([]string, len(all))
	for i, e := range all {
		parts[i] = text(e)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func wants(t tb, what string, got any, want string) {
	t.Helper()
	if s := text(got); s != want {
		t.Errorf("%s: %s, want %s", what, s, want)
	}
}

// walk returns the keys and primary keys that a cursor comes to.
func walk(t tb, c *idb.Cursor, err error) (all []string) {
	t.Helper()
	must(t, err)
	defer c.Close()
	for !c.Done() {
		all = append(all, fmt.Sprintf("%v:%v", c.Key(), c.PrimaryKey()))
		must(t, c.Continue(t.Context(), nil))
	}
	return all
}

func equal(t tb, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// have2 is have for calls that give something else, too.
func have2[T, U any](t tb) func(T, U, error) T {
	return func(v T, _ U, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}
