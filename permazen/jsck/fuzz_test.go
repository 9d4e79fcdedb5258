package jsck_test

import (
	"testing"

	"github.com/ledgerd/ledger/ordered"
)

// FuzzRows: a database with any rows is checked and repaired in the end, and clean then, or not
// touched.
func FuzzRows(f *testing.F) {
	whole := load(f, "03-filled")
	for row, err := range ordered.Rows(f.Context(), whole, ordered.Range{}) {
		if err != nil {
			f.Fatal(err)
		}
		f.Add(row.Key, row.Value, row.Key[1:])
	}
	f.Fuzz(func(t *testing.T, key, value, gone []byte) {
		rows := whole.Clone()
		if err := rows.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		if err := rows.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		settle(t, "a row", rows)
	})
}
