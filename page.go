package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/storage"
)

// Page is a handle of an open page. Several handles of one page share its store, which closes when
// the last handle has been closed. A Page is safe for concurrent use.
//
// While a page has several heads, a handle stays on its own branch: it reads and writes on the
// newest head that is, or descends from, the last commit that the handle saw. It does so until the
// branches are merged or Refresh is called. A new handle begins at the newest head. In doc
// comments, "the handle's head" means this head.
type Page struct {
	shared *pageStore
	store  *storage.Store // of shared
	in     *session.Page
	kind   presence.Kind

	once     sync.Once
	leaked   session.Leaks
	closeErr error
}

// Ref returns the ledger and the id of the page.
func (p *Page) Ref() PageRef { return refOf(p.shared.key) }

// Name returns the human name of the page, "" when none is recorded.
func (p *Page) Name() string { return p.shared.name }

// Repository returns the repository of the page.
func (p *Page) Repository() *Repository { return p.shared.repo }

// Close releases the handle. It rolls its open transactions back, closes its snapshots, and reports
// their number in the error. It waits for running calls, is idempotent, and closes the store with
// the last handle.
func (p *Page) Close() error {
	l, err := p.close()
	if err := errors.Join(l.Err(), err); err != nil {
		return fmt.Errorf("close page %s: %w", p.shared.key.Text(p.shared.name), err)
	}
	return nil
}

func (p *Page) close() (session.Leaks, error) {
	p.once.Do(func() {
		p.leaked = p.in.Close()
		p.closeErr = p.shared.drop(p)
	})
	return p.leaked, p.closeErr
}

// View calls fn with a snapshot of the handle's head and closes it when fn returns. It returns what
// fn returns. Errors: ErrClosed, ErrCorrupt.
func (p *Page) View(ctx context.Context, fn func(*Snapshot) error) error {
	if fn == nil {
		return fmt.Errorf("view: there is no function: %w", ErrInvalid)
	}
	return p.in.View(ctx, func(s *session.Snapshot) error { return fn(newSnapshot(s)) })
}

// Snapshot returns the page as of the handle's head. It must be closed. Errors: ErrClosed,
// ErrCorrupt.
func (p *Page) Snapshot(ctx context.Context) (*Snapshot, error) { return p.At(ctx, CommitID{}) }

// At returns the page as of a commit; the zero id means the handle's head. It must be closed. With
// a cloud it may fetch the commit's tree: a device that began with a checkpoint has the commits
// before it without their trees. Errors: ErrNotFound, ErrNeedsFetch (there is no cloud, or the
// repository is open for reading), ErrGone, ErrNetwork, ErrClosed, ErrCorrupt, those of Sync.
func (p *Page) At(ctx context.Context, id CommitID) (*Snapshot, error) {
	s, err := p.in.At(ctx, id)
	if err != nil {
		return nil, err
	}
	return newSnapshot(s), nil
}

// Update calls fn with a transaction on the handle's head and commits it when fn returns nil. The
// closures of one page run one after another, so that each sees the commits of those before it. fn
// must not call Update, Put, Delete, Restore, Undo, Merge or WaitForMerge of the same page, nor
// Commit of another transaction on it: they would wait for fn itself.
//
// Update returns the id of the new commit, or of the head when fn changed nothing. When it returns
// a nil error, the commit survives a crash. When fn fails, nothing changes and Update returns fn's
// error as it is; when fn panics, nothing changes and the panic continues. ctx bounds the wait for
// the turn; a batch that is being written is always finished. Errors: ErrClosed, ErrReadOnly,
// ErrNoSpace, ErrCorrupt, those of ctx and fn.
func (p *Page) Update(ctx context.Context, fn func(*Tx) error) (CommitID, error) {
	if fn == nil {
		return CommitID{}, fmt.Errorf("update: there is no function: %w", ErrInvalid)
	}
	return p.in.Update(ctx, func(t *session.Tx) error { return fn(newTx(t)) })
}

// TxOptions say how a transaction begins. Nil and the zero value mean: on the handle's head, and
// siblings are allowed.
type TxOptions struct {
	// Base is the commit to build on; zero means the handle's head.
	Base CommitID
	// FailOnConflict makes Commit fail with ErrConflict when Base is no longer a head, instead of
	// making a second head. After this error, the handle's next Begin with FailOnConflict and
	// without Base waits up to a second for the page's write turn. The new transaction holds the
	// turn, so that retries succeed in the end; other writers wait. It holds the turn for 10 ms
	// plus twice the time of the failed transaction, at most a second; after that others may write
	// first.
	FailOnConflict bool
}

// Begin starts a transaction on a fixed base. Other commits are not blocked, except as
// TxOptions.FailOnConflict says. With TxOptions.Base it may fetch the tree of that commit, as At
// does. The caller must end it with Commit or Rollback. o may be nil. Errors: those of At;
// ErrReadOnly.
func (p *Page) Begin(ctx context.Context, o *TxOptions) (*Tx, error) {
	how := given(o)
	t, err := p.in.Begin(ctx, how.Base, how.FailOnConflict)
	if err != nil {
		return nil, err
	}
	return newTx(t), nil
}

// given returns options that may be nil.
func given[O any](o *O) (out O) {
	if o != nil {
		out = *o
	}
	return out
}

// Refresh moves the handle to the newest durable head of the page, on any branch, and returns it.
// Without Refresh a handle stays on its own branch until the branches are merged. Errors:
// ErrClosed, those of ctx.
func (p *Page) Refresh(ctx context.Context) (CommitID, error) { return p.in.Refresh(ctx) }

// Heads returns the durable commits without children, oldest first by (timestamp, id). There is at
// least one, and only one unless siblings wait to be merged. Errors: ErrClosed.
func (p *Page) Heads(context.Context) ([]Commit, error) {
	heads, err := p.in.Heads()
	out := make([]Commit, len(heads))
	for i, h := range heads {
		out[i] = newCommit(h)
	}
	return out, err
}

// Commit returns the commit with the given id. Errors: ErrNotFound, ErrClosed, ErrCorrupt.
func (p *Page) Commit(ctx context.Context, id CommitID) (Commit, error) {
	c, err := p.in.Commit(ctx, id)
	if err != nil {
		return Commit{}, fmt.Errorf("read commit: %w", err)
	}
	return newCommit(c), nil
}

// Tag gives a commit a name, or moves an existing name to it. Retention keeps a tagged commit. name
// is 1 to 256 bytes of UTF-8 without '~', control characters and spaces. It must not look like
// another revision: "HEAD", "none", 4 to 64 hexadecimal digits, a time. Older or downloaded tags
// with such names stay and can be deleted. The zero id means the handle's head. When Tag returns
// nil, the tag survives a crash. Errors: ErrNotFound (no such commit), ErrInvalid, ErrTooLarge,
// ErrClosed, ErrReadOnly.
func (p *Page) Tag(ctx context.Context, name string, id CommitID) error {
	return p.in.Tag(ctx, name, id)
}

// DeleteTag deletes a tag. When it returns nil, the deletion survives a crash. Errors: ErrNotFound,
// ErrInvalid (name), ErrClosed, ErrReadOnly.
func (p *Page) DeleteTag(ctx context.Context, name string) error { return p.in.DeleteTag(ctx, name) }

// Tags returns the commits of all tags by their names. The map belongs to the caller. Errors:
// ErrClosed, ErrCorrupt.
func (p *Page) Tags(ctx context.Context) (map[string]CommitID, error) { return p.in.Tags(ctx) }
