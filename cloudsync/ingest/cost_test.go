package ingest_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/tier"
)

// page returns two devices that hold the same n keys, and the world with the log that brought them.
// The diff stands in one entry.
func page(t testing.TB, n int) (*world, *device, *device) {
	t.Helper()
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	body := h.device.body(h.commit(many(n)))
	if diff := body.Commits[0].Diff.Inline; len(diff) > format.InlineBytes {
		id, _ := h.diffObject(diff)
		body.Commits[0].Diff = format.Diff{Pack: id, Bytes: uint64(len(diff))}
	}
	w.append(body)
	h.pull()
	b := w.device(t)
	b.pull()
	return w, h.device, b
}

// scattered returns an edit of n keys that lie anywhere among all of them.
func scattered(seed, n, all int) edit {
	e := edit{}
	for i := range n {
		e[fmt.Sprintf("key %08d", (seed+i*7919*31)%all)] = noise(uint64(seed+i)|1<<40, 32)
	}
	return e
}

// TestCost counts the tree nodes that a commit of 1000 keys costs who receives it.
func TestCost(t *testing.T) {
	n := 40_000
	if tier.Nightly() {
		n = 1_000_000
	}
	_, a, b := page(t, n)
	e := scattered(1, 1000, n)
	a.commit(e)
	a.push()
	res := b.pull()
	t.Logf("%d changed keys of %d: %d nodes made, %d read", len(e), n, res.Nodes, res.NodesRead)
	if res.Commits != 1 || res.Nodes == 0 || res.Nodes+res.NodesRead > 6*len(e) {
		t.Fatalf("%d nodes made and %d read for %d keys", res.Nodes, res.NodesRead, len(e))
	}
	if a.s.NewestHead().ID != b.s.NewestHead().ID {
		t.Fatal("heads differ")
	}
}

// BenchmarkCatchUp applies entries of one key each to a page of 10 000 keys.
func BenchmarkCatchUp(b *testing.B) {
	const keys, entries = 10_000, 10_000
	w, a, _ := page(b, keys)
	for i := range entries {
		a.commit(edit{fmt.Sprintf("key %08d", i*7919%keys): noise(uint64(i)|1<<41, 32)})
	}
	for _, c := range a.unsynced() {
		w.append(a.body(c))
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		d := w.device(b)
		if _, err := d.apply(w.log[0]); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for from := 1; from < len(w.log); from += 1024 { // as ranges come
			if _, err := d.apply(w.log[from:min(from+1024, len(w.log))]...); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N*entries)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkApply applies a commit of 1000 keys to a page of many.
func BenchmarkApply(b *testing.B) {
	n := 40_000
	if tier.Nightly() {
		n = 1_000_000
	}
	_, a, d := page(b, n)
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		a.commit(scattered(i, 1000, n))
		a.push()
		b.StartTimer()
		d.pull()
	}
}
