package storage_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// TestReplayIsBounded makes an index anew from a long log: nothing is pending afterwards.
func TestReplayIsBounded(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	for i := range 80 {
		w.commit(small(i))
	}
	w.close()
	o := w.o
	o.MemoryIndex = index.NewMemory()
	o.FoldRows = 20
	s, err := storage.Open(t.Context(), o)
	w.must(err)
	defer func() { w.must(s.Close()) }()
	if st := s.Stats(); st.PendingRows > 0 {
		t.Errorf("%d rows are pending after opening", st.PendingRows)
	}
	w.must(w.verify(s, w.promise(), w.rng))
	w.must(checkClean(s))
}

// TestCorruptIndexOfDead damages a page.db that reflects a part of the log, as a process leaves it
// that dies: opening folds into it, and makes it anew when that cannot be done.
func TestCorruptIndexOfDead(t *testing.T) {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	dir := filepath.Join(t.TempDir(), "page")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1, storage.Options{})
	w.o.Dir, w.o.MemoryIndex = dir, nil
	w.must(w.mem.MkdirAll(filepath.Dir(dir)))
	w.must(storage.Create(t.Context(), w.o))
	s, err := storage.Open(t.Context(), w.o)
	w.must(err)
	w.s = s
	first := w.commit(many(0, 60))
	w.commitFlushed(edit{"a": noise(w.rng, 90<<10)}, 2)
	for i := range 20 {
		w.commit(small(i))
	}
	w.must(w.setTag("x", first))
	w.must(s.Fold(t.Context()))
	for i := range 20 {
		w.commit(small(100 + i))
	}
	w.commitFlushed(edit{"a": noise(w.rng, 20<<10), "b": noise(w.rng, 20<<10)}, 1)
	whole, err := os.ReadFile(filepath.Join(dir, "page.db"))
	w.must(err)
	g := &golden{world: w}
	for _, h := range s.Heads() {
		g.heads = append(g.heads, h.ID)
	}
	left := w.mem.CrashClone(vfstest.KeepAll)
	w.must(s.Close())
	w.mem = left
	w.o.FoldRows = 25
	rng := rand.New(rand.NewPCG(tier.Seed(), 10))
	rebuilt := 0
	for i := range 150 * tier.Factor() {
		b := bytes.Clone(whole)
		for range 1 + rng.IntN(40) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		w.must(os.WriteFile(filepath.Join(dir, "page.db"), b, 0o600))
		o, _ := g.copyOf()
		out, err := g.look(o)
		if err != nil || out.refused {
			t.Fatalf("LEDGER_SEED=%d, case %d: %+v: %v", tier.Seed(), i, out, err)
		}
		if out.rebuilt {
			rebuilt++
		}
	}
	t.Logf("%d made anew", rebuilt)
}
