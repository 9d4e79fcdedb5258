package ledgertest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, p *ledger.Page) {
	t.Helper()
	if _, err := p.Update(t.Context(), func(tx *ledger.Tx) error { return tx.Put(t.Context(), []byte("k"), make([]byte, 50_000)) }); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	for _, memory := range []bool{false, true} {
		r := ledgertest.OpenWith(t, ledger.Options{InMemory: memory})
		put(t, ledgertest.Page(t, r, "app", "page"))
	}
	r := ledgertest.Open(t)
	put(t, ledgertest.Page(t, r, "app", "page"))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// fake collects what a test would report, and its cleanups.
type fake struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (f *fake) Helper()           {}
func (f *fake) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fake) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fake) end() string {
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	return strings.Join(f.errors, "\n")
}

func TestLeaksAreReported(t *testing.T) {
	f := &fake{TB: t}
	r := ledgertest.Open(f)
	p := ledgertest.Page(f, r, "app", "page")
	if _, err := p.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.end(); !strings.Contains(got, "and 1 snapshot were") {
		t.Errorf("reported %q", got)
	}
}

func TestDamageIsReported(t *testing.T) {
	f := &fake{TB: t}
	r := ledgertest.Open(f)
	put(t, ledgertest.Page(f, r, "app", "page"))
	st, err := admin.Status(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(st.Dir, "1", "ledgers", "*", "*", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[1000] ^= 1
	if err := errors.Join(os.WriteFile(segments[0], b, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := f.end(); !strings.Contains(got, "segment") {
		t.Errorf("reported %q", got)
	}
}
