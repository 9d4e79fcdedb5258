package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/pages"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/ordered"
)

// newCustomer has 6 properties, of which two have indexes.
func newCustomer(rng *rand.Rand, n int) *value.Object {
	return value.NewObject("id", float64(n), "name", fmt.Sprintf("name %d", rng.IntN(1_000_000)), "email", email(n), "age", float64(rng.IntN(100)),
		"member", rng.IntN(2) == 0, "note", fmt.Sprintf("note %d", rng.Uint64()))
}

func email(n int) string { return fmt.Sprintf("%d@example.org", n*7919%1_000_003) }

const recordsInTransaction = 10_000

// customers puts records into a new database on a page, and returns how long each transaction took.
func customers(b *testing.B, page *ledger.Page, n int) (*idb.DB, samples) {
	b.Helper()
	ctx := context.Background()
	db, err := idb.New(pages.Rows(page, ledger.Eager), nil).Open(ctx, "shop", 1, func(ctx context.Context, u *idb.Upgrade) error {
		s, err := u.CreateObjectStore("customers", &idb.StoreOptions{KeyPath: idb.Path("id")})
		if err != nil {
			return err
		}
		if _, err = s.CreateIndex(ctx, "email", idb.Path("email"), &idb.IndexOptions{Unique: true}); err != nil {
			return err
		}
		_, err = s.CreateIndex(ctx, "age", idb.Path("age"), nil)
		return err
	})
	must(b, err)
	var puts samples
	rng := generator(70)
	for from := 0; from < n; from += recordsInTransaction {
		puts.add(settled(func() {
			tx, err := db.Begin(ctx, idb.ReadWrite, "customers")
			must(b, err)
			s, err := tx.ObjectStore("customers")
			must(b, err)
			for i := range recordsInTransaction {
				_, err := s.Put(ctx, newCustomer(rng, from+i), nil)
				must(b, err)
			}
			must(b, tx.Commit(ctx))
		}))
	}
	return db, puts
}

// BenchmarkIndexedDB puts 100 000 records with 6 properties, of which two are indexed, in
// transactions of 10 000, and reads them: by key, by a unique index, and with cursors. Against it,
// the rows of the same records are read from the page: by their keys, with Page.Get and from one
// snapshot, which the transaction of the database also has; and in order. The cursor gives keys
// only, which is compared with a scan that borrows keys and values; or records whose values stay as
// they are stored, or decoded values, which are compared with a scan that copies both.
func BenchmarkIndexedDB(b *testing.B) {
	ctx := context.Background()
	n := scaled(100_000, recordsInTransaction) / recordsInTransaction * recordsInTransaction
	repo, page := openPage(b, tempDir(b), ledger.Options{})
	defer closePage(b, repo, page)
	db, puts := customers(b, page, n)
	tx, err := db.Begin(ctx, idb.ReadOnly, "customers")
	must(b, err)
	defer func() { must(b, tx.Commit(ctx)) }()
	s, err := tx.ObjectStore("customers")
	must(b, err)
	byEmail, err := s.Index("email")
	must(b, err)
	snapshot, err := page.Snapshot(ctx)
	must(b, err)
	defer func() { must(b, snapshot.Close()) }()
	rows, emails := make([][]byte, n), make([]string, n)
	for i := range rows {
		emails[i] = email(i)
		k, err := idb.Key(i)
		must(b, err)
		rows[i], _ = indexeddb.PageKey(nil, indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1, Primary: k})
	}
	r := pages.Reader(snapshot.Reader)
	order := make([]int, 20_000)
	get := func(fn func(i int)) func() time.Duration {
		return func() time.Duration {
			return settled(func() {
				for _, i := range order {
					fn(i)
				}
			})
		}
	}
	snapshotGet := get(func(i int) {
		v, err := r.Get(ctx, rows[i])
		must(b, err)
		touched += len(v)
	})
	pageGet := get(func(i int) {
		v, err := page.Get(ctx, rows[i])
		must(b, err)
		touched += len(v)
	})
	byKey := get(func(i int) {
		v, err := s.Get(ctx, i)
		must(b, err)
		touched += len(v.(*value.Object).Properties)
	})
	unique := get(func(i int) {
		v, err := byEmail.Get(ctx, emails[i])
		must(b, err)
		touched += len(v.(*value.Object).Properties)
	})
	scan := func(use func(key, value []byte)) func() time.Duration {
		return func() time.Duration {
			return settled(func() {
				it := r.Iter(ordered.Prefix(indexeddb.PageFamily(indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1})))
				for it.Next(ctx) {
					v, err := it.Value(ctx)
					must(b, err)
					use(it.Key(), v)
				}
				must(b, it.Err())
				must(b, it.Close())
			})
		}
	}
	borrowed := scan(func(key, value []byte) { touched += len(key) + len(value) })
	copied := scan(func(key, value []byte) { touched += len(bytes.Clone(key)) + len(bytes.Clone(value)) })
	walk := func(use func(*idb.Cursor)) func() time.Duration {
		return func() time.Duration {
			return settled(func() {
				c, err := s.OpenCursor(ctx, nil, idb.Next)
				must(b, err)
				defer c.Close()
				got := 0
				for ; !c.Done(); got++ {
					use(c)
					must(b, c.Continue(ctx, nil))
				}
				if got != n {
					b.Fatalf("%d records, want %d", got, n)
				}
			})
		}
	}
	metrics := map[string]float64{"puts/s": recordsInTransaction / puts.median().Seconds()}
	rng := generator(71)
	for _, m := range []struct {
		name         string
		n            int
		ours, theirs func() time.Duration
	}{
		{"get", len(order), byKey, pageGet},
		{"get-snapshot", len(order), byKey, snapshotGet},
		{"unique", len(order), unique, pageGet},
		{"unique-snapshot", len(order), unique, snapshotGet},
		{"cursor", n, walk(func(c *idb.Cursor) { touched += int(c.Key().Number()) }), borrowed},
		{"records", n, walk(func(c *idb.Cursor) {
			v, err := c.Serialized(ctx)
			must(b, err)
			touched += int(c.Key().Number()) + len(bytes.Clone(v))
		}), copied},
		{"values", n, walk(func(c *idb.Cursor) {
			v, err := c.Value(ctx)
			must(b, err)
			touched += len(v.(*value.Object).Properties)
		}), copied},
	} {
		for i := range order {
			order[i] = rng.IntN(n)
		}
		var p pair
		p.run(9, m.ours, m.theirs)
		metrics[m.name+"-ratio"] = p.ratio()
		metrics[m.name+"-us"] = us(p.ours.median()) / float64(m.n)
	}
	report(b, metrics)
}
