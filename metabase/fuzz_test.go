package metabase_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/metabasetest"
	"github.com/ledgerd/ledger/ordered"
)

// FuzzObject puts any bytes: what is taken comes back, and all rows follow from it; deleting it
// leaves nothing.
func FuzzObject(f *testing.F) {
	_, b := metabasetest.Object(f, metabasetest.Container(1), metabase.Regular, 5, "a", "1")
	f.Add(b)
	_, parts := metabasetest.Parts(f, metabasetest.Container(1), "x")
	for _, b := range parts {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rows := ordered.NewMemory()
		m, err := metabase.Write(t.Context(), rows, 10)
		must(t, err)
		empty := rows.Len()
		a, err := m.Put(t.Context(), b, nil)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) && !errors.Is(err, metabase.ErrExpired) {
				t.Fatal(err)
			}
			if rows.Len() != empty {
				t.Fatalf("a refused object left %d rows", rows.Len()-empty)
			}
			return
		}
		got, err := m.Stored(t.Context(), a)
		if err != nil || len(got) > len(b) {
			t.Fatalf("%x became %x, %v", b, got, err)
		}
		clean(t, &m.View)
		_, err = m.Delete(t.Context(), a)
		must(t, err)
		if rows.Len() != empty {
			t.Fatalf("%d rows are left", rows.Len()-empty)
		}
	})
}

// FuzzSplitInfo: what can be decoded is encoded as it was, but for unknown fields and order.
func FuzzSplitInfo(f *testing.F) {
	f.Add([]byte{0x12, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := metabase.DecodeSplitInfo(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := metabase.DecodeSplitInfo(i.Marshal())
		if err != nil || !bytes.Equal(again.Marshal(), i.Marshal()) {
			t.Fatalf("%x: %+v, %v", b, again, err)
		}
	})
}

// FuzzSearch asks with any filter and cursor.
func FuzzSearch(f *testing.F) {
	rows := ordered.NewMemory()
	m, err := metabase.Write(f.Context(), rows, 10)
	must(f, err)
	for _, n := range []string{"1", "-5", "x"} {
		_, b := metabasetest.Object(f, metabasetest.Container(1), metabase.Regular, 5, "N", n)
		_, err := m.Put(f.Context(), b, nil)
		must(f, err)
	}
	f.Add("N", byte(5), "-1", "", true)
	f.Add("$Object:split.splitID", byte(1), "zz", "TgAA", false)
	f.Add("$Object:payloadHash", byte(4), "93", "TgABAAAA", true)
	f.Fuzz(func(t *testing.T, key string, op byte, value, cursor string, attributes bool) {
		v, err := metabase.Read(t.Context(), rows, 10)
		must(t, err)
		q := metabase.Query{Container: metabasetest.Container(1), Count: 1, Cursor: cursor, Filters: []metabase.Filter{{Key: key, Op: metabase.Op(op), Value: value}}}
		if attributes {
			q.Attributes = []string{key}
		}
		for range 5 {
			found, next, err := v.Search(t.Context(), q)
			if err != nil && !errors.Is(err, base.ErrInvalid) {
				t.Fatal(err)
			}
			if next == "" {
				return
			}
			if len(found) != 1 {
				t.Fatalf("%d objects and a cursor", len(found))
			}
			q.Cursor = next
		}
		t.Fatal("more pages than objects")
	})
}

// FuzzRows puts any row into a catalogue and reads all of it.
func FuzzRows(f *testing.F) {
	f.Add(byte(6), []byte("0123456789abcdef0123456789abcdef"), []byte{0x0a})
	f.Add(byte(15), []byte("0123456789abcdef0123456789abcdef"), []byte{1, 32})
	f.Add(byte(255), []byte{1, 'N', 0}, []byte{})
	f.Fuzz(func(t *testing.T, kind byte, key, value []byte) {
		rows := ordered.NewMemory()
		m, err := metabase.Write(t.Context(), rows, 10)
		must(t, err)
		c := metabasetest.Container(1)
		put(t, m, metabase.Regular, "N", "1")
		for _, bucket := range [][]byte{append([]byte{kind}, c[:]...), {kind}} {
			row, err := flatRow(bucket, key)
			must(t, err)
			must(t, rows.Put(t.Context(), row, value))
		}
		v, err := metabase.Read(t.Context(), rows, 10)
		if err == nil {
			err = read(t.Context(), v)
		}
		for _, known := range []error{nil, base.ErrCorrupt, base.ErrUnsupported, base.ErrNotFound, metabase.ErrAlreadyRemoved} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Fatal(err)
	})
}
