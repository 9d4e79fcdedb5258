package ingest_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ledgerd/ledger/storage"
)

// TestLogMemory applies a log to a new page on the disk, a few entries at a time, and looks at what
// is live when they are in the index: it does not grow with the log. Each entry changes keys all
// over the page, so that it makes and reads many nodes, and there is room for few of them in the
// cache. What is pending before, storage.TestPendingIsBounded counts.
func TestLogMemory(t *testing.T) {
	const keys, entries, part = 4000, 240, 8
	w := newWorld(t)
	a := w.device(t)
	all := edit{}
	key := func(i int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(i))) }
	for i := range keys {
		all[key(i)] = make([]byte, 60)
	}
	w.append(a.body(a.commit(all)))
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range entries {
		e := edit{}
		for range 20 {
			e[key(rng.IntN(keys))] = binary.BigEndian.AppendUint64(make([]byte, 50), uint64(i))
		}
		w.append(a.body(a.commit(e)))
	}
	live := func() int64 {
		runtime.GC()
		runtime.GC() // what pools held is gone with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	d, made := w.deviceWith(t, storage.Options{Dir: filepath.Join(t.TempDir(), "page"), Page: testPage, Cache: storage.NewNodeCache(256 << 10), FoldRows: 1024}, w.bucket), 0
	least := [4]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64} // in each quarter of the log: noise only adds
	for i := 0; i < len(w.log); i += part {
		res, err := d.apply(w.log[i:min(i+part, len(w.log))]...)
		if err == nil {
			err = d.s.Fold(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		made += res.Nodes
		q := 4 * i / len(w.log)
		least[q] = min(least[q], live())
	}
	grown := least[3] - least[2] // in the first half tables grow to the size that they keep
	t.Logf("%d nodes of %d entries: %d bytes more are live in the last quarter than in the third", made, len(w.log), grown)
	if grown > 256<<10 {
		t.Errorf("%d bytes more are live in the last quarter of the log than in the third, at the least", grown)
	}
}
