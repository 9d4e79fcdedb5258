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

// Env is what the sessions on one page have in common. All fields but Committed are set. The
// functions are called on the goroutine of a call, possibly on several at once.
type Env struct {
	// Store is the open store of the page. It stays open until the last session is closed.
	Store *storage.Store
	// Clock tells the time for commits, and how long a transaction takes.
	Clock clock.Clock
	// Logger gets what no caller is told. It names the page.
	Logger *slog.Logger
	// Table is what values are cut with.
	Table func() *split.Table
	// Device is recorded in commits.
	Device string
	// JournalBytes is what the changes of a transaction take in memory before they go to a file.
	JournalBytes int64
	// ReadOnly refuses transactions.
	ReadOnly bool
	// Committed is told of each commit that is durable, or has failed with err: how many changes it
	// has, and how long it took. Nil means that nobody asks.
	Committed func(c *commit.Commit, changes int, took time.Duration, err error)
	// Note is told of errors, for those that match base.ErrCorrupt.
	Note func(err error)
	// WantMerge has the heads merged in the background when there are several.
	WantMerge func()
	// HasCloud reports whether a tree that is not here can be fetched.
	HasCloud func() bool
	// Fetch makes the tree of a commit readable here.
	Fetch func(ctx context.Context, id commit.ID) error
	// FetchPieces brings pieces of values from the cloud, and returns their bytes.
	FetchPieces func(ctx context.Context, pieces []object.Digest) (int64, error)
	// Near returns the nearest ancestors of a commit that are here, where its parents were given
	// up, and whether it knows them.
	Near func(ctx context.Context, id commit.ID) ([]commit.ID, bool, error)
}

// now returns the time, for Committed alone.
func (e *Env) now() time.Time {
	if e.Committed == nil {
		return time.Time{}
	}
	return e.Clock.Now()
}

// Warn logs an error that is of no consequence for the call that met it.
func (e *Env) Warn(err error) {
	if err != nil {
		e.Logger.Warn("a temporary file stays until the page is opened again", "error", err)
	}
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

// New begins a session at the newest head. It must be closed.
func New(env *Env) *Page {
	p := &Page{env: env, gate: gate.New(), txs: map[*Tx]struct{}{}, snapshots: map[*state]struct{}{}}
	heads := env.Store.Heads()
	p.position.Store(heads[len(heads)-1])
	return p
}

// Leaks counts what was open when its session was closed.
type Leaks struct{ Transactions, Snapshots int }

// Add adds m.
func (l *Leaks) Add(m Leaks) {
	l.Transactions += m.Transactions
	l.Snapshots += m.Snapshots
}

// Err returns an error that says how many there were, nil for none.
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

// Close ends the session and the calls that wait in it, waits for all that run, and ends what was
// taken from it. It returns what the caller should have ended, and what went wrong as that was
// ended. It is called once.
func (p *Page) Close() (Leaks, error) {
	p.gate.Close()
	txs := p.Transactions()
	p.mu.Lock()
	snapshots := slices.Collect(maps.Keys(p.snapshots))
	p.mu.Unlock()
	var l Leaks
	var errs []error
	for _, t := range txs {
		open, err := t.end()
		if open && !t.managed {
			l.Transactions++
		}
		errs = append(errs, err)
	}
	for _, s := range snapshots {
		if s.end() && !s.managed {
			l.Snapshots++
		}
	}
	return l, errors.Join(errs...)
}

var errPageClosed = fmt.Errorf("page: %w", base.ErrClosed)

// Gate returns the gate of the session.
func (p *Page) Gate() *gate.Gate { return p.gate }

// Enter lets a call in that must then Leave. Errors: base.ErrClosed.
func (p *Page) Enter() error { return p.enter() }

// Leave ends a call that has entered.
func (p *Page) Leave() { p.leave() }

// Transactions returns those that are open.
func (p *Page) Transactions() []*Tx {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.txs))
}

// Open counts the transactions and snapshots that are open.
func (p *Page) Open() Leaks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Leaks{Transactions: len(p.txs), Snapshots: len(p.snapshots)}
}

// Position returns the commit that the session has seen last.
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

// find makes a Page the origin of the entries of a Diff, which hold their inline values.
func (p *Page) find(context.Context, []byte) (fb.Entry, bool, error) { return fb.Entry{}, false, nil }

// Call calls fn with a context that ends when the session closes. What ended for that reason
// matches base.ErrClosed. Errors: base.ErrClosed, those of fn.
func (p *Page) Call(ctx context.Context, fn func(context.Context) error) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	return call.Explain(fn(call))
}

// pin returns a commit, zero meaning the session's head, and keeps it from being pruned until
// release is called. The caller has entered.
func (p *Page) pin(ctx context.Context, id commit.ID) (c *commit.Commit, release func(), err error) {
	if !id.IsZero() {
		release := p.env.Store.Pin(id)
		c, err := p.env.Store.Commit(ctx, id)
		if err == nil {
			// Somebody may have seen the id before its sync returned.
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
		// It may have become an ancestor in between, and have been pruned.
		if slices.Contains(p.env.Store.Heads(), c) {
			return c, release, nil
		}
		release()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// Pin returns a commit, the zero id meaning the session's head, and keeps it from being pruned
// until release is called. Errors: base.ErrNotFound, base.ErrClosed, base.ErrCorrupt, those of ctx.
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
// tree where that is not here. It must be closed. Errors: base.ErrNotFound, base.ErrNeedsFetch,
// base.ErrNetwork, base.ErrClosed, base.ErrCorrupt.
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

// Heads returns the commits without children that are durable, oldest first. Errors:
// base.ErrClosed.
func (p *Page) Heads() ([]*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.env.Store.Heads(), nil
}

// Commit returns a commit once it is durable. Somebody asks for it by its id, who may be wrong.
// Errors: base.ErrNotFound, base.ErrClosed, base.ErrCorrupt.
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

// FetchHistory makes the tree of a commit readable here. Errors: base.ErrNotFound, those of
// Env.Fetch.
func (p *Page) FetchHistory(ctx context.Context, id commit.ID) error {
	c, err := p.Commit(ctx, id)
	if err != nil {
		return fmt.Errorf("fetch history: %w", err)
	}
	return p.EnsureTree(ctx, c)
}

// EnsureTree makes the tree of a commit readable, for callers who may have entered or not.
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

// fetchTree fetches a tree that is not here.
func (p *Page) fetchTree(ctx context.Context, id commit.ID) error {
	err := p.Call(ctx, func(ctx context.Context) error { return p.env.Fetch(ctx, id) })
	if errors.Is(err, base.ErrReadOnly) || errors.Is(err, base.ErrNoCloud) {
		return fmt.Errorf("%w: %w", base.ErrNeedsFetch, err)
	}
	return err
}
