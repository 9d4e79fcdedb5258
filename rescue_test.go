package ledger_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/tier"
)

// TestRescueOfATreeOfSeveralLevels damages nodes of the head of a page that no bucket has. Repair
// commits all that can be read of it, and in its holes what an older version had.
func TestRescueOfATreeOfSeveralLevels(t *testing.T) {
	const keys = 5_000
	value := func(i int) string { return fmt.Sprintf("value %d of a key", i) }
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	former := map[string]string{}
	_, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
		for i := range keys {
			former[string(key(i))] = value(i)
			if err := tx.Put(t.Context(), key(i), []byte(value(i))); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	closeIt(t, r)
	home := pageDir(t, dir)
	logs, err := filepath.Glob(filepath.Join(home, "*.seg"))
	must(t, err)
	log := logs[0]
	from := fileBytes(t, log)
	r = open(t, dir, nil)
	p = page(t, r, "app", "page")
	newest := maps.Clone(former)
	_, err = p.Update(t.Context(), func(tx *ledger.Tx) error {
		for i := 0; i < keys; i += 100 {
			newest[string(key(i))] = "new"
			if err := tx.Put(t.Context(), key(i), []byte("new")); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	to := fileBytes(t, log)
	put(t, p, string(key(1)), "newer") // damage in the last batch would undo the commit
	newest[string(key(1))] = "newer"
	closeIt(t, r)
	files := tree(t, home)
	rng := rand.New(rand.NewPCG(3+tier.Seed(), 4))
	rescued, older := 0, int64(0)
	for range 20 {
		must(t, os.RemoveAll(home))
		must(t, os.Mkdir(home, 0o700))
		for name, b := range files {
			must(t, os.WriteFile(name, []byte(b), 0o600))
		}
		b := []byte(files[log])
		at := from + rng.IntN(to-from)
		clear(b[at:min(at+50, to)])
		must(t, os.WriteFile(log, b, 0o600))
		r := open(t, dir, nil)
		report, err := admin.Check(t.Context(), r, &admin.CheckOptions{Repair: true})
		must(t, err)
		p := page(t, r, "app", "page")
		got := pageContent(t, p)
		for k, v := range newest {
			if got[k] != v && got[k] != former[k] {
				t.Fatalf("zeros at %d: key %s is %q: %+v", at-from, k, got[k], report.Pages[0])
			}
		}
		for _, s := range report.Pages[0].Rescued {
			rescued++
			older += s.FromOlder
			if s.Entries != keys || s.FromOlder == 0 {
				t.Errorf("zeros at %d: %+v", at-from, s)
			}
		}
		closeIt(t, r)
	}
	t.Logf("%d rescues, %d bytes, %d entries of the version before", rescued, to-from, older)
}

func fileBytes(t *testing.T, name string) int {
	info, err := os.Stat(name)
	must(t, err)
	return int(info.Size())
}
