package pages_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/internal/histories"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/pages"
	"github.com/ledgerd/ledger/permazen/schema"
)

func TestMain(m *testing.M) {
	if os.Getenv("LEDGER_TIER") < "2" {
		if err := flag.Set("rapid.checks", "12"); err != nil { // each is three repositories and a bucket
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

var prefix = []byte("db/")

// device is a repository with the database on a page, and a program for each schema.
type device struct {
	repo *ledger.Repository
	page *ledger.Page
	dbs  []*pages.DB
}

// tb is what a test and a check by rapid have in common.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// devices returns repositories that share a bucket, and have the page with a first commit.
func devices(t tb, key string, n int, documents ...string) []*device {
	t.Helper()
	b := mem.New(mem.Options{})
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil }
	var all []*device
	for i := range n {
		o := &ledger.Options{InMemory: true, ManualMerge: true}
		o.Buckets, o.Sync = map[string]bucket.Opener{"mem": open}, ledger.SyncOptions{Manual: true}
		r, err := ledger.Open(t.Context(), "", o)
		must(t, err)
		_, err = r.SetCloud(t.Context(), &ledger.Cloud{URL: "mem:x", KeyFile: key})
		must(t, err)
		if i > 0 {
			_, err = r.Sync(t.Context())
			must(t, err)
		}
		p, err := r.Page(t.Context(), "app", "objects")
		must(t, err)
		p.SetMergeRules(pages.MergeRule(prefix))
		d := &device{repo: r, page: p}
		for _, document := range documents {
			m, err := schema.Parse([]byte(document))
			must(t, err)
			db, err := permazen.New(m, &permazen.Options{Random: random(uint64(i))})
			must(t, err)
			d.dbs = append(d.dbs, pages.Open(p, prefix, db))
		}
		all = append(all, d)
		if i == 0 {
			_, err = d.dbs[0].Update(t.Context(), func(*permazen.Tx) error { return nil })
			must(t, err)
			_, err = r.Sync(t.Context())
			must(t, err)
		}
	}
	return all
}

// keyFile returns a file with a master key.
func keyFile(t testing.TB) string {
	key := filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	return key
}

func closeAll(t tb, all []*device) {
	t.Helper()
	for _, d := range all {
		must(t, d.repo.Close())
	}
}

// random returns bytes that follow from a seed.
func random(seed uint64) io.Reader {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
}

// meet gives all devices the commits of all, has each merge them, and wants the same commit
// everywhere.
func meet(t tb, all []*device) {
	t.Helper()
	for range 2 {
		for _, d := range all {
			_, err := d.repo.Sync(t.Context())
			must(t, err)
		}
	}
	heads := map[ledger.CommitID]bool{}
	for _, d := range all {
		_, err := d.page.Merge(t.Context())
		must(t, err)
		at, err := d.page.Heads(t.Context())
		must(t, err)
		for _, h := range at {
			heads[h.ID] = true
		}
	}
	if len(heads) != 1 {
		t.Fatalf("the devices have %d heads", len(heads))
	}
}

// cleanHere wants a database without issues.
func cleanHere(t tb, d *device) {
	t.Helper()
	must(t, d.page.View(context.WithoutCancel(t.Context()), func(s *ledger.Snapshot) error {
		var issues []string
		_, err := jsck.Check(context.WithoutCancel(t.Context()), pages.Reader(s.Reader, prefix), &jsck.Options{Report: func(i jsck.Issue) error {
			issues = append(issues, i.String())
			return nil
		}})
		if len(issues) > 0 {
			t.Fatalf("issues:\n%s", strings.Join(issues, "\n"))
		}
		return err
	}))
}

// TestThreeDevices: M2 of the merge, with random histories.
func TestThreeDevices(t *testing.T) {
	key := keyFile(t)
	rapid.Check(t, func(rt *rapid.T) {
		all := devices(rt, key, 3, histories.Models()...)
		defer closeAll(rt, all)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			for i, d := range all {
				for range rapid.IntRange(0, 3).Draw(rt, "transactions") {
					d.change(rt, rapid.IntRange(0, 2).Draw(rt, fmt.Sprint("schema on ", i)))
				}
				if rapid.Bool().Draw(rt, "sync") {
					_, err := d.repo.Sync(rt.Context())
					must(rt, err)
					_, err = d.page.Merge(rt.Context())
					must(rt, err)
					cleanHere(rt, d)
				}
			}
		}
		meet(rt, all)
		cleanHere(rt, all[0])
	})
}

// change does some random things in a transaction.
func (d *device) change(rt *rapid.T, which int) {
	_, err := d.dbs[which].Update(rt.Context(), func(tx *permazen.Tx) error {
		for range rapid.IntRange(1, 6).Draw(rt, "operations") {
			if err := histories.Operate(rt.Context(), rt, tx); err != nil {
				return err
			}
		}
		return nil
	})
	must(rt, err)
}
