package idb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// TestOpen: wpt idbfactory_open, idbfactory_deleteDatabase, get-databases, idbversionchangeevent.
func TestOpen(t *testing.T) {
	ctx := t.Context()
	f := idb.New(idb.NewMemory(), nil)
	var calls []string
	open := func(name string, version int64) (*idb.DB, error) {
		return f.Open(ctx, name, version, func(_ context.Context, u *idb.Upgrade) error {
			calls = append(calls, fmt.Sprintf("%d-%d", u.OldVersion, u.NewVersion))
			if u.Mode() != idb.VersionChange || u.DB().Version() != u.NewVersion {
				t.Error("mode, or version of the connection")
			}
			if u.OldVersion == 0 {
				have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
			}
			return nil
		})
	}
	for _, c := range []struct {
		name    string
		db      string
		version int64
		want    error
		got     int64
		calls   string
	}{
		{"new database has default version", "a", 0, nil, 1, "0-1"},
		{"no version opens current database", "a", 0, nil, 1, "0-1"},
		{"open database with a higher version than current", "a", 14, nil, 14, "0-1 1-14"},
		{"the same version", "a", 14, nil, 14, "0-1 1-14"},
		{"open database with a lower version than current", "a", 13, idb.ErrVersion, 0, "0-1 1-14"},
		{"Calling open() with version argument -1 should throw TypeError.", "a", -1, idb.ErrType, 0, "0-1 1-14"},
		{"Calling open() with version argument 0x20000000000000 should throw TypeError.", "a", 1 << 53, idb.ErrType, 0, "0-1 1-14"},
		{"Calling open() with version argument MAX_SAFE_INTEGER", "b", 1<<53 - 1, nil, 1<<53 - 1, "0-1 1-14 0-9007199254740991"},
		{"empty name", "", 2, nil, 2, "0-1 1-14 0-9007199254740991 0-2"},
	} {
		db, err := open(c.db, c.version)
		is(t, c.name, err, c.want)
		if err == nil && (db.Version() != c.got || db.Name() != c.db) {
			t.Errorf("%s: version %d of %q", c.name, db.Version(), db.Name())
		}
		if got := strings.Join(calls, " "); got != c.calls {
			t.Errorf("%s: upgrades %s, want %s", c.name, got, c.calls)
		}
	}
	wants(t, "databases", have[[]idb.Info](t)(f.Databases(ctx)), "[{a 14} {b 9007199254740991} { 2}]")
	old, err := f.Open(ctx, "a", 0, nil)
	must(t, err)
	wants(t, "delete", have[int64](t)(f.Delete(ctx, "a")), "14")
	wants(t, "delete what is not there", have[int64](t)(f.Delete(ctx, "a")), "0")
	wants(t, "databases", have[[]idb.Info](t)(f.Databases(ctx)), "[{b 9007199254740991} { 2}]")
	_, err = old.Begin(ctx, idb.ReadOnly, "store")
	is(t, "a connection to it", err, idb.ErrInvalidState)
	again := have[*idb.DB](t)(open("a", 14))
	_, err = old.Begin(ctx, idb.ReadOnly, "store")
	is(t, "a connection to the one before", err, idb.ErrInvalidState)
	begin(t, again, idb.ReadOnly, "store")
}

