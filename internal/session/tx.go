package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// Tx is a transaction: a base commit and changes on it. Its own reads see the changes; other
// readers see all of them at once after Commit. It is for one goroutine at a time. Changes beyond
// Env.JournalBytes, and long values at once, go to the log, so that a transaction may be of any
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
	turn           *heldTurn // the write turn, of a retry after a refusal; nil for others
	release        func()    // unpins the base
	message        string

	root    object.Digest // of the tree below the changes in the journal: the base's at first
	journal changes.Journal
	moved   int // how many changes have gone from the journal to the tree
	sink    *storage.Journal
	nodes   btree.Source // of the tree
	within  *Namespace   // of a Draft: the writable keys; nil for others
	over    atomic.Bool
}

// newTx makes a transaction on base. j was made before base was looked up: if the disk fails in
// between, the commit fails too and does not rely on lost data. The caller has entered the page.
func (p *Page) newTx(base *commit.Commit, j *storage.Journal, release func()) *Tx {
	t := &Tx{page: p, base: base, root: base.Root, release: release, sink: j, nodes: j}
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

var errTxDone = fmt.Errorf("use a transaction or a merge: %w", base.ErrTxDone)

func (t *Tx) leave()               { t.page.leave() }
func (t *Tx) session() *Page       { return t.page }
func (t *Tx) pieces() split.Source { return t.sink }

func (t *Tx) tree() btree.Tree {
	return btree.Tree{Page: t.page.env.Store.Page(), Source: t.nodes, Root: t.root}
}

// find returns the entry of key as the transaction sees it.
func (t *Tx) find(ctx context.Context, key []byte) (fb.Entry, bool, error) {
	if c, ok := t.journal.Get(key); ok {
		return c.Entry, !c.Delete, nil
	}
	e, ok, err := t.tree().Get(ctx, key)
	if err != nil {
		t.page.note(err)
	}
	return e, ok, err
}

// change records a change, which it copies. Changes that take too much memory go to the tree first;
// its new nodes are in the sink, as those of the commit will be. Errors: those of apply.
func (t *Tx) change(ctx context.Context, c *btree.Change) error {
	if t.journal.Bytes() >= t.page.env.JournalBytes {
		root, err := t.apply(ctx)
		if err != nil {
			return err
		}
		t.root, t.moved = root, t.moved+t.journal.Count()
		t.journal.Clear()
	}
	t.journal.Set(c)
	return nil
}

// Record gives key an entry, or none. Errors: those of the journal, base.ErrCorrupt, those of ctx.
func (t *Tx) Record(ctx context.Context, key []byte, e *fb.Entry, has bool) error {
	c := btree.Change{Delete: !has, Entry: *e}
	c.Entry.Key = key
	return t.change(ctx, &c)
}

// end discards everything, and reports whether the transaction was open. The caller has entered the
// page, or has closed its gate.
func (t *Tx) end() bool {
	if t.over.Swap(true) {
		return false
	}
	t.page.mu.Lock()
	delete(t.page.txs, t)
	t.page.mu.Unlock()
	t.sink.Rollback()
	t.journal.Clear()
	t.release()
	t.turn.drop()
	return true
}

// Base returns the commit on which the transaction builds.
func (t *Tx) Base() *commit.Commit { return t.base }

// Origin returns the origin of the transaction's entries.
func (t *Tx) Origin() Origin { return t }

// Get returns the value of key as the transaction sees it. See Snapshot.Get.
func (t *Tx) Get(ctx context.Context, key []byte) ([]byte, error) {
	e, err := t.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	return ReadValue(ctx, t, &e)
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
	it.open(t, newTxCursor(t, o.Reverse), o)
	return it
}

// Seek returns the first key at or after key as the transaction sees it. See Snapshot.Seek.
func (t *Tx) Seek(ctx context.Context, key []byte) ([]byte, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	for {
		found, err := t.tree().Seek(ctx, key)
		if err != nil {
			t.page.note(err)
			return nil, fmt.Errorf("seek: %w", err)
		}
		c, changed := t.journal.Seek(key)
		switch {
		case found != nil && (!changed || bytes.Compare(found, c.Entry.Key) < 0):
			return ownedBytes(found), nil
		case !changed:
			return nil, errNoEntry
		case !c.Delete:
			return ownedBytes(c.Entry.Key), nil
		}
		key = append(bytes.Clone(c.Entry.Key), 0)
	}
}

// Rollback ends the transaction and discards its changes. After Commit or Rollback it does nothing
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
	t.end()
	if t.turn != nil { // its reads may not have been durable
		return t.page.waitDurable(t.base)
	}
	return nil
}
