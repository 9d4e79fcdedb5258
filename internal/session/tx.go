package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/changes"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// Tx is a transaction: a base commit and the changes made on it, which its reads see. Nobody else
// sees them before Commit, and then all at once. It is for one goroutine at a time. Changes beyond
// Env.JournalBytes, and long values at once, go to disk, so that a transaction may be of any
// size.
//
// After Commit, Rollback or the end of an Update closure all methods fail with ErrTxDone, and with
// ErrClosed after Close of the page.
type Tx struct {
	page           *Page
	base           *commit.Commit
	managed        bool // by Update, which commits it
	failOnConflict bool
	began          time.Time // when failOnConflict
	turn           *heldTurn // the write turn, of a transaction that was refused before; nil for others
	release        func()    // lets go of the base
	message        string

	root    object.Digest // of the tree that the changes apply to: the base's, or EmptyRoot after Clear
	journal changes.Journal
	sink    *Sink
	nodes   btree.Source // of the tree
	within  *Namespace   // of a Draft: where it may write; nil for others
	over    atomic.Bool
}

// Sink is the storage journal of a transaction or merge, guarded for values that are read while
// others are written. It is safe for concurrent use, and its lock is held during I/O.
type Sink struct {
	mu sync.Mutex
	j  *storage.Journal // guarded by mu
}

// NewSink returns the sink of a journal, which the caller leaves to it.
func NewSink(j *storage.Journal) *Sink { return &Sink{j: j} }

// Use calls fn with the journal while nobody else uses it.
func (k *Sink) Use(fn func(*storage.Journal) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fn(k.j)
}

// PutPiece implements btree.Sink and takes the pieces of values.
func (k *Sink) PutPiece(ctx context.Context, d object.Digest, content []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.PutPiece(ctx, d, content)
}

// PutNode implements btree.Sink.
func (k *Sink) PutNode(ctx context.Context, n btree.NewNode) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.PutNode(ctx, n)
}

// Node implements btree.Source.
func (k *Sink) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.Node(ctx, d)
}

// Piece implements split.Source.
func (k *Sink) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.Piece(ctx, d)
}

// Near implements split.Far.
func (k *Sink) Near(ctx context.Context, d object.Digest) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.Near(ctx, d)
}

// Bring implements split.Far.
func (k *Sink) Bring(ctx context.Context, ds []object.Digest) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.j.Bring(ctx, ds)
}

// Rollback forgets what the journal holds.
func (k *Sink) Rollback() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.j.Rollback()
}

// newTx makes a transaction on base. j was made before base was looked up, so that a failure of the
// disk in between makes the commit fail and not rely on what was lost. The caller has entered the
// page.
func (p *Page) newTx(base *commit.Commit, j *storage.Journal, release func()) *Tx {
	t := &Tx{page: p, base: base, root: base.Root, release: release, sink: &Sink{j: j}, nodes: p.env.Store}
	t.journal.Init(p.env.JournalBytes, p.env.Store.TempDir())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txs[t] = struct{}{}
	return t
}

func (t *Tx) enter() error {
	if !t.page.gate.Enter() {
		return errPageClosed
	}
	if t.over.Load() {
		t.page.leave()
		return errTxDone
	}
	return nil
}

var errTxDone = fmt.Errorf("use transaction: %w", base.ErrTxDone)

func (t *Tx) leave()               { t.page.leave() }
func (t *Tx) session() *Page       { return t.page }
func (t *Tx) pieces() split.Source { return t.sink }

func (t *Tx) tree() btree.Tree {
	return btree.Tree{Page: t.page.env.Store.Page(), Source: t.nodes, Root: t.root}
}

// find returns the entry of key as the transaction sees it.
func (t *Tx) find(ctx context.Context, key []byte) (fb.Entry, bool, error) {
	c, ok, err := t.journal.Get(key)
	if err != nil {
		return fb.Entry{}, false, err
	}
	if ok {
		return c.Entry, !c.Delete, nil
	}
	e, ok, err := t.tree().Get(ctx, key)
	if err != nil {
		t.page.note(err)
	}
	return e, ok, err
}

// end forgets everything. The caller has entered the page, or has closed its gate. It reports
// whether the transaction was open.
func (t *Tx) end() (bool, error) {
	if t.over.Swap(true) {
		return false, nil
	}
	t.page.mu.Lock()
	delete(t.page.txs, t)
	t.page.mu.Unlock()
	t.sink.Rollback()
	err := t.journal.Clear()
	t.release()
	t.turn.drop()
	return true, err
}

// Base returns the commit that the transaction builds on.
func (t *Tx) Base() *commit.Commit { return t.base }

// Origin returns what reads the values of the transaction.
func (t *Tx) Origin() Origin { return t }

// Get returns the value of key as the transaction sees it. See Snapshot.Get.
func (t *Tx) Get(ctx context.Context, key []byte) ([]byte, error) {
	e, err := t.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	return ReadValue(ctx, t, &e)
}

// Open returns a reader of the value that key has now; later changes do not change it. It ends with
// the transaction. See Snapshot.Open.
func (t *Tx) Open(ctx context.Context, key []byte) (*Value, error) {
	e, err := t.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	return OpenValue(ctx, t, &e), nil
}

// Lookup returns the entry of key as the transaction sees it, borrowed. See Snapshot.Lookup.
func (t *Tx) Lookup(ctx context.Context, key []byte) (fb.Entry, error) {
	if err := t.enter(); err != nil {
		return fb.Entry{}, err
	}
	defer t.leave()
	if err := ctx.Err(); err != nil {
		return fb.Entry{}, fmt.Errorf("get: %w", err)
	}
	e, ok, err := t.find(ctx, key)
	if err != nil {
		return fb.Entry{}, fmt.Errorf("get: %w", err)
	}
	if !ok {
		return fb.Entry{}, errNoEntry
	}
	return e, nil
}

// Iter returns an iterator as Scan does. See Snapshot.Iter.
func (t *Tx) Iter(o ScanOptions) *Iter {
	it := new(Iter)
	it.open(t, newTxCursor(t, o.Reverse), o, nil)
	return it
}

// Seek returns the first key that is not below key as the transaction sees it. See Snapshot.Seek.
func (t *Tx) Seek(ctx context.Context, key []byte) ([]byte, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	c := txCursor{t: t}
	found, err := c.start(ctx, key)
	if err != nil {
		t.page.note(err)
		return nil, fmt.Errorf("seek: %w", err)
	}
	if !found {
		return nil, errNoEntry
	}
	return ownedBytes(c.current.Key), nil
}

// Rollback ends the transaction and forgets its changes. After Commit or Rollback it does nothing
// and returns nil, so that it can be deferred. Within Update it fails with ErrInvalid: return an
// error instead.
func (t *Tx) Rollback() error {
	if t.managed {
		return fmt.Errorf("roll back a transaction of Update: %w", base.ErrInvalid)
	}
	err := t.enter()
	if errors.Is(err, base.ErrTxDone) || errors.Is(err, base.ErrClosed) {
		return nil // Close of the page has rolled it back
	}
	if err != nil {
		return err
	}
	defer t.leave()
	_, err = t.end()
	if t.turn != nil { // what it has read may not have been durable
		err = errors.Join(err, t.page.waitDurable(t.base))
	}
	return err
}