// TestOpenAborts: wpt idbfactory_open ("error in version change transaction aborts open", "error in
// upgradeneeded resets db"), abort-in-initial-upgradeneeded, close-in-upgradeneeded,
// fire-upgradeneeded-event-exception, upgrade-transaction-lifecycle.
func TestOpenAborts(t *testing.T) {
	ctx := t.Context()
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		fn   func(u *idb.Upgrade, s *idb.ObjectStore) error
		want error
	}{
		"An exception in upgradeneeded":               {func(*idb.Upgrade, *idb.ObjectStore) error { return stop }, stop},
		"abort()":                                     {func(u *idb.Upgrade, _ *idb.ObjectStore) error { return u.Abort() }, nil},
		"abort() and an exception":                    {func(u *idb.Upgrade, _ *idb.ObjectStore) error { return errors.Join(u.Abort(), stop) }, stop},
		"aborted due to an unhandled request failure": {func(_ *idb.Upgrade, s *idb.ObjectStore) error { _, _ = s.Add(ctx, 1.0, "k"); return nil }, idb.ErrConstraint},
		"a request behind one that has failed": {func(_ *idb.Upgrade, s *idb.ObjectStore) error {
			_, _ = s.Add(ctx, 1.0, "k")
			_, err := s.Get(ctx, 1)
			return err
		}, idb.ErrConstraint},
		"unique index on records that have the same key": {func(u *idb.Upgrade, s *idb.ObjectStore) error {
			_, _ = s.CreateIndex(ctx, "i", idb.Path(""), &idb.IndexOptions{Unique: true})
			u.PreventDefault()
			return nil
		}, idb.ErrConstraint},
		"When db.close() is called in onupgradeneeded": {func(u *idb.Upgrade, _ *idb.ObjectStore) error { u.DB().Close(); return nil }, nil},
	} {
		for _, first := range []bool{true, false} {
			rows := idb.NewMemory()
			f := idb.New(rows, nil)
			version := int64(1)
			if !first {
				version = 2
				have[*idb.DB](t)(f.Open(ctx, "db", 1, func(_ context.Context, u *idb.Upgrade) error {
					have[*idb.ObjectStore](t)(u.CreateObjectStore("old", nil))
					return nil
				}))
			}
			_, err := f.Open(ctx, "db", version, func(_ context.Context, u *idb.Upgrade) error {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("new", nil))
				have[indexeddb.Key](t)(s.Add(ctx, 1.0, "k"))
				have[indexeddb.Key](t)(s.Add(ctx, 1.0, "l"))
				return c.fn(u, s)
			})
			is(t, name, err, idb.ErrAbort)
			if c.want != nil {
				is(t, name, err, c.want)
			}
			if strings.Contains(name, "close") { // the upgrade is there, the connection is not
				continue
			}
			want := "[]"
			if !first {
				want = "[{db 1}]"
				db := have[*idb.DB](t)(f.Open(ctx, "db", 0, nil))
				wants(t, name, db.ObjectStoreNames(), "[old]")
			}
			wants(t, name, have[[]idb.Info](t)(f.Databases(ctx)), want)
			clean(t, rows)
		}
	}
	f := idb.New(idb.NewMemory(), nil)
	func() {
		defer func() { _ = recover() }()
		_, _ = f.Open(ctx, "db", 1, func(context.Context, *idb.Upgrade) error { panic("stop") })
	}()
	wants(t, "panic", have[[]idb.Info](t)(f.Databases(ctx)), "[]")
	have[*idb.DB](t)(f.Open(ctx, "db", 1, nil)) // the turn was given back
}

// TestUpgradeOfAnother: a connection of an older version, and transactions within the upgrade.
func TestUpgradeOfAnother(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
	})
	s := begin(t, db, idb.ReadOnly, "store")
	_, err := idb.New(rows, nil).Open(ctx, "db", 2, func(_ context.Context, u *idb.Upgrade) error {
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		_, err := u.DB().Begin(stopped, idb.ReadWrite, "store")
		is(t, "transaction() during the upgrade", err, idb.ErrInvalidState)
		return nil
	})
	must(t, err)
	wants(t, "a transaction that goes on", have[int64](t)(s.Count(ctx, nil)), "0")
	commit(t, s)
	for _, mode := range []idb.Mode{idb.ReadOnly, idb.ReadWrite} {
		_, err = db.Begin(ctx, mode, "store")
		is(t, "a connection of version 1", err, idb.ErrInvalidState)
	}
	have[*idb.DB](t)(idb.New(rows, nil).Open(ctx, "db", 3, nil)) // the turn was given back
}

