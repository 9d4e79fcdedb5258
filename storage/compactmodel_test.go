package storage_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// compactShares are what tests ask of compaction: all garbage, some, the default.
var compactShares = []float64{1e-9, 0.2, 0}

// compact compacts the page and compares all rows with those that the log gives then.
func (g *garden) compact() storage.CompactReport {
	o := storage.CompactOptions{MinDeadShare: compactShares[g.rng.IntN(len(compactShares))]}
	if g.rng.IntN(2) == 0 {
		o.MaxBytes = 1 + g.rng.Int64N(20<<10)
	}
	r, err := g.s.Compact(context.Background(), o)
	g.check(err)
	g.check(checkClean(g.s))
	return r
}

// crashIn cuts the power at some change of the files or the index, while fn runs.
func (g *garden) crashIn(fn func()) (crashed bool) {
	at, n := g.rng.IntN(60), 0
	var mem *vfs.Mem
	var ix *index.Memory
	g.boundary = func(string) {
		if n++; n == at {
			mem, ix = g.mem.CrashClone(g.rng.Float64), g.ix.Clone()
		}
	}
	fn()
	g.boundary = nil
	if mem == nil {
		return false
	}
	if g.rng.IntN(4) == 0 {
		ix = index.NewMemory()
	}
	old := g.s
	g.drop()
	g.check(old.Close())
	g.mem, g.ix = mem, ix
	g.o.FS, g.o.MemoryIndex = vfs.NewHooked(mem, func(op vfs.Op) { g.tell(op.String()) }), ix
	if g.rng.IntN(3) == 0 { // a reader mends nothing
		o := g.o
		o.ReadOnly, o.MemoryIndex = true, ix.Clone()
		if s, err := storage.Open(context.Background(), o); err == nil {
			g.check(s.Close())
		}
	}
	g.open1()
	g.s.SetFetcher(g.cloud)
	return true
}

// TestCompactModel does random things to a page and compacts it in between, with crashes: what is reachable stays readable, and a fold of what is left
// of the log always gives the rows that are there.
func TestCompactModel(t *testing.T) {
	var freed int64
	var replaced, crashes int
	rapid.Check(t, func(rt *rapid.T) {
		g := newGarden(t, rt)
		g.o.FS = vfs.NewHooked(g.mem, func(op vfs.Op) { g.tell(op.String()) })
		g.reopen()
		g.cloud = &cloud{pieces: map[object.Digest][]byte{}}
		g.s.SetFetcher(g.cloud)
		withSync := rapid.Bool().Draw(rt, "sync")
		ops := rapid.SliceOfN(rapid.IntRange(0, 23), 5, 50).Draw(rt, "operations")
		for _, op := range ops {
			switch op {
			case 0, 1, 2, 3:
				h := g.s.Heads()
				g.plant(h[g.rng.IntN(len(h))])
			case 4:
				g.plant(g.pick())
			case 5:
				g.merge()
			case 6, 7, 8:
				g.leave()
			case 9, 10, 11:
				g.prune()
			case 12:
				g.tag()
			case 13:
				g.reopen()
				g.s.SetFetcher(g.cloud)
			case 14, 15:
				if withSync {
					g.share()
				}
			case 16, 17, 18:
				for range 1 + g.rng.IntN(20) {
					g.step()
				}
			case 19:
				if g.crashIn(func() { g.compact() }) {
					crashes++
				}
				g.look()
			default:
				r := g.compact()
				freed, replaced = freed+r.Freed, replaced+r.Replaced
			}
			if g.rng.IntN(4) == 0 {
				g.look()
			}
		}
		g.drop()
		g.compact()
		g.look()
		g.reopen()
		g.look()
		g.check(checkClean(g.s))
		g.close()
	})
	if freed == 0 {
		t.Error("nothing was freed")
	}
	t.Logf("%d segments replaced, %d bytes freed, %d crashes", replaced, freed, crashes)
}
