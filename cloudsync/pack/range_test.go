package pack_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/object"
)

// TestRangeOfAValue fetches the pieces of 1 MiB of a long value: they stand in two runs at most, so
// that two requests bring them, and little else.
func TestRangeOfAValue(t *testing.T) {
	const length = 1 << 20
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(11, 3000, 32<<10)
	refs, places := w.upload(ps)
	if len(refs) < 2 {
		t.Fatalf("%d packs", len(refs))
	}
	var most, requests int64
	rapid.Check(t, func(rt *rapid.T) {
		store := newPage(places...)
		f := w.fetcher(store, nil)
		defer f.Close()
		from := rapid.IntRange(0, len(ps)-1).Draw(rt, "from")
		var wanted []object.Digest
		for bytes, i := 0, from; i < len(ps) && bytes < length; i++ {
			wanted, bytes = append(wanted, ps[i].d), bytes+len(ps[i].content)
		}
		before := w.b.Counts()
		if _, err := f.FetchAll(t.Context(), wanted); err != nil {
			rt.Fatal(err)
		}
		after := w.b.Counts()
		most, requests = max(most, after.Down-before.Down), max(requests, after.B-before.B)
		if after.B-before.B > 2 || after.Down-before.Down > length*3/2 {
			rt.Fatalf("%d requests for %d bytes", after.B-before.B, after.Down-before.Down)
		}
	})
	t.Logf("at most %d requests and %d bytes", requests, most)
}
