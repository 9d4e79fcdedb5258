package ledger

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/session"
)

// Ledger is a namespace of pages in a repository. It needs no Close and is safe for concurrent use.
type Ledger struct {
	repo *Repository
	name string
}

// Name returns the ledger's name.
func (l *Ledger) Name() string { return l.name }

// Repository returns the repository of the ledger.
func (l *Ledger) Repository() *Repository { return l.repo }

// Page opens the page with a human name of 1 to 1024 bytes and creates it when it is absent. Its id
// is DerivePageID(ledger, name). The caller must close each Page. Errors: ErrInvalid, ErrTooLarge,
// ErrNotFound (read-only), ErrClosed, ErrCorrupt, ErrUnsupported, ErrNoSpace, those of ctx.
func (l *Ledger) Page(ctx context.Context, name string) (*Page, error) {
	if err := session.ValidateName("page", name); err != nil {
		return nil, err
	}
	return l.repo.openHandle(ctx, l, DerivePageID(l.name, name), name, presence.ForUse)
}

// Page opens the page with a human name in a ledger, and creates it when it is absent. It combines
// Ledger and Ledger.Page. The caller must close each Page. Errors: as Ledger and Ledger.Page.
func (r *Repository) Page(ctx context.Context, ledger, name string) (*Page, error) {
	l, err := r.Ledger(ledger)
	if err != nil {
		return nil, err
	}
	return l.Page(ctx, name)
}

// PageByID opens the page with the given id and creates it when it is absent. Errors: as Page.
func (l *Ledger) PageByID(ctx context.Context, id PageID) (*Page, error) {
	return l.repo.openHandle(ctx, l, id, "", presence.ForUse)
}

// RootPage opens the ledger's root page and creates it when it is absent. Errors: as Page.
func (l *Ledger) RootPage(ctx context.Context) (*Page, error) {
	return l.repo.openHandle(ctx, l, PageID{}, "", presence.ForUse)
}

// NewPage creates and opens a page with a new random id. Errors: as Page, and ErrReadOnly.
func (l *Ledger) NewPage(ctx context.Context) (*Page, error) {
	if l.repo.o.ReadOnly {
		return nil, fmt.Errorf("create page: the repository is open for reading: %w", ErrReadOnly)
	}
	var id PageID
	// crypto/rand never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(id[:])
	return l.repo.openHandle(ctx, l, id, "", presence.ForUse)
}

// HasPage reports whether the page is on this device, or was evicted and will be downloaded when it
// is opened. Errors: ErrClosed, those of the file system.
func (l *Ledger) HasPage(_ context.Context, id PageID) (bool, error) {
	if err := l.repo.enter(); err != nil {
		return false, err
	}
	defer l.repo.gate.Leave()
	where, _, err := l.repo.pages.Where(pageKey{Ledger: l.name, ID: id})
	return where != presence.Absent, err
}
