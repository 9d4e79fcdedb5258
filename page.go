package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/storage"
)

// Page is a handle of an open page. Several handles of one page share its store, which closes when
// the last handle has been closed. A Page is safe for concurrent use.
//
// While a page has several heads, a handle stays on its own branch: it reads and writes on the
// newest head that is, or descends from, the commit that it saw last, until the branches are merged
// or Refresh is called. A new handle begins at the newest head. Where a doc comment says "the
// handle's head", that head is meant.
type Page struct {
	ledger *Ledger
	shared *pageStore
	store  *storage.Store // of shared
	in     *session.Page
	kind   presence.Kind

	once     sync.Once
	leaked   session.Leaks
	closeErr error
}

// ID returns the page's id.
func (p *Page) ID() PageID { return p.shared.key.ID }

// Name returns the human name under which the page was opened or is known, "" when there is none.
func (p *Page) Name() string { return p.shared.name }

// Ledger returns the ledger of the page.
func (p *Page) Ledger() *Ledger { return p.ledger }

// Close releases the handle: transactions and snapshots taken from it are rolled back and closed,
// and counted in the error. It waits for calls that run, is idempotent, and closes the store with
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
		p.leaked, p.closeErr = p.in.Close()
		p.closeErr = errors.Join(p.closeErr, p.shared.drop(p))
	})
	return p.leaked, p.closeErr
}

// View calls fn with a snapshot of the handle's head and closes it when fn returns. It returns what
// fn returns. Errors: ErrClosed, ErrCorrupt.
func (p *Page) View(ctx context.Context, fn func(*Snapshot) error) error {
	if fn == nil {
		return fmt.Errorf("view: there is no function: %w", ErrInvalid)
	}
	return p.in.View(ctx, func(s *session.Snapshot) error { return fn((*Snapshot)(s)) })
}

// Snapshot returns the page as of the handle's head. It must be closed. Errors: ErrClosed,
// ErrCorrupt.
func (p *Page) Snapshot(ctx context.Context) (*Snapshot, error) { return p.At(ctx, CommitID{}) }

// At returns the page as of a commit; the zero id means the handle's head. It must be closed. With
// a cloud it may fetch the commit's tree; see FetchHistory. Errors: ErrNotFound, ErrNeedsFetch,
// ErrNetwork, ErrClosed, ErrCorrupt.
func (p *Page) At(ctx context.Context, id CommitID) (*Snapshot, error) {
	s, err := p.in.At(ctx, id)
	return (*Snapshot)(s), err
}

// Update calls fn with a transaction on the handle's head and commits it when fn returns nil. The
// closures of one page run one after another: none sees a head that another is about to replace. fn
// must not call Update, Put, Delete, Commit, Merge or WaitForMerge of the same page, which would
// wait for itself: it has the transaction.
//
// It returns the id of the new commit, or of the head when fn changed nothing. When it returns nil,
// the commit survives a crash. When fn fails, nothing changes and Update returns fn's error as it
// is; when fn panics, nothing changes and the panic goes on. ctx governs the waiting for the turn;
// once the batch is being written it is finished. Errors: ErrClosed, ErrReadOnly, ErrNoSpace,
// ErrCorrupt, those of ctx and fn.
func (p *Page) Update(ctx context.Context, fn func(*Tx) error) (CommitID, error) {
	if fn == nil {
		return CommitID{}, fmt.Errorf("update: there is no function: %w", ErrInvalid)
	}
	return p.in.Update(ctx, func(t *session.Tx) error { return fn((*Tx)(t)) })
}

// TxOptions say how a transaction begins. Nil and the zero value mean: on the handle's head, and
// siblings are allowed.
type TxOptions struct {
	// Base is the commit to build on; zero means the handle's head.
	Base CommitID
	// FailOnConflict makes Commit fail with ErrConflict when Base is no longer a head, instead of
	// making a second head. After such an error the next Begin with FailOnConflict, and without
	// Base, of the same handle waits for the page's write turn, at most for a second, and the
	// transaction holds the turn, so that a retry is not refused for ever: other writers wait for
	// it. It holds the turn for 10 ms and twice as long as the refused one had run, at most for a
	// second; after that others may write before it.
	FailOnConflict bool
}

// Begin starts a transaction on a base that stays fixed; other commits go on meanwhile. The
// transaction must end with Commit or Rollback. o may be nil. Errors: ErrClosed, ErrReadOnly,
// ErrNotFound (no such base), ErrCorrupt.
func (p *Page) Begin(ctx context.Context, o *TxOptions) (*Tx, error) {
	how := given(o)
	t, err := p.in.Begin(ctx, how.Base, how.FailOnConflict)
	return (*Tx)(t), err
}

// given returns options that may be nil.
func given[O any](o *O) (out O) {
	if o != nil {
		out = *o
	}
	return out
}

// Refresh moves the handle to the newest durable head of the page, whatever branch that is on, and
// returns it. Without it a handle goes on with its own branch until the branches are merged.
// Errors: ErrClosed, those of ctx.
func (p *Page) Refresh(ctx context.Context) (CommitID, error) { return p.in.Refresh(ctx) }

// Heads returns the commits without children that are durable, oldest first by (timestamp, id):
// never none, and one unless siblings wait to be merged. Errors: ErrClosed.
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

// Tag is a name for a commit. A tagged commit is kept.
type Tag struct {
	Name   string
	Commit CommitID
}

// Tag gives a commit a name, which moves when it was another's. name is 1 to 256 bytes of UTF-8, is
// not "HEAD", and contains no '~', no control character and no space. Nor does it read like another
// revision: "none", 4 to 64 hexadecimal digits, a time; tags of such a name that were made before,
// or elsewhere, stay and can be deleted. The zero id means the handle's head. When Tag returns nil
// it survives a crash. Errors: ErrNotFound (no such commit), ErrInvalid, ErrTooLarge, ErrClosed,
// ErrReadOnly.
func (p *Page) Tag(ctx context.Context, name string, id CommitID) error {
	return p.in.Tag(ctx, name, id)
}

// DeleteTag takes a name away. Errors: ErrNotFound, ErrClosed, ErrReadOnly.
func (p *Page) DeleteTag(ctx context.Context, name string) error { return p.in.DeleteTag(ctx, name) }

// Tags returns all tags sorted by name. Errors: ErrClosed, ErrCorrupt.
func (p *Page) Tags(ctx context.Context) ([]Tag, error) {
	m, err := p.in.Tags(ctx)
	if err != nil {
		return nil, err
	}
	tags := make([]Tag, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		tags = append(tags, Tag{Name: name, Commit: m[name]})
	}
	return tags, nil
}
