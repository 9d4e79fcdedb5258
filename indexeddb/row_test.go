package indexeddb_test

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// rowKeys draws rows of all families but KindContent.
func rowKeys() *rapid.Generator[indexeddb.Row] {
	return rapid.Custom(func(t *rapid.T) indexeddb.Row {
		id := func(name string) int64 {
			return rapid.SampledFrom([]int64{1, 2, 3, 255, 256, 65535, 1<<31 - 2, 1 << 40, 1<<63 - 2}).Draw(t, name)
		}
		index := func() int64 { return rapid.SampledFrom([]int64{30, 31, 255, 256, 1<<31 - 2}).Draw(t, "index") }
		property := func(last int) byte { return byte(rapid.IntRange(0, last).Draw(t, "property")) }
		switch r := (indexeddb.Row{Kind: indexeddb.Kind(rapid.IntRange(1, int(indexeddb.KindIndexRow)).Draw(t, "kind"))}); r.Kind {
		case indexeddb.KindGlobal:
			r.Property = property(6)
			return r
		case indexeddb.KindScope:
			r.Scope = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "scope")
			return r
		case indexeddb.KindDatabaseFree:
			r.Database = id("database")
			return r
		case indexeddb.KindDatabaseName:
			r.Origin, r.Name = texts().Draw(t, "origin"), texts().Draw(t, "name")
			return r
		case indexeddb.KindDatabase:
			r.Database, r.Property = id("database"), property(5)
			return r
		case indexeddb.KindStore:
			r.Database, r.Store, r.Property = id("database"), id("store"), property(7)
			return r
		case indexeddb.KindIndex:
			r.Database, r.Store, r.Index, r.Property = id("database"), id("store"), index(), property(3)
			return r
		case indexeddb.KindStoreFree:
			r.Database, r.Store = id("database"), id("store")
			return r
		case indexeddb.KindIndexFree:
			r.Database, r.Store, r.Index = id("database"), id("store"), index()
			return r
		case indexeddb.KindStoreName:
			r.Database, r.Name = id("database"), texts().Draw(t, "name")
			return r
		case indexeddb.KindIndexName:
			r.Database, r.Store, r.Name = id("database"), id("store"), texts().Draw(t, "name")
			return r
		case indexeddb.KindIndexRow:
			r.Database, r.Store, r.Index, r.Key = id("database"), id("store"), index(), keys().Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "form") {
			case 0:
				r.Sequence = indexeddb.NoSequence
			case 1:
				r.Sequence = 3
			default:
				r.Sequence, r.Primary = int64(rapid.IntRange(0, 1).Draw(t, "sequence")), keys().Draw(t, "primary")
			}
			return r
		default:
			if r.Kind == indexeddb.KindContent {
				r.Kind = indexeddb.KindRecord
			}
			r.Database, r.Store, r.Primary = id("database"), id("store"), keys().Draw(t, "primary")
			return r
		}
	})
}

// TestRowLaws: row keys decode to what was encoded, the order is total, also with bytes that are no
// row, and pages keep it.
func TestRowLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rowKeys(), 3, 3).Draw(t, "rows")
		var encoded [][]byte
		for _, r := range rows {
			enc := r.Append(nil)
			back, err := indexeddb.DecodeRow(enc)
			if err != nil || !bytes.Equal(back.Append(nil), enc) || back.Describe() != r.Describe() {
				t.Fatalf("%+v becomes %+v, error %v", r, back, err)
			}
			if cut := rapid.IntRange(0, 2*len(enc)).Draw(t, "cut"); cut < len(enc) {
				encoded = append(encoded, enc[:cut])
			}
			encoded = append(encoded, enc)
		}
		for _, a := range encoded {
			for _, b := range encoded {
				if indexeddb.CompareRows(a, b) != -indexeddb.CompareRows(b, a) {
					t.Fatalf("%x and %x compare as %d and %d", a, b, indexeddb.CompareRows(a, b), indexeddb.CompareRows(b, a))
				}
				for _, c := range encoded {
					if indexeddb.CompareRows(a, b) <= 0 && indexeddb.CompareRows(b, c) <= 0 && indexeddb.CompareRows(a, c) > 0 {
						t.Fatalf("%x <= %x <= %x", a, b, c)
					}
				}
			}
		}
		pageOrder(t, rows)
	})
}

