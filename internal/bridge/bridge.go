package bridge

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage"
)

// Repository is an open repository.
type Repository struct {
	Disk     layout.Dir
	Usage    *pageusage.DB
	Clock    clock.Clock
	Log      *slog.Logger
	Identity *layout.Identity
	// InMemory says that pages have no files, and Mended what was mended when the repository was
	// opened; nil for nothing.
	InMemory bool
	Mended   *checkup.Problem

	Cloud *cloudlink.Link
	Space *reclaim.Host
	Quota *reclaim.Quota
	// Free returns what is free on the disk. Gone lists the pages that are known and not here.
	// Store says how the store of a page is opened.
	Free  func() (int64, error)
	Gone  func(context.Context) ([]presence.Gone, error)
	Store func(base.Page) storage.Options

	// Call makes fn a call on the repository: its context ends when the repository closes. what is
	// the work, for the text of errors. Change is Call for what changes the repository; dry lets it
	// also run on one that is open for reading. CloudTurn is Change for what changes which cloud
	// there is, one at a time.
	Call      func(ctx context.Context, what string, fn func(context.Context) error) error
	Change    func(ctx context.Context, what string, dry bool, fn func(context.Context) error) error
	CloudTurn func(ctx context.Context, what string, fn func(context.Context) error) error
	// Visit calls fn with a page that is here, opened for a look. Alone calls fn while nobody has a
	// page open, nor can open it, and reports false when somebody uses it.
	Visit func(ctx context.Context, page base.Page, fn func(context.Context, *Page) error) error
	Alone func(ctx context.Context, page base.Page, fn func() error) (ok bool, err error)
	// SyncPages calls fn with pages, opened for it; see cloudlink.Link.Sync.
	SyncPages func(ctx context.Context, only []base.Page, fn func(context.Context, *Page, *cloudlink.Work) error) ([]cloudlink.Work, error)
}

// Page is an open page, by one of its handles.
type Page struct {
	Key       base.Page
	Name      string // human, "" when there is none
	Handle    any    // the *ledger.Page
	Store     *storage.Store
	Session   *session.Page
	Cloud     *cloudlink.Page
	Collector *reclaim.Collector
	// Note is told of errors, some of which report damage.
	Note func(error)
	// Positions returns where the handles of the page stand, Handles all of them, and Transactions
	// what is open of them.
	Positions    func() []commit.ID
	Handles      func() []*session.Page
	Transactions func() map[*session.Tx]bool
}

// WithSync calls fn with what syncs the page. what is the work for the text of an error, "" where
// the error says it. What fn waits for ends when the page closes.
func (p *Page) WithSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	err := p.Session.Call(ctx, func(ctx context.Context) error { return p.Cloud.Do(ctx, fn) })
	p.Note(err)
	if err != nil && what != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Root is what the root gives.
type Root struct {
	// Repository and Page take a *ledger.Repository and a *ledger.Page. Conflicts returns a
	// function that makes a ledger.MergeConflict of a conflict in the merge of a pair.
	Repository func(any) *Repository
	Page       func(any) *Page
	Conflicts  func(*merge.Pair) func(*merging.Conflict) any
}

var root Root

// Connect is called by the root alone.
func Connect(r Root) struct{} {
	root = r
	return struct{}{}
}

// Of returns the engines of a *ledger.Repository.
func Of(r any) *Repository { return root.Repository(r) }

// OfPage returns the engines of a *ledger.Page.
func OfPage(p any) *Page { return root.Page(p) }

// Conflicts returns a function that makes a ledger.MergeConflict of a conflict in the merge of p.
func Conflicts(p *merge.Pair) func(*merging.Conflict) any { return root.Conflicts(p) }
