package storage

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/object"
)

// TestOpTableIsAMap compares the table with a map, on digests that crowd.
func TestOpTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table opTable
		model := map[object.Digest]*op{}
		digest := func(n uint32) (d object.Digest) {
			binary.LittleEndian.PutUint32(d[1:], n%40)
			d[32] = byte(n / 40)
			return d
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			d := digest(rapid.Uint32Range(0, 119).Draw(t, "digest"))
			if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				delete(model, d)
				table.remove(&d)
			} else {
				model[d] = &op{digest: d}
				table.put(model[d])
			}
			if table.n != len(model) || 4*table.n > 3*len(table.places) || table.n == 0 && table.places != nil {
				t.Fatalf("%d records in %d places, want %d", table.n, len(table.places), len(model))
			}
		}
		for n := range uint32(120) {
			if d := digest(n); table.get(&d) != model[d] {
				t.Fatalf("digest %d: another record than the map has", n)
			}
		}
	})
}
