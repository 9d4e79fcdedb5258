package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// testContext is for what runs outside a test.
var testContext = context.Background()

func open(t testing.TB, dir string, o *ledger.Options) *ledger.Repository {
	t.Helper()
	r, err := ledger.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // idempotent; a test that cares closes it itself
	return r
}

func closeIt(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func page(t testing.TB, r *ledger.Repository, ledgerName, name string) *ledger.Page {
	t.Helper()
	p, err := r.Page(t.Context(), ledgerName, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// memoryPage returns a page of a repository in memory.
func memoryPage(t testing.TB, o ledger.Options) *ledger.Page {
	t.Helper()
	o.InMemory = true
	return page(t, open(t, "", &o), "app", "page")
}

func update(t testing.TB, p *ledger.Page, fn func(*ledger.Tx) error) ledger.CommitID {
	t.Helper()
	id, err := p.Update(t.Context(), fn)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func put(t testing.TB, p *ledger.Page, pairs ...string) ledger.CommitID {
	t.Helper()
	return update(t, p, func(tx *ledger.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := tx.Put(t.Context(), []byte(pairs[i]), []byte(pairs[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
}

// content returns all that a reader shows.
func content(t testing.TB, r ledger.Reader, o ledger.ScanOptions) map[string]string {
	t.Helper()
	m := map[string]string{}
	for e, err := range r.Scan(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Value(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(v)) != e.Size {
			t.Fatalf("entry of size %d has a value of %d bytes", e.Size, len(v))
		}
		m[string(e.Key)] = string(v)
	}
	return m
}

func pageContent(t testing.TB, p *ledger.Page) map[string]string {
	t.Helper()
	var m map[string]string
	err := p.View(t.Context(), func(s *ledger.Snapshot) error {
		m = content(t, s.Reader, ledger.ScanOptions{})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantContent(t testing.TB, p *ledger.Page, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, pageContent(t, p)); diff != "" {
		t.Fatalf("content (-want +got):\n%s", diff)
	}
}

func keysIn(t testing.TB, r ledger.Reader, o ledger.ScanOptions) []string {
	t.Helper()
	var ks []string
	for e, err := range r.Scan(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		ks = append(ks, string(e.Key))
	}
	return ks
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func checkClean(t testing.TB, r *ledger.Repository) {
	t.Helper()
	report, err := admin.Check(context.Background(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Pages {
		for _, q := range p.Problems {
			t.Errorf("page %s/%s: %s", p.Ledger, p.ID, q)
		}
	}
}

// idOf returns the id of a repository.
func idOf(t testing.TB, r *ledger.Repository) string {
	t.Helper()
	st, err := admin.Status(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return st.ID
}

// tree returns every file below dir with its content.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pseudo returns n bytes that do not repeat, made from a seed.
func pseudo(seed uint64, n int) []byte {
	b := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func key(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }
