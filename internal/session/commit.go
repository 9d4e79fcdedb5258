package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

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
func (p *Page) Update(ctx context.Context, fn func(*Tx) error) (commit.ID, error) {
	t, unlock, err := p.beginUpdate(ctx)
	if err != nil {
		return commit.ID{}, err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or ended its goroutine
			t.abandon()
			unlock()
		}
	}()
	err = fn(t)
	returned = true
	if err != nil {
		t.abandon()
		unlock()
		if werr := p.waitDurable(t.base); werr != nil {
			return commit.ID{}, errors.Join(err, werr)
		}
		return commit.ID{}, err
	}
	return t.finish(ctx, unlock, func(ctx context.Context) (*commit.Commit, *storage.Pending, error) {
		root, err := t.apply(ctx)
		if err != nil {
			return nil, nil, err
		}
		return p.submit(ctx, t.sink, root, t.base, t.message)
	})
}

// beginUpdate takes the page's write turn and begins a transaction on the newest head of the
// handle's branch.
func (p *Page) beginUpdate(ctx context.Context) (*Tx, func(), error) {
	if err := p.enter(); err != nil {
		return nil, nil, err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	head, j, unlock, err := p.lockHead(call)
	if err != nil {
		return nil, nil, call.Explain(fmt.Errorf("update: %w", err))
	}
	t := p.newTx(head, j, func() {}) // a head is not pruned, and this turn keeps it a head
	t.managed = true
	return t, unlock, nil
}

// lockHead takes the page's write turn and returns the newest head of the handle's branch, with a
// journal for a commit on it. The caller has entered.
func (p *Page) lockHead(ctx context.Context) (head *commit.Commit, j *storage.Journal, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	if unlock, err = p.env.Store.Lock(ctx); err != nil {
		return nil, nil, nil, err
	}
	// The journal is made first: if the disk fails in between, the commit fails too and does not
	// rely on lost data.
	j = p.env.Store.NewJournal()
	if head, err = p.newestAbove(ctx, p.position.Load(), p.env.Store.ChainedHeads()); err != nil {
		j.Rollback()
		unlock()
		return nil, nil, nil, err
	}
	return head, j, unlock, nil
}

// abandon ends a transaction of Update, unless Close of the page already has.
func (t *Tx) abandon() {
	if t.enter() == nil {
		t.end()
		t.leave()
	}
}

// waitDurable waits until a head that a caller has read is durable or has failed.
func (p *Page) waitDurable(head *commit.Commit) error {
	if err := p.env.Store.WaitDurable(head); err != nil {
		return fmt.Errorf("the commit that was read could not be made durable: %w", err)
	}
	return nil
}

// seen waits until a head that a caller has read is durable, and moves the handle to it. The caller
// has entered the page.
func (p *Page) seen(head *commit.Commit) (commit.ID, error) {
	if err := p.waitDurable(head); err != nil {
		return commit.ID{}, err
	}
	p.advance(head)
	return head.ID, nil
}

// finish ends the transaction with the commit that hand submits; nil when nothing changed. unlock
// releases the write turn before the sync.
func (t *Tx) finish(ctx context.Context, unlock func(), hand func(context.Context) (*commit.Commit, *storage.Pending, error)) (commit.ID, error) {
	if err := t.enter(); err != nil {
		unlock()
		return commit.ID{}, err
	}
	defer t.leave()
	p, started, changes := t.page, t.page.env.Clock.Now(), t.moved+t.journal.Count()
	call := p.gate.Call(ctx)
	defer call.Release()
	release := p.env.Store.Pin(t.base.ID) // until the commit on it is durable
	defer release()
	c, pending, err := hand(call)
	t.end()
	unlock()
	if err == nil && pending != nil {
		err = pending.Wait()
		if c != nil && p.env.Committed != nil {
			p.env.Committed(c, changes, p.env.Clock.Now().Sub(started), err)
		}
	}
	switch {
	case err != nil:
		return commit.ID{}, call.Explain(fmt.Errorf("commit: %w", err))
	case c != nil:
		p.advance(c)
		p.env.WantMerge()
		return c.ID, nil
	case t.managed || t.turn != nil:
		return p.seen(t.base)
	}
	return t.base.ID, nil
}

// apply returns the root of the tree with the changes.
func (t *Tx) apply(ctx context.Context) (object.Digest, error) {
	if t.journal.Empty() {
		return t.root, nil
	}
	root, err := t.tree().Apply(ctx, t.sink, t.journal.All())
	if err != nil {
		t.page.note(err)
		return root, fmt.Errorf("apply changes: %w", err)
	}
	return root, nil
}

// submit makes a commit with the given root and submits it with the pieces of sink. When the parent
// has the same root, it makes no commit, and supplies missing pieces. The caller holds the page's
// write turn.
func (p *Page) submit(ctx context.Context, sink *storage.Journal, root object.Digest, parent *commit.Commit, message string) (*commit.Commit, *storage.Pending, error) {
	if root == parent.Root {
		return p.supply(ctx, sink)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c, err := commit.New(commit.Params{
		Now: p.env.Clock.Now(), Root: root, Parents: []*commit.Commit{parent}, Device: p.env.Device, Message: message,
	})
	if err != nil {
		return nil, nil, err
	}
	pending, err := p.env.Store.Submit(ctx, sink, c)
	if err != nil {
		return nil, nil, err
	}
	return c, pending, nil
}

// supply submits the pieces of values in sink without a commit, if there are any. A tree with these
// values is in the page already, so the page has lost the pieces, or only the cloud has them.
func (p *Page) supply(ctx context.Context, sink *storage.Journal) (_ *commit.Commit, pending *storage.Pending, err error) {
	if sink.HasPieces() {
		pending, err = p.env.Store.Submit(ctx, sink)
	}
	return nil, pending, err
}

// Replace makes a durable commit on head from entries, sorted by key; nil when head has the same
// content. Errors: base.ErrReadOnly, base.ErrNoSpace, base.ErrCorrupt, those of entries and of ctx.
func (p *Page) Replace(ctx context.Context, head *commit.Commit, message string, entries iter.Seq2[fb.Entry, error]) (*commit.Commit, error) {
	unlock, err := p.env.Store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sink := p.env.Store.NewJournal()
	defer sink.Rollback()
	root, err := btree.Build(ctx, p.env.Store.Page(), sink, entries)
	if err != nil {
		return nil, err
	}
	next, pending, err := p.submit(ctx, sink, root, head, message)
	if err == nil && pending != nil {
		err = pending.Wait()
	}
	return next, err
}

// Begin starts a transaction on the fixed commit on; the zero id means the handle's head. Other
// commits are not blocked. The caller must end it with Commit or Rollback. Errors: ErrClosed,
// ErrReadOnly, ErrNotFound (no such commit), ErrCorrupt.
//
// With failOnConflict, Commit fails with ErrConflict when the commit is no longer a head, instead
// of making a second head. After this error, the handle's next Begin with failOnConflict and
// without a commit waits up to a second for the page's write turn. The new transaction holds the
// turn, and other writers wait. It holds the turn for 10 ms plus twice the time of the failed
// transaction, at most a second, and then continues without it.
func (p *Page) Begin(ctx context.Context, on commit.ID, failOnConflict bool) (*Tx, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if p.env.ReadOnly {
		return nil, fmt.Errorf("begin transaction: the repository is open for reading: %w", base.ErrReadOnly)
	}
	if failOnConflict && on.IsZero() {
		if hold, ok := p.refused.take(); ok {
			if t, err := p.beginInTurn(ctx, hold); t != nil || err != nil {
				return t.strict(), err
			}
		}
	}
	j := p.env.Store.NewJournal()
	base, release, err := p.pin(ctx, on)
	if err != nil {
		j.Rollback()
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	if !on.IsZero() {
		if err := p.EnsureTree(ctx, base); err != nil {
			release()
			j.Rollback()
			return nil, fmt.Errorf("begin transaction: %w", err)
		}
	}
	t := p.newTx(base, j, release)
	t.nodes = &completedNodes{t.sink, p, base}
	if failOnConflict {
		t.strict()
	}
	return t, nil
}

// strict makes a transaction, which may be nil, fail when its base is no longer a head.
func (t *Tx) strict() *Tx {
	if t != nil {
		t.failOnConflict, t.began = true, t.page.env.Clock.Now()
	}
	return t
}

// Commit ends the transaction and makes its changes durable. It returns the id of the new commit,
// or of the base when nothing has changed. It is for transactions from Begin; within Update it
// fails with ErrInvalid. After an error the transaction has ended and nothing has changed. Only a
// disk error (ErrReadOnly until the page is reopened) leaves open whether the whole commit is
// stored or nothing. Errors: ErrConflict (with FailOnConflict), ErrTxDone, ErrClosed, ErrReadOnly,
// ErrNoSpace, ErrCorrupt, those of ctx.
func (t *Tx) Commit(ctx context.Context) (commit.ID, error) {
	if t.managed {
		return commit.ID{}, fmt.Errorf("commit a transaction of Update: %w", base.ErrInvalid)
	}
	return t.finish(ctx, func() {}, t.commit)
}

// commit applies the changes before it takes the write turn, since the base is fixed.
func (t *Tx) commit(ctx context.Context) (*commit.Commit, *storage.Pending, error) {
	root, err := t.apply(ctx)
	if err != nil {
		return nil, nil, err
	}
	if root == t.base.Root {
		return t.page.supply(ctx, t.sink)
	}
	took := t.page.env.Clock.Now().Sub(t.began)
	if t.turn.claim() {
		defer t.turn.unlock()
	} else {
		unlock, err := t.page.env.Store.Lock(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer unlock()
	}
	isBase := func(h *commit.Commit) bool { return h.ID == t.base.ID }
	if t.failOnConflict && !slices.ContainsFunc(t.page.env.Store.ChainedHeads(), isBase) {
		t.page.refused.add(took)
		return nil, nil, fmt.Errorf("another commit was made on %s meanwhile: %w", t.base.ID.Short(), base.ErrConflict)
	}
	return t.page.submit(ctx, t.sink, root, t.base, t.message)
}
