package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/gate"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// Env is shared by the sessions on one page. All fields but Committed are set. The functions are
// called on the goroutine of a call, possibly on several at once.
type Env struct {
	// Store is the open store of the page. It stays open until the last session is closed.
	Store *storage.Store
	// Clock gives the time of commits and the duration of transactions.
	Clock clock.Clock
	// Logger receives messages that no call returns. It names the page.
	Logger *slog.Logger
	// Table is the secret table by which values are cut.
	Table func() *split.Table
	// Device is recorded in commits.
	Device string
	// JournalBytes is the memory for a transaction's changes before they go to its tree.
	JournalBytes int64
	// ReadOnly refuses transactions.
	ReadOnly bool
	// Committed is called for each commit that is durable, or has failed with err, with its number
	// of changes and its duration. It may be nil.
	Committed func(c *commit.Commit, changes int, took time.Duration, err error)
	// Note is called with errors, to report those that match base.ErrCorrupt.
	Note func(err error)
	// WantMerge requests a background merge when there are several heads.
	WantMerge func()
	// HasCloud reports whether a missing tree can be fetched.
	HasCloud func() bool
	// Fetch makes the tree of a commit readable on this device.
	Fetch func(ctx context.Context, id commit.ID) error
	// FetchPieces fetches pieces of values from the cloud, and returns their bytes.
	FetchPieces func(ctx context.Context, pieces []object.Digest) (int64, error)
	// Near returns the nearest kept ancestors of a commit whose parents were given up, and whether
	// they are known.
	Near func(ctx context.Context, id commit.ID) ([]commit.ID, bool, error)
}

// Page is one session on an open page. It follows its own branch; see branch.go.
type Page struct {
	env      *Env
	gate     *gate.Gate
	position atomic.Pointer[commit.Commit] // see branch.go
	refused  refusals

	mu        sync.Mutex
	txs       map[*Tx]struct{}    // guarded by mu
	snapshots map[*state]struct{} // guarded by mu
}

// New begins a session at the newest head. The caller must close it.
func New(env *Env) *Page {
	p := &Page{env: env, gate: gate.New(), txs: map[*Tx]struct{}{}, snapshots: map[*state]struct{}{}}
	heads := env.Store.Heads()
	p.position.Store(heads[len(heads)-1])
	return p
}

// Leaks counts the transactions and snapshots left open in a closed session.
type Leaks struct{ Transactions, Snapshots int }

// Add adds m.
func (l *Leaks) Add(m Leaks) {
	l.Transactions += m.Transactions
	l.Snapshots += m.Snapshots
}

// Err returns an error with the counts, nil for none.
func (l Leaks) Err() error {
	if l == (Leaks{}) {
		return nil
	}
	count := func(n int, noun string) string {
		if n != 1 {
			noun += "s"
		}
		return fmt.Sprint(n, " ", noun)
	}
	return fmt.Errorf("%s and %s were left open", count(l.Transactions, "transaction"), count(l.Snapshots, "snapshot"))
}

// Close ends the session and its waiting calls, waits for all running calls, and ends open
// transactions and snapshots, which it counts. It is called once.
func (p *Page) Close() (l Leaks) {
	p.gate.Close()
	txs := p.Transactions()
	p.mu.Lock()
	snapshots := slices.Collect(maps.Keys(p.snapshots))
	p.mu.Unlock()
	for _, t := range txs {
		if t.end() && !t.managed {
			l.Transactions++
		}
	}
	for _, s := range snapshots {
		if s.end() && !s.managed {
			l.Snapshots++
		}
	}
	return l
}

var errPageClosed = fmt.Errorf("page: %w", base.ErrClosed)

// Gate returns the gate of the session.
func (p *Page) Gate() *gate.Gate { return p.gate }

// Enter begins a call that must then Leave. Errors: base.ErrClosed.
func (p *Page) Enter() error { return p.enter() }

// Leave ends a call that has entered.
func (p *Page) Leave() { p.leave() }

// Transactions returns the open transactions.
func (p *Page) Transactions() []*Tx {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.txs))
}

// Open counts the open transactions and snapshots.
func (p *Page) Open() Leaks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Leaks{Transactions: len(p.txs), Snapshots: len(p.snapshots)}
}

// Position returns the last commit that the session has seen.
func (p *Page) Position() *commit.Commit { return p.position.Load() }

func (p *Page) enter() error {
	if !p.gate.Enter() {
		return errPageClosed
	}
	return nil
}

