package ledger

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// listing counts how often each directory is listed.
type listing struct {
	vfs.FS
	listed map[string]int
}

func (l *listing) ReadDir(dir string) ([]vfs.Info, error) {
	l.listed[dir]++
	return l.FS.ReadDir(dir)
}

// TestLedgerIsNotListed: opening a page costs no more in a ledger that has many. A directory that
// somebody has removed meanwhile is made again.
func TestLedgerIsNotListed(t *testing.T) {
	fs := &listing{vfstest.NewMem(), map[string]int{}}
	w := newEvictWorld(t)
	r, err := w.open(fs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		p, err := r.Page(t.Context(), "l", fmt.Sprint(i%10))
		if err == nil {
			err = p.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := r.disk.LedgerDir("l")
	if n := fs.listed[dir]; n != 0 {
		t.Errorf("listed %d times", n)
	}
	if err := fs.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p, err := r.Page(t.Context(), "l", "other")
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
