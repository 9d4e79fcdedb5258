package ledgertest

import (
	"context"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// Open returns a repository in a new directory that is removed when the test ends. At the end of
// the test the repository is checked and closed: problems, and transactions or snapshots left open,
// fail the test. The test may close it earlier; it is then opened again for the check.
func Open(t testing.TB) *ledger.Repository {
	t.Helper()
	return OpenWith(t, ledger.Options{})
}

// OpenWith is Open with options. With Options.InMemory nothing is written to disk, and a repository
// that the test has closed is not checked.
func OpenWith(t testing.TB, o ledger.Options) *ledger.Repository {
	t.Helper()
	dir := t.TempDir()
	r, err := ledger.Open(t.Context(), dir, &o)
	if err != nil {
		t.Fatalf("open repository: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended.
		finish(context.Background(), t, r, dir, &o)
	})
	return r
}

// finish checks and closes a repository at the end of a test.
func finish(ctx context.Context, t testing.TB, r *ledger.Repository, dir string, o *ledger.Options) {
	t.Helper()
	report, err := admin.Check(ctx, r, nil)
	closed := ledger.KindOf(err) == ledger.KindClosed
	if err := r.Close(); err != nil {
		t.Errorf("close repository: %v", err)
	}
	if closed && o.InMemory {
		return
	}
	if closed {
		report, err = checkAgain(ctx, dir, o)
	}
	if err != nil {
		t.Errorf("check repository: %v", err)
		return
	}
	for _, p := range report.Pages {
		for _, q := range p.Problems {
			t.Errorf("page %s of ledger %q: %s", p.ID, p.Ledger, q)
		}
	}
}

// checkAgain checks a repository that the test has closed.
func checkAgain(ctx context.Context, dir string, o *ledger.Options) (*admin.CheckReport, error) {
	r, err := ledger.Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	report, err := admin.Check(ctx, r, nil)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return report, err
}

// Page opens a page of a repository and closes it when the test ends.
func Page(t testing.TB, r *ledger.Repository, ledgerName, name string) *ledger.Page {
	t.Helper()
	p, err := r.Page(t.Context(), ledgerName, name)
	if err != nil {
		t.Fatalf("open page %q: %v", name, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close page %q: %v", name, err)
		}
	})
	return p
}
