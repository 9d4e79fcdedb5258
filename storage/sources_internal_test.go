package storage

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/storage/index"
)

// TestSourcesAgainstModel adds sources in any order to the rows of one destination, between those
// of others: the rows hold each once, in order, and no row more than it may.
func TestSourcesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := index.NewMemory()
		model := map[refKey]map[uint64]bool{}
		span := rapid.SampledFrom([]uint64{50, 2000, 1 << 30}).Draw(t, "span")
		for range rapid.IntRange(1, 6).Draw(t, "folds") {
			k := refKey{rapid.Uint64Range(7, 9).Draw(t, "destination"), rapid.SampledFrom([]byte{refEager, refLazy}).Draw(t, "type")}
			sources := rapid.SliceOfN(rapid.Uint64Range(1, span), 1, 900).Draw(t, "sources")
			slices.Sort(sources)
			sources = slices.Compact(sources)
			if model[k] == nil {
				model[k] = map[uint64]bool{}
			}
			for _, s := range sources {
				model[k][s] = true
			}
			err := db.Update(func(tx index.Tx) error {
				_, err := addSources(tx.Bucket(bucketRefs), k, sources)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		got := map[refKey][]uint64{}
		err := db.View(func(tx index.Tx) error {
			c := tx.Bucket(bucketRefs).Cursor()
			for key, v := c.First(); key != nil; key, v = c.Next() {
				k := refKey{readNumber(key), key[numberSize]}
				all, ok := parseSources(got[k], readNumber(key[numberSize+1:]), v)
				if !ok {
					t.Fatalf("row %x is bad", key)
				}
				got[k] = all
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(model) {
			t.Fatalf("%d destinations, want %d", len(got), len(model))
		}
		for k, want := range model {
			if !slices.IsSorted(got[k]) || len(slices.Compact(slices.Clone(got[k]))) != len(got[k]) || len(got[k]) != len(want) {
				t.Fatalf("%v: sources %v, want %v, each once and in order", k, got[k], want)
			}
			for _, s := range got[k] {
				if !want[s] {
					t.Fatalf("%v: source %d", k, s)
				}
			}
		}
	})
}