// TestCreateObjectStore: wpt idbdatabase_createObjectStore, _deleteObjectStore and their exception
// orders.
func TestCreateObjectStore(t *testing.T) {
	ctx := t.Context()
	inUpgrade(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("My cool object store name", &idb.StoreOptions{KeyPath: idb.Path("my_unique_key")}))
		if s.Name() != "My cool object store name" || s.KeyPath().String() != "my_unique_key" || s.AutoIncrement() || len(s.IndexNames()) != 0 || s.Tx() != u.Tx {
			t.Error("Returns an instance of IDBObjectStore")
		}
		same := have[*idb.ObjectStore](t)(u.ObjectStore("My cool object store name"))
		if same != s {
			t.Error("SameObject")
		}
		for _, c := range []struct {
			name, store string
			o           *idb.StoreOptions
			want        error
		}{
			{"Attempting to create an existing object store with a different keyPath", s.Name(), &idb.StoreOptions{KeyPath: idb.Path("other")}, idb.ErrConstraint},
			{"SyntaxError vs. ConstraintError", s.Name(), &idb.StoreOptions{KeyPath: idb.Path("no path")}, idb.ErrSyntax},
			{"ConstraintError vs. InvalidAccessError", s.Name(), &idb.StoreOptions{KeyPath: idb.Path(""), AutoIncrement: true}, idb.ErrConstraint},
			{"autoIncrement and empty keyPath", "x", &idb.StoreOptions{KeyPath: idb.Path(""), AutoIncrement: true}, idb.ErrInvalidAccess},
			{"autoIncrement and array keyPath", "x", &idb.StoreOptions{KeyPath: idb.Paths("a"), AutoIncrement: true}, idb.ErrInvalidAccess},
			{"Empty name", "", nil, nil},
			{"name with NUL", "a\x00b", nil, nil},
			{"lone surrogate", "\xed\xa0\x80", nil, nil},
		} {
			_, err := u.CreateObjectStore(c.store, c.o)
			is(t, c.name, err, c.want)
		}
		is(t, "Attempting to remove an object store that does not exist", u.DeleteObjectStore(ctx, "whatever"), idb.ErrNotFound)
		is(t, "the same", u.DeleteObjectStore(ctx, "whatever"), base.ErrNotFound)
		must(t, u.DeleteObjectStore(ctx, s.Name()))
		_, err := u.ObjectStore(s.Name())
		is(t, "a deleted object store", err, idb.ErrNotFound)
		must(t, u.Abort())
		_, err = u.CreateObjectStore("s2", &idb.StoreOptions{KeyPath: idb.Path("-invalid-")})
		is(t, "TransactionInactiveError vs. SyntaxError", err, idb.ErrTransactionInactive)
		is(t, "TransactionInactiveError vs. NotFoundError", u.DeleteObjectStore(ctx, "nope"), idb.ErrTransactionInactive)
	})
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		for i := range 1000 {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore(fmt.Sprint("object_store_", i), nil))
			have[indexeddb.Key](t)(s.Add(ctx, "test", 1))
			if i > 1 {
				must(t, u.DeleteObjectStore(ctx, s.Name()))
			}
		}
	})
	wants(t, "Create 1000 object stores, add one item and delete", db.ObjectStoreNames(), "[object_store_0 object_store_1]")
	if r := clean(t, rows); r.Records != 2 {
		t.Errorf("%+v", r)
	}
	s := begin(t, db, idb.ReadWrite, "object_store_0")
	_, err := s.Tx().CreateObjectStore("fails", nil)
	is(t, "Attempt to create an object store outside of a version change transaction", err, idb.ErrInvalidState)
	is(t, "deleteObjectStore outside of it", s.Tx().DeleteObjectStore(ctx, "object_store_0"), idb.ErrInvalidState)
	commit(t, s)
}

