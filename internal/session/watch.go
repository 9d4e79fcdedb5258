package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// WatchOptions say what a Watch tells. All fields are set, but Prefix may be nil.
type WatchOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// From is the commit behind which the watch begins; zero means the session's head when Watch is
	// called.
	From commit.ID
	// PageEntries is the greatest number of changes in one part.
	PageEntries int
	// PageBytes is the greatest number of bytes of keys and inline values, old and new ones, in one
	// part, unless a single change has more.
	PageBytes int
}

// Part is what differs between two commits, or a part of it: the caller has made a C of each
// change.
type Part[C any] struct {
	// Base and Commit are the commits.
	Base, Commit *commit.Commit
	// Changes are the keys that differ, at least one, in ascending order.
	Changes []C
	// First and Last say whether the part is the first one, and the last one.
	First, Last bool
}

// Watch tells the changes of the page as they become durable: it leads from one commit to the
// newest durable head that descends from it. own makes what is told of a change, which is borrowed.
// Nothing is computed ahead, and nothing is held beyond one part. The sequence may be ranged over
// more than once. It ends only with an error, as the last element: base.ErrGone (From is not here,
// or no more), base.ErrClosed, base.ErrCorrupt, those of ctx, which governs the whole loop, and
// those of the disk.
func Watch[C any](ctx context.Context, p *Page, o WatchOptions, own func(*btree.DiffEntry) C) iter.Seq2[Part[C], error] {
	o.Prefix = bytes.Clone(o.Prefix)
	var err error
	if o.From.IsZero() {
		o.From, err = p.watchStart(ctx)
	}
	return func(yield func(Part[C], error) bool) {
		if err != nil {
			yield(Part[C]{}, fmt.Errorf("watch: %w", err))
			return
		}
		w := watcher[C]{page: p, o: o, own: own, yield: yield}
		if err := w.start(ctx); err != nil {
			yield(Part[C]{}, fmt.Errorf("watch: %w", err))
			return
		}
		defer func() { w.release() }()
		for w.step(ctx) {
		}
	}
}

// watchStart returns the handle's head.
func (p *Page) watchStart(ctx context.Context) (commit.ID, error) {
	if err := ctx.Err(); err != nil {
		return commit.ID{}, err
	}
	c, release, err := p.Pin(ctx, commit.ID{})
	if err != nil {
		return commit.ID{}, err
	}
	release()
	return c.ID, nil
}

// watcher is one loop of a Watch. All that it remembers between notifications is a commit.
type watcher[C any] struct {
	page    *Page
	o       WatchOptions
	own     func(*btree.DiffEntry) C
	yield   func(Part[C], error) bool
	at      *commit.Commit // what has been told
	release func()         // of at
}

// start goes to the commit where the watch begins.
func (w *watcher[C]) start(ctx context.Context) error {
	c, release, err := w.page.Pin(ctx, w.o.From)
	if errors.Is(err, base.ErrNotFound) {
		return fmt.Errorf("commit %s is not here, or no more: %w", w.o.From.Short(), base.ErrGone)
	}
	w.at, w.release = c, release
	return err
}

// step waits for a newer commit and tells it. It reports whether the loop goes on.
func (w *watcher[C]) step(ctx context.Context) bool {
	next, release, err := w.wait(ctx)
	if err != nil {
		return w.fail(err)
	}
	defer func() { release() }() // of next, or of what it replaces
	if !w.tell(ctx, next) {
		return false
	}
	w.at, w.release, release = next, release, w.release
	return true
}

func (w *watcher[C]) fail(err error) bool {
	w.yield(Part[C]{}, fmt.Errorf("watch: %w", err))
	return false
}

// wait returns the newest durable head that descends from where the watch is, pinned, once there is
// one.
func (w *watcher[C]) wait(ctx context.Context) (*commit.Commit, func(), error) {
	for {
		next, release, changed, err := w.look(ctx)
		if err != nil || next != nil {
			return next, release, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-w.page.gate.Life().Done():
		}
	}
}

// look returns the newest durable head that descends from where the watch is, pinned, or else nil
// and what to wait for before looking again.
func (w *watcher[C]) look(ctx context.Context) (next *commit.Commit, release func(), changed <-chan struct{}, err error) {
	p := w.page
	if err := p.enter(); err != nil {
		return nil, nil, nil, err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	for {
		if err := call.Err(); err != nil {
			return nil, nil, nil, call.Explain(err)
		}
		changed = p.env.Store.HeadsChanged() // before the heads are read: what comes after them is not missed
		next, err := p.follow(call, w.at)
		if err != nil {
			return nil, nil, nil, call.Explain(fmt.Errorf("follow the branch of commit %s: %w", w.at.ID.Short(), err))
		}
		if next.ID == w.at.ID {
			return nil, nil, changed, nil
		}
		release := p.env.Store.Pin(next.ID)
		// It may have become an ancestor in between, and have been pruned.
		_, err = p.env.Store.Commit(call, next.ID)
		if err == nil {
			return next, release, nil, nil
		}
		release()
		if !errors.Is(err, base.ErrNotFound) {
			p.note(err)
			return nil, nil, nil, call.Explain(err)
		}
	}
}

// tell yields what differs between where the watch is and next, in parts. It reports whether the
// loop goes on.
func (w *watcher[C]) tell(ctx context.Context, next *commit.Commit) bool {
	part := Part[C]{Base: w.at, Commit: next, First: true}
	size := 0
	for d, err := range diffTrees(ctx, w.page.Tree(w.at), w.page.Tree(next), w.o.Prefix, nil) {
		if err != nil {
			return w.fail(fmt.Errorf("find the changes of commit %s since %s: %w", next.ID.Short(), w.at.ID.Short(), err))
		}
		n := changeBytes(&d)
		// A part is full only when there is one more change: so the last one is never empty.
		if len(part.Changes) == w.o.PageEntries || len(part.Changes) > 0 && size+n > w.o.PageBytes {
			if !w.deliver(ctx, part) {
				return false
			}
			part.Changes, part.First, size = nil, false, 0
		}
		part.Changes = append(part.Changes, w.own(&d))
		size += n
	}
	if len(part.Changes) == 0 {
		return true
	}
	part.Last = true
	return w.deliver(ctx, part)
}

// changeBytes is what a change counts for WatchOptions.PageBytes.
func changeBytes(d *btree.DiffEntry) int {
	return len(d.Key) + len(d.Left.Value) + len(d.Right.Value)
}

// deliver yields a part. It reports whether the loop goes on.
func (w *watcher[C]) deliver(ctx context.Context, part Part[C]) bool {
	err := ctx.Err()
	if w.page.gate.Closed() {
		err = errPageClosed
	}
	if err != nil {
		return w.fail(err)
	}
	return w.yield(part, nil)
}
