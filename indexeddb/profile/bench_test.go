package profile_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/ordered"
)

// envelope begins values of today.
const envelope = "\xff\x15\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\x10"

// manyRecords returns a page with n records of some 100 bytes and two indexes.
func manyRecords(ctx context.Context, tb testing.TB, n int) *ordered.Memory {
	tb.Helper()
	page := ordered.NewMemory()
	put := func(r indexeddb.Row, value []byte) {
		key, pageValue := indexeddb.PageRow(r, value)
		if err := page.Put(ctx, key, pageValue); err != nil {
			tb.Fatal(err)
		}
	}
	path := func(p string) indexeddb.KeyPath {
		return indexeddb.KeyPath{Type: indexeddb.StringKeyPath, Paths: []string{p}}
	}
	store := &indexeddb.Store{
		ID: 1, Name: "many", LastVersion: int64(n) + 1, MaxIndexID: 32, KeyGenerator: 1,
		Indexes: []*indexeddb.Index{{ID: 31, Name: "name", KeyPath: path("name"), Unique: true}, {ID: 32, Name: "group", KeyPath: path("group")}},
	}
	schema := &indexeddb.Schema{
		Version: indexeddb.MaxSchemaVersion, DataVersion: indexeddb.DataVersion(indexeddb.MaxV8Version, indexeddb.MaxBlinkVersion), MaxDatabaseID: 1,
		Databases: []*indexeddb.Database{{ID: 1, Origin: "http_127.0.0.1_1@1", Name: "db", Version: 1, MaxStoreID: 1, NextBlob: 2, Stores: []*indexeddb.Store{store}}},
	}
	for r, value := range schema.Rows() {
		put(r, value)
	}
	for i := range n {
		primary, err := indexeddb.NumberKey(float64(i))
		if err != nil {
			tb.Fatal(err)
		}
		name, group := fmt.Sprintf("name %08d", (i*7919)%n), fmt.Sprintf("group %03d", i%997)
		value := fmt.Sprintf(`%so"%cname"%c%s"%cgroup"%c%s"%ctext"%c%s{%c`, envelope, 4, len(name), name, 5, len(group), group, 4, 40, "0123456789012345678901234567890123456789", 3)
		row := indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1, Primary: primary}
		put(row, indexeddb.AppendRecord(nil, int64(i)+2, []byte(value)))
		for id, k := range map[int64]string{31: name, 32: group} {
			put(indexeddb.Row{Kind: indexeddb.KindIndexRow, Database: 1, Store: 1, Index: id, Key: indexeddb.StringKey(k), Primary: primary}, nil)
		}
	}
	return page
}

// TestManyRecords takes a directory of more rows than fit into one of its tables.
func TestManyRecords(t *testing.T) {
	n := 20_000
	if out := os.Getenv("LEDGER_BENCH_DIR"); out != "" {
		if _, err := profile.Export(t.Context(), manyRecords(t.Context(), t, 100_000), out, nil); err != nil {
			t.Fatal(err)
		}
	}
	page := manyRecords(t.Context(), t, n)
	done, err := profile.Export(t.Context(), page, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	again, result := importPage(t, done.Path)
	if result.Records != int64(n) || result.IndexRows != 2*int64(n) || again.Len() != page.Len() {
		t.Errorf("%+v, %d rows", result, again.Len())
	}
	comparePages(t, page, again)
}

// BenchmarkImport reads 100 000 records with two indexes, and drops them.
func BenchmarkImport(b *testing.B) {
	const n = 100_000
	done, err := profile.Export(b.Context(), manyRecords(b.Context(), b, n), b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p, err := profile.Open(b.Context(), done.Path, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Import(b.Context(), ordered.NewMemory()); err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
