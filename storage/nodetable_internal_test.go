package storage

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestNodeTableIsAMap compares the table with a map, on slots that crowd.
func TestNodeTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			table nodeTable
			owner Store
		)
		model := map[uint64]*cachedNode{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			slot := rapid.Uint64Range(0, 40*cacheShards).Draw(t, "slot")
			if rapid.Bool().Draw(t, "high") {
				slot |= 1 << 40
			}
			switch e := model[slot]; {
			case e == nil:
				e = &cachedNode{owner: &owner}
				binary.LittleEndian.PutUint64(e.digest[1:], slot)
				model[slot] = e
				table.add(e)
			case rapid.Bool().Draw(t, "remove"):
				delete(model, slot)
				table.remove(e)
			}
			if table.n != len(model) {
				t.Fatalf("%d entries, want %d", table.n, len(model))
			}
		}
		for slot := range uint64(41 * cacheShards) {
			for _, s := range []uint64{slot, slot | 1<<40} {
				if table.find(s) != model[s] {
					t.Fatalf("slot %d: another entry than the map has", s)
				}
			}
		}
	})
}
