package kill_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
)

// injure damages a segment of each page of a device: some bytes, its end, or all of it.
func (w *world) injure(device string) {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.path(device), "*", "ledgers", "*", "*", "*.seg"))
	w.must(err)
	if len(found) == 0 {
		w.t.Fatal("no segment was found")
	}
	name := found[w.rng.IntN(len(found))]
	b, err := os.ReadFile(name)
	w.must(err)
	at := w.rng.IntN(len(b))
	switch w.rng.IntN(4) {
	case 0:
		w.must(os.Remove(name))
		return
	case 1:
		b = b[:at]
	default:
		b[at] ^= 0x10
	}
	w.must(os.WriteFile(name, b, 0o600))
}

// TestKillRepair kills repairs of a damaged page that the bucket has: the next one brings
// everything back.
func TestKillRepair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inside("whole", func(_ context.Context, r *ledger.Repository) { w.overwrite(r, "notes", 12) })
	w.run(w.on("whole", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.run(w.on("whole", "sync")...)
	prepare := func() {
		w.must(os.RemoveAll(w.path("a")))
		w.must(os.CopyFS(w.path("a"), os.DirFS(w.path("whole"))))
		w.loseIndex("a")
		w.injure("a")
	}
	repair := w.on("a", "check", "--repair")
	prepare()
	whole := w.measure(repair...)
	w.killing(whole, prepare, func() {
		w.run(repair...)
		w.look("a")
	}, repair...)
}