// pageOrder takes rows to a page and back, and compares the order there.
func pageOrder(t *rapid.T, rows []indexeddb.Row) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r indexeddb.Row) bool {
		return r.Kind == indexeddb.KindScope || r.Kind == indexeddb.KindExists || r.Kind == indexeddb.KindIndexRow && (r.Primary.IsZero() || r.Sequence != 0)
	})
	for _, a := range rows {
		value := []byte("v")
		if a.Kind == indexeddb.KindIndexRow {
			value = nil
		}
		key, pageValue := indexeddb.PageRow(a, value)
		back, got, err := indexeddb.DecodePageRow(key, pageValue)
		if err != nil || !bytes.Equal(back.Append(nil), a.Append(nil)) || !bytes.Equal(got, value) {
			t.Fatalf("%+v becomes %+v, error %v", a, back, err)
		}
		for _, b := range rows {
			other, _ := indexeddb.PageRow(b, nil)
			if c := indexeddb.CompareRows(a.Append(nil), b.Append(nil)); c != bytes.Compare(key, other) {
				t.Fatalf("%s and %s compare as %d, on a page as %d", a.Describe(), b.Describe(), c, bytes.Compare(key, other))
			}
		}
	}
}

// TestCountersAtTheirEnd: metadata whose next id, version or number would be none are damage.
func TestCountersAtTheirEnd(t *testing.T) {
	for name, set := range map[string]func(*indexeddb.Schema, *indexeddb.Database, *indexeddb.Store){
		"nothing":       func(*indexeddb.Schema, *indexeddb.Database, *indexeddb.Store) {},
		"databases":     func(s *indexeddb.Schema, _ *indexeddb.Database, _ *indexeddb.Store) { s.MaxDatabaseID = math.MaxInt64 },
		"object stores": func(_ *indexeddb.Schema, d *indexeddb.Database, _ *indexeddb.Store) { d.MaxStoreID = math.MaxInt64 },
		"blobs":         func(_ *indexeddb.Schema, d *indexeddb.Database, _ *indexeddb.Store) { d.NextBlob = math.MaxInt64 },
		"versions":      func(_ *indexeddb.Schema, _ *indexeddb.Database, s *indexeddb.Store) { s.LastVersion = math.MaxInt64 },
		"indexes":       func(_ *indexeddb.Schema, _ *indexeddb.Database, s *indexeddb.Store) { s.MaxIndexID = math.MaxInt32 },
	} {
		store := &indexeddb.Store{ID: 1, Name: "store", LastVersion: 1, MaxIndexID: indexeddb.MinIndexID, KeyGenerator: 1}
		database := &indexeddb.Database{ID: 1, Name: "db", Version: 1, NextBlob: indexeddb.MinBlobNumber, MaxStoreID: 1, Stores: []*indexeddb.Store{store}}
		written := &indexeddb.Schema{Version: indexeddb.MaxSchemaVersion, MaxDatabaseID: 1, Databases: []*indexeddb.Database{database}}
		set(written, database, store)
		byKey := map[string][]byte{}
		for r, value := range written.Rows() {
			byKey[string(r.Append(nil))] = value
		}
		keys := slices.SortedFunc(maps.Keys(byKey), func(a, b string) int { return indexeddb.CompareRows([]byte(a), []byte(b)) })
		var read indexeddb.Schema
		for _, key := range keys {
			r, err := indexeddb.DecodeRow([]byte(key))
			if err == nil {
				err = read.Add(r, byKey[key])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		err := read.Finish(func(err error) error { return err })
		if (name == "nothing") != (err == nil) || err != nil && !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