// TestCreateIndex: wpt idbobjectstore_createIndex, _deleteIndex, _index, idbindex_keyPath, and the
// exception orders.
func TestCreateIndex(t *testing.T) {
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		for i := range 20 {
			have[indexeddb.Key](t)(s.Add(ctx, object("i", i%7, "s", fmt.Sprint(i), "a", array(i, "x"), "o", object()), i))
		}
		x := have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("i"), nil))
		if x.Name() != "index" || x.ObjectStore() != s || x.KeyPath().String() != "i" || x.MultiEntry() || x.Unique() {
			t.Error("Returns an IDBIndex and the properties are set correctly")
		}
		if have[*idb.Index](t)(s.Index("index")) != x {
			t.Error("SameObject")
		}
		wants(t, "The index is usable right after being made", have[[]indexeddb.Key](t)(x.GetAllKeys(ctx, 3, 0)), "[3 10 17]")
		both := have[*idb.Index](t)(s.CreateIndex(ctx, "both", idb.Paths("i", "s"), &idb.IndexOptions{Unique: true}))
		wants(t, "compound", have[[]indexeddb.Key](t)(both.GetAllKeys(ctx, idb.Bound([]any{3}, []any{3, []any{}}, false, false), 0)), "[10 17 3]")
		multi := have[*idb.Index](t)(s.CreateIndex(ctx, "multi", idb.Path("a"), &idb.IndexOptions{MultiEntry: true}))
		wants(t, "multiEntry", have[int64](t)(multi.Count(ctx, nil)), "40")
		none := have[*idb.Index](t)(s.CreateIndex(ctx, "", idb.Path("o"), nil))
		wants(t, "no valid keys, and an empty name", have[int64](t)(none.Count(ctx, nil)), "0")
		wants(t, "indexNames", s.IndexNames(), "[ both index multi]")
		for _, c := range []struct {
			name, index string
			path        indexeddb.KeyPath
			o           *idb.IndexOptions
			want        error
		}{
			{"If an index with the name name already exists", "index", idb.Path("i"), nil, idb.ErrConstraint},
			{"ConstraintError vs. SyntaxError", "index", idb.Path("invalid key path"), nil, idb.ErrConstraint},
			{"SyntaxError vs. InvalidAccessError", "other", idb.Paths("invalid key path"), &idb.IndexOptions{MultiEntry: true}, idb.ErrSyntax},
			{"InvalidAccessError", "other", idb.Paths("a"), &idb.IndexOptions{MultiEntry: true}, idb.ErrInvalidAccess},
			{"without key path", "other", indexeddb.KeyPath{}, nil, idb.ErrSyntax},
		} {
			_, err := s.CreateIndex(ctx, c.index, c.path, c.o)
			is(t, c.name, err, c.want)
		}
		is(t, "deleteIndex", s.DeleteIndex(ctx, "nope"), idb.ErrNotFound)
		must(t, s.DeleteIndex(ctx, "index"))
		_, err := x.Get(ctx, 1)
		is(t, "get() throws InvalidStateError when the index is deleted", err, idb.ErrInvalidState)
		_, err = s.Index("index")
		is(t, "IDBObjectStore.deleteIndex() removes the index", err, idb.ErrNotFound)
		other := have[*idb.ObjectStore](t)(u.CreateObjectStore("other", nil))
		y := have[*idb.Index](t)(other.CreateIndex(ctx, "y", idb.Path(""), nil))
		must(t, u.DeleteObjectStore(ctx, "other"))
		for what, call := range map[string]func() error{
			"createIndex": func() error { _, err := other.CreateIndex(ctx, "z", idb.Path(""), nil); return err }, "deleteIndex": func() error { return other.DeleteIndex(ctx, "y") },
			"index": func() error { _, err := other.Index("y"); return err }, "get": func() error { _, err := y.Get(ctx, 1); return err },
			"put": func() error { _, err := other.Put(ctx, 1.0, nil); return err }, "count": func() error { _, err := other.Count(ctx, nil); return err },
			"clear": func() error { return other.Clear(ctx) }, "delete": func() error { return other.Delete(ctx, nil) },
			"rename": func() error { return other.SetName("x") }, "rename of the index": func() error { return y.SetName("x") },
			"openCursor": func() error { _, err := other.OpenCursor(ctx, nil, idb.Next); return err },
		} {
			is(t, "the object store was deleted: "+what, call(), idb.ErrInvalidState)
		}
	})
	clean(t, rows)
	ctx := t.Context()
	s := begin(t, db, idb.ReadWrite, "store")
	_, err := s.CreateIndex(ctx, "x", idb.Path("invalid key path"), nil)
	is(t, "Operate out versionchange throw InvalidStateError", err, idb.ErrInvalidState)
	is(t, "deleteIndex", s.DeleteIndex(ctx, "both"), idb.ErrInvalidState)
	is(t, "rename", s.SetName("x"), idb.ErrInvalidState)
	commit(t, s)
	_, err = s.Index("both")
	is(t, "index() of a finished transaction", err, idb.ErrInvalidState)
	_, err = s.CreateIndex(ctx, "x", idb.Path("invalid key path"), nil)
	is(t, "Mode check should precede state check of the transaction", err, idb.ErrInvalidState)
}

