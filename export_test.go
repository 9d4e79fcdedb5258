package ledger

import (
	"context"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/secret"
)

// KeepPage holds a page as the keeper does.
func (r *Repository) KeepPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.keepPage(ctx, page)
}

// createKeyFile is keys.CreateFile, which tests of this package cannot import.
func createKeyFile(path string) error {
	m := seal.NewMasterKey(nil)
	return seal.CreateKeyFile(path, m, secret.Bytes{})
}

// Administration is what tests of this package ask of package admin, which they cannot import.
type Administration struct {
	// Check returns an error for the problems that it finds, too.
	Check   func(ctx context.Context, r *Repository) error
	Collect func(ctx context.Context, r *Repository, keep *gc.Policy, dry bool) (pruned int, err error)
	Erase   func(ctx context.Context, r *Repository, page PageRef, key []byte) (commits int, err error)
	Evict   func(ctx context.Context, r *Repository, dry bool, pages ...PageRef) (evicted []PageRef, freed int64, err error)
	Usage   func(ctx context.Context, r *Repository) (pages []PageBar, garbage int64, err error)
}

// PageBar is a page, and what keeps it from being evicted.
type PageBar struct {
	PageInfo
	Bar reclaim.Bar
}

var admin Administration

// SetAdmin is called in a variable declaration of the external tests.
func SetAdmin(a Administration) struct{} {
	admin = a
	return struct{}{}
}
