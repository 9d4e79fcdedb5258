package boltpage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/boltpage"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerify accepts a file with buckets in buckets, and refuses one whose branch names another key
// than the first of its child: bbolt would free that child's page twice when it writes.
func TestVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		outer, err := tx.CreateBucket([]byte("outer"))
		must(t, err)
		inner, err := outer.CreateBucket([]byte("inner"))
		must(t, err)
		for i := range 500 {
			must(t, inner.Put(fmt.Appendf(nil, "key %06d", i*10+5), make([]byte, 50)))
			must(t, outer.Put(fmt.Appendf(nil, "row %06d", i), nil))
		}
		return nil
	}))
	must(t, db.Close())
	good, err := os.ReadFile(path)
	must(t, err)
	must(t, boltpage.Verify(good))

	changed := 0
	for at := 2 * os.Getpagesize(); at < len(good); at += os.Getpagesize() {
		p := boltpage.Page(good[at:])
		if p.Flags() != boltpage.BranchFlag || p.Count() < 2 || !bytes.HasPrefix(p.BranchKey(1), []byte("key ")) {
			continue
		}
		bad := bytes.Clone(good)
		key := boltpage.Page(bad[at:]).BranchKey(1)
		key[len(key)-1]-- // still above the keys of the child before
		if err := boltpage.Verify(bad); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("verify: %v", err)
		}
		changed++
	}
	if changed == 0 {
		t.Fatal("the file has no branch")
	}
}