// TestRename: wpt idbobjectstore-rename-store, idbindex-rename, and both with errors.
func TestRename(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		for _, name := range []string{"books", "magazines", "gone"} {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore(name, &idb.StoreOptions{AutoIncrement: true}))
			have[*idb.Index](t)(s.CreateIndex(ctx, "by title", idb.Path("title"), nil))
			have[*idb.Index](t)(s.CreateIndex(ctx, "by author", idb.Path("author"), nil))
			have[indexeddb.Key](t)(s.Put(ctx, object("title", name, "author", "Fred"), nil))
		}
	})
	is(t, "begin", func() error { _, err := db.Begin(ctx, idb.ReadOnly, "missing"); return err }(), idb.ErrNotFound)
	db, err := idb.New(rows, nil).Open(ctx, "db", 2, func(ctx context.Context, u *idb.Upgrade) error {
		books, magazines := have[*idb.ObjectStore](t)(u.ObjectStore("books")), have[*idb.ObjectStore](t)(u.ObjectStore("magazines"))
		is(t, "object store rename to the name of another store throws", books.SetName("magazines"), idb.ErrConstraint)
		is(t, "object store rename to the same name succeeds", books.SetName("books"), nil)
		must(t, books.SetName("tmp"))
		must(t, magazines.SetName("books"))
		must(t, books.SetName("magazines"))
		must(t, u.DeleteObjectStore(ctx, "gone"))
		wants(t, "objectStoreNames should immediately reflect the swap", u.ObjectStoreNames(), "[books magazines]")
		x := have[*idb.Index](t)(books.Index("by title"))
		is(t, "index rename to the name of another index throws", x.SetName("by author"), idb.ErrConstraint)
		is(t, "index rename to the same name succeeds", x.SetName("by title"), nil)
		must(t, books.DeleteIndex(ctx, "by author"))
		is(t, "index rename to the name of a deleted index succeeds", x.SetName("by author"), nil)
		return magazines.SetName("gone")
	})
	must(t, err)
	wants(t, "names", db.ObjectStoreNames(), "[gone magazines]")
	s := begin(t, db, idb.ReadWrite, "magazines")
	wants(t, "names of indexes", s.IndexNames(), "[by author]")
	x := have[*idb.Index](t)(s.Index("by author"))
	wants(t, "object store rename covers index", have[indexeddb.Key](t)(x.GetKey(ctx, "books")), "1")
	wants(t, "object store rename covers key generator", have[indexeddb.Key](t)(s.Put(ctx, object(), nil)), "2")
	commit(t, s)
	clean(t, rows)
}