func (p *Page) leave()               { p.gate.Leave() }
func (p *Page) session() *Page       { return p }
func (p *Page) pieces() split.Source { return p.env.Store }
func (p *Page) note(err error)       { p.env.Note(err) }

// find makes a Page the origin of the entries of a Diff, which have their inline values.
func (p *Page) find(context.Context, []byte) (fb.Entry, bool, error) { return fb.Entry{}, false, nil }

// Call calls fn with a context that ends when the session closes; errors caused by that match
// base.ErrClosed. Errors: base.ErrClosed, those of fn.
func (p *Page) Call(ctx context.Context, fn func(context.Context) error) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	return call.Explain(fn(call))
}

// pin returns a commit, zero meaning the session's head, and pins it against pruning until release
// is called. The caller has entered.
func (p *Page) pin(ctx context.Context, id commit.ID) (c *commit.Commit, release func(), err error) {
	if !id.IsZero() {
		release := p.env.Store.Pin(id)
		c, err := p.env.Store.Commit(ctx, id)
		if err == nil {
			// A caller may have seen the id before its sync returned.
			err = p.env.Store.WaitDurable(c)
		}
		if err != nil {
			release()
			p.note(err)
			return nil, nil, err
		}
		return c, release, nil
	}
	for {
		c, err := p.head(ctx)
		if err != nil {
			return nil, nil, err
		}
		release := p.env.Store.Pin(c.ID)
		// It may have become an ancestor and been pruned meanwhile.
		if slices.Contains(p.env.Store.Heads(), c) {
			return c, release, nil
		}
		release()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// Pin returns a commit, the zero id meaning the session's head, and pins it against pruning until
// release is called. Errors: base.ErrNotFound, base.ErrClosed, base.ErrCorrupt, those of ctx.
func (p *Page) Pin(ctx context.Context, id commit.ID) (c *commit.Commit, release func(), err error) {
	if err := p.enter(); err != nil {
		return nil, nil, err
	}
	defer p.leave()
	return p.pin(ctx, id)
}

// View calls fn with a snapshot of the session's head and closes it when fn returns. It returns
// what fn returns. Errors: base.ErrClosed, base.ErrCorrupt.
func (p *Page) View(ctx context.Context, fn func(*Snapshot) error) error {
	s, err := p.snapshot(ctx, commit.ID{}, true)
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(s)
}

// At returns the page as of a commit; the zero id means the session's head. It fetches the commit's
// tree if that is not on this device. The caller must close it. Errors: base.ErrNotFound,
// base.ErrNeedsFetch, base.ErrNetwork, base.ErrClosed, base.ErrCorrupt.
func (p *Page) At(ctx context.Context, id commit.ID) (*Snapshot, error) {
	return p.snapshot(ctx, id, false)
}

func (p *Page) snapshot(ctx context.Context, id commit.ID, managed bool) (*Snapshot, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	c, release, err := p.pin(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	if !id.IsZero() {
		if err := p.EnsureTree(ctx, c); err != nil {
			release()
			return nil, fmt.Errorf("take snapshot: %w", err)
		}
	}
	return p.newSnapshot(c, release, managed), nil
}

// Heads returns the durable commits without children, oldest first. Errors: base.ErrClosed.
func (p *Page) Heads() ([]*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.env.Store.Heads(), nil
}

// Commit returns a commit once it is durable. The id is user input and may not exist. Errors:
// base.ErrNotFound, base.ErrClosed, base.ErrCorrupt.
func (p *Page) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	c, err := p.env.Store.Commit(ctx, id)
	if err != nil {
		p.note(err)
		return nil, err
	}
	return c, p.env.Store.WaitDurable(c)
}

// EnsureTree makes the tree of a commit readable, whether the caller has entered or not.
func (p *Page) EnsureTree(ctx context.Context, c *commit.Commit) error {
	if !p.env.HasCloud() {
		return nil
	}
	if err := p.enter(); err != nil {
		return err
	}
	held, err := p.env.Store.TreeHeld(ctx, c)
	p.leave()
	if err != nil || held {
		return err
	}
	return p.fetchTree(ctx, c.ID)
}

// fetchTree fetches a missing tree.
func (p *Page) fetchTree(ctx context.Context, id commit.ID) error {
	err := p.Call(ctx, func(ctx context.Context) error { return p.env.Fetch(ctx, id) })
	if errors.Is(err, base.ErrReadOnly) || errors.Is(err, base.ErrNoCloud) {
		return fmt.Errorf("%w: %w", base.ErrNeedsFetch, err)
	}
	return err
}
