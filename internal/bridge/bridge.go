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
	// Dir is "" for a repository in memory, whose pages have no files.
	Dir      string
	ReadOnly bool
	// Mended is what the opening of the repository repaired; nil for nothing.
	Mended *checkup.Problem

	Cloud *cloudlink.Link
	Space *reclaim.Host
	Quota *reclaim.Quota
	// Gone lists the known pages that are not on this device. Store returns the options for opening
	// the store of a page.
	Gone  func(context.Context) ([]presence.Gone, error)
	Store func(base.Page) storage.Options

	// Call runs fn as a call on the repository: its context ends when the repository closes. what
	// names the work in errors. Change is Call for changes of the repository; dry allows it on a
	// read-only repository. CloudTurn is Change for changes of the cloud, one at a time.
	Call      func(ctx context.Context, what string, fn func(context.Context) error) error
	Change    func(ctx context.Context, what string, dry bool, fn func(context.Context) error) error
	CloudTurn func(ctx context.Context, what string, fn func(context.Context) error) error
	// Visit opens a page of this device and calls fn with it. Alone calls fn while no caller has
	// the page open or can open it, and returns false when the page is in use.
	Visit func(ctx context.Context, page base.Page, fn func(context.Context, *Page) error) error
	Alone func(ctx context.Context, page base.Page, fn func() error) (ok bool, err error)
	// SyncPages opens pages and calls fn with them; see cloudlink.Link.Sync.
	SyncPages func(ctx context.Context, only []base.Page, fn func(context.Context, *Page, *cloudlink.Work) error) ([]cloudlink.Work, error)
}

// Page is an open page, seen through one of its handles.
type Page struct {
	Key       base.Page
	Name      string // human, "" when there is none
	Handle    any    // the *ledger.Page
	Store     *storage.Store
	Session   *session.Page
	Cloud     *cloudlink.Page
	Collector *reclaim.Collector
	// Note is called with errors, to report those of damage.
	Note func(error)
	// Positions returns the commits of the page's handles, Handles all handles, and Transactions
	// their open transactions.
	Positions    func() []commit.ID
	Handles      func() []*session.Page
	Transactions func() map[*session.Tx]bool
}

// WithSync calls fn with the syncer of the page. what names the work in errors; with "" the error
// stays as it is. fn's context ends when the page closes.
func (p *Page) WithSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	err := p.Session.Call(ctx, func(ctx context.Context) error { return p.Cloud.Do(ctx, fn) })
	p.Note(err)
	if err != nil && what != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Root has the functions of the root package.
type Root struct {
	// Repository, Page and Snapshot take a *ledger.Repository, a *ledger.Page and a
	// *ledger.Snapshot; NewSnapshot and NewTx make a *ledger.Snapshot and a *ledger.Tx. Conflicts
	// returns a function that converts a conflict in the merge of a pair to a ledger.MergeConflict.
	Repository  func(any) *Repository
	Page        func(any) *Page
	Snapshot    func(any) *session.Snapshot
	NewSnapshot func(*session.Snapshot) any
	NewTx       func(*session.Tx) any
	Conflicts   func(*merge.Pair) func(*merging.Conflict) any
}

var root Root

// Connect is called only by the root.
func Connect(r Root) struct{} {
	root = r
	return struct{}{}
}

// Of returns the engines of a *ledger.Repository.
func Of(r any) *Repository { return root.Repository(r) }

// OfPage returns the engines of a *ledger.Page.
func OfPage(p any) *Page { return root.Page(p) }

// OfSnapshot returns the engine's part of a *ledger.Snapshot.
func OfSnapshot(s any) *session.Snapshot { return root.Snapshot(s) }

// NewSnapshot returns the *ledger.Snapshot of s.
func NewSnapshot(s *session.Snapshot) any { return root.NewSnapshot(s) }

// NewTx returns the *ledger.Tx of t.
func NewTx(t *session.Tx) any { return root.NewTx(t) }

// Conflicts returns a function that converts a conflict in the merge of p to a
// ledger.MergeConflict.
func Conflicts(p *merge.Pair) func(*merging.Conflict) any { return root.Conflicts(p) }