// TestAbortRevertsMetadata: wpt transaction-abort-*-metadata-revert, idbobjectstore-rename-abort,
// idbindex-rename-abort.
func TestAbortRevertsMetadata(t *testing.T) {
	ctx := t.Context()
	rows, _ := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		for _, name := range []string{"renamed", "deleted"} {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore(name, nil))
			for _, index := range []string{"renamed", "deleted"} {
				have[*idb.Index](t)(s.CreateIndex(ctx, index, idb.Path("x"), nil))
			}
		}
	})
	_, err := idb.New(rows, nil).Open(ctx, "db", 2, func(ctx context.Context, u *idb.Upgrade) error {
		renamed, deleted := have[*idb.ObjectStore](t)(u.ObjectStore("renamed")), have[*idb.ObjectStore](t)(u.ObjectStore("deleted"))
		x, gone := have[*idb.Index](t)(renamed.Index("renamed")), have[*idb.Index](t)(renamed.Index("deleted"))
		made := have[*idb.ObjectStore](t)(u.CreateObjectStore("made", nil))
		index := have[*idb.Index](t)(made.CreateIndex(ctx, "made", idb.Path("x"), nil))
		also := have[*idb.Index](t)(renamed.CreateIndex(ctx, "made", idb.Path("x"), nil))
		must(t, renamed.SetName("other"))
		must(t, x.SetName("other"))
		must(t, renamed.DeleteIndex(ctx, "deleted"))
		must(t, u.DeleteObjectStore(ctx, "deleted"))
		wants(t, "names before", renamed.IndexNames(), "[made other]")
		must(t, u.Abort())
		wants(t, "renamed object store", renamed.Name(), "renamed")
		wants(t, "its indexes", renamed.IndexNames(), "[deleted renamed]")
		wants(t, "renamed index", x.Name(), "renamed")
		wants(t, "indexes of a deleted object store", deleted.IndexNames(), "[deleted renamed]")
		wants(t, "indexes of a new object store", made.IndexNames(), "[]")
		wants(t, "name of a new object store", made.Name(), "made")
		wants(t, "objectStoreNames", u.ObjectStoreNames(), "[deleted renamed]")
		for what, c := range map[string]struct {
			x    *idb.Index
			want error
		}{
			"Created indexes get marked as deleted":     {also, idb.ErrInvalidState},
			"Created stores get marked as deleted":      {index, idb.ErrInvalidState},
			"Deleted indexes get marked as not-deleted": {gone, idb.ErrTransactionInactive},
		} {
			_, err := c.x.Get(ctx, 1)
			is(t, what, err, c.want)
		}
		return nil
	})
	is(t, "open", err, idb.ErrAbort)
	clean(t, rows)
}

// TestTransaction: wpt idbdatabase_transaction, idbdatabase_close, idbtransaction_*, their
// exception orders, idb-explicit-commit, request-abort-ordering.
func TestTransaction(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		for _, name := range []string{"s3", "s1", "s2"} {
			have[*idb.ObjectStore](t)(u.CreateObjectStore(name, nil))
		}
		wants(t, "objectStoreNames - during upgrade transaction", u.ObjectStoreNames(), "[s1 s2 s3]")
	})
	for _, c := range []struct {
		name   string
		mode   idb.Mode
		stores []string
		want   error
	}{
		{"Attempt to open a transaction with invalid scope", idb.ReadOnly, []string{"s1", "missing"}, idb.ErrNotFound},
		{"If storeNames is an empty list", idb.ReadOnly, nil, idb.ErrInvalidAccess},
		{"Attempt to open a transaction with invalid mode", idb.VersionChange, []string{"s1"}, idb.ErrType},
		{"NotFoundError vs. TypeError", 9, []string{"missing"}, idb.ErrNotFound},
	} {
		_, err := db.Begin(ctx, c.mode, c.stores...)
		is(t, c.name, err, c.want)
	}
	tx := have[*idb.Tx](t)(db.Begin(ctx, idb.ReadWrite, "s2", "s1", "s1"))
	wants(t, "objectStoreNames - no duplicates, sorted", tx.ObjectStoreNames(), "[s1 s2]")
	if tx.DB() != db || tx.Mode() != idb.ReadWrite || tx.Mode().String() != "readwrite" {
		t.Error("db, mode")
	}
	_, err := tx.ObjectStore("s3")
	is(t, "objectStore() out of scope", err, idb.ErrNotFound)
	s := have[*idb.ObjectStore](t)(tx.ObjectStore("s1"))
	have[indexeddb.Key](t)(s.Add(ctx, 1.0, 1))
	must(t, tx.Commit(ctx))
	wants(t, "objectStoreNames - value after commit", tx.ObjectStoreNames(), "[s1 s2]")
	_, err = tx.ObjectStore("missing")
	is(t, "objectStore exception order: InvalidStateError vs. NotFoundError", err, idb.ErrInvalidState)
	is(t, "Abort on completed transaction should throw InvalidStateError.", tx.Abort(), idb.ErrInvalidState)
	is(t, "commit() on a completed transaction", tx.Commit(ctx), idb.ErrInvalidState)
	_, err = s.Get(ctx, math.NaN())
	is(t, "TransactionInactiveError vs. DataError", err, idb.ErrTransactionInactive)
	is(t, "the same", err, base.ErrTxDone)

	s = begin(t, db, idb.ReadWrite, "s1")
	have[indexeddb.Key](t)(s.Put(ctx, "not stored", 1))
	reader := begin(t, db, idb.ReadOnly, "s1")
	wants(t, "others do not see it", have[any](t)(reader.Get(ctx, 1)), "1")
	must(t, s.Tx().Abort())
	is(t, "error of abort()", s.Tx().Err(), nil)
	is(t, "abort twice", s.Tx().Abort(), idb.ErrInvalidState)
	_, err = s.Get(ctx, 1)
	is(t, "a request of an aborted transaction", err, idb.ErrTransactionInactive)
	commit(t, reader)

	// A request that failed.
	s = begin(t, db, idb.ReadWrite, "s1")
	have[indexeddb.Key](t)(s.Put(ctx, "not stored", 2))
	_, err = s.Add(ctx, 1.0, 1)
	is(t, "add", err, idb.ErrConstraint)
	is(t, "commit", s.Tx().Commit(ctx), idb.ErrAbort)
	is(t, "error of the transaction", s.Tx().Err(), idb.ErrConstraint)
	s = begin(t, db, idb.ReadWrite, "s1")
	_, err = s.Add(ctx, 1.0, 1)
	is(t, "add", err, idb.ErrConstraint)
	_, err = s.Get(ctx, 1)
	is(t, "the next request", err, idb.ErrAbort)
	is(t, "the next request", err, idb.ErrConstraint)
	_, err = s.Get(ctx, 1)
	is(t, "the one behind it", err, idb.ErrTransactionInactive)
	s = begin(t, db, idb.ReadWrite, "s1")
	have[indexeddb.Key](t)(s.Put(ctx, "stored", 3))
	_, err = s.Add(ctx, 1.0, 1)
	is(t, "add", err, idb.ErrConstraint)
	s.Tx().PreventDefault()
	commit(t, s)
	s = begin(t, db, idb.ReadOnly, "s1")
	wants(t, "what is stored", have[[]indexeddb.Key](t)(s.GetAllKeys(ctx, nil, 0)), "[1 3]")

	db.Close()
	_, err = db.Begin(ctx, idb.ReadOnly, "missing")
	is(t, "Attempt to open a transaction from closed database connection: InvalidStateError vs. NotFoundError", err, idb.ErrInvalidState)
	wants(t, "a transaction of a closed connection goes on", have[int64](t)(s.Count(ctx, nil)), "2")
	commit(t, s)
	clean(t, rows)

	// Transactions that write wait for each other.
	db = have[*idb.DB](t)(idb.New(rows, nil).Open(ctx, "db", 0, nil))
	s = begin(t, db, idb.ReadWrite, "s1")
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	_, err = db.Begin(waiting, idb.ReadWrite, "s2")
	is(t, "begin", err, context.Canceled)
	is(t, "begin", err, idb.ErrUnknown)
	commit(t, s)
	ro := idb.New(idb.Snapshot(have2[ordered.Reader, func() error](t)(rows.View(ctx))), nil)
	db = have[*idb.DB](t)(ro.Open(ctx, "db", 0, nil))
	_, err = db.Begin(ctx, idb.ReadWrite, "s1")
	is(t, "write a snapshot", err, idb.ErrReadOnly)
	s = begin(t, db, idb.ReadOnly, "s1")
	wants(t, "read a snapshot", have[int64](t)(s.Count(ctx, nil)), "2")
	commit(t, s)
}
