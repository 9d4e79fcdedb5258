package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
)

// Defaults of WatchOptions.
const (
	// DefaultWatchEntries is the greatest number of changes in one part of a notification.
	DefaultWatchEntries = 1000
	// DefaultWatchBytes is about how many bytes of keys and inline values one part of a
	// notification has.
	DefaultWatchBytes = 1 << 20
)

// WatchOptions say what a Watch tells. The zero value, and a nil pointer, mean: all changes from
// now on.
type WatchOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// From is the commit behind which the watch begins; zero means the handle's head when Watch is
	// called. From FirstCommit on, everything that the page holds is told, also when history was
	// given up.
	From CommitID
	// PageEntries is the greatest number of changes in one part of a notification; 0 means
	// DefaultWatchEntries.
	PageEntries int
	// PageBytes is the greatest number of bytes of keys and inline values, old and new ones, in one
	// part, unless a single change has more; 0 means DefaultWatchBytes.
	PageBytes int
}

// withDefaults returns a copy of o with every zero field that has a default replaced by it. o may
// be nil.
func (o *WatchOptions) withDefaults() WatchOptions {
	var c WatchOptions
	if o != nil {
		c = *o
	}
	c.Prefix = bytes.Clone(c.Prefix)
	if c.PageEntries == 0 {
		c.PageEntries = DefaultWatchEntries
	}
	if c.PageBytes == 0 {
		c.PageBytes = DefaultWatchBytes
	}
	return c
}

// Validate reports options that cannot be right. Errors: ErrInvalid.
func (o *WatchOptions) Validate() error {
	switch {
	case o == nil:
	case o.PageEntries < 0:
		return fmt.Errorf("check watch options: PageEntries is %d, want 0 or more: %w", o.PageEntries, ErrInvalid)
	case o.PageBytes < 0:
		return fmt.Errorf("check watch options: PageBytes is %d, want 0 or more: %w", o.PageBytes, ErrInvalid)
	}
	return nil
}

// PartKind says which part of what is to be told a Notification is.
type PartKind uint8

// The kinds of parts.
const (
	// Whole is a notification in one part.
	Whole PartKind = iota
	// First, Middle and Last are parts of a long one. There may be any number of Middle ones, or
	// none.
	First
	Middle
	Last
)

// String returns the word for k, such as "whole".
func (k PartKind) String() string {
	switch k {
	case Whole:
		return "whole"
	case First:
		return "first"
	case Middle:
		return "middle"
	case Last:
		return "last"
	}
	return fmt.Sprintf("part %d", uint8(k))
}

// Notification tells what differs between two commits of a page. It belongs to the caller; the
// values of its entries may be read until the page is closed, and are kept for certain until the
// loop asks for the next notification.
type Notification struct {
	// Commit is the commit that is told of, and Base the commit against which it is told, an
	// ancestor of it. Below the prefix, Base holds what the notification before has led to.
	Commit Commit
	Base   CommitID
	// Changes are the keys that differ, at least one, in ascending order. Parts go on where the
	// part before ended.
	Changes []Change
	Part    PartKind
}

// Resume returns the commit from which a new Watch continues behind this notification: Commit, when
// it has been told wholly. After a First or Middle part it is Base: the new watch begins with the
// changes behind Base again, up to what is then the newest commit, so that parts whose last one has
// not come must be forgotten.
func (n *Notification) Resume() CommitID {
	if n.Part == Whole || n.Part == Last {
		return n.Commit.ID
	}
	return n.Base
}

// Watch tells the changes of the page as they become durable: each notification leads from one
// commit to the newest durable head that descends from it. Several commits are told as one when the
// loop is slower than the writers, and never less than one; what is long comes in parts, which
// carry the same Base and Commit. Commits that change nothing below the prefix are not told.
//
// The loop pulls: nothing is computed ahead and nothing is buffered beyond one part, however long
// the loop takes. A watch follows its own branch: it tells of a sibling when the two have been
// merged, and never goes back. No change is lost and none is told twice, also across Close and
// Open, when a watch begins From what Notification.Resume of the last notification gives.
//
// While the loop runs, the commits between which it stands are kept from being pruned. o may be
// nil. The sequence may be ranged over more than once; each time it begins at the same commit. It
// ends only with an error, as the last element, after which a new Watch may go on: ErrGone (From is
// not here, or no more), ErrClosed (the page was closed), ErrInvalid, ErrCorrupt, those of ctx,
// which governs the whole loop, and those of the disk.
func (p *Page) Watch(ctx context.Context, o *WatchOptions) iter.Seq2[Notification, error] {
	limits, err := o.withDefaults(), o.Validate()
	if err == nil && limits.From.IsZero() {
		limits.From, err = p.watchStart(ctx)
	}
	return func(yield func(Notification, error) bool) {
		if err != nil {
			yield(Notification{}, fmt.Errorf("watch: %w", err))
			return
		}
		w := watcher{page: p, o: limits, yield: yield}
		if err := w.start(ctx); err != nil {
			yield(Notification{}, fmt.Errorf("watch: %w", err))
			return
		}
		defer func() { w.release() }()
		for w.step(ctx) {
		}
	}
}

// watchStart returns the handle's head.
func (p *Page) watchStart(ctx context.Context) (CommitID, error) {
	if err := ctx.Err(); err != nil {
		return CommitID{}, err
	}
	c, release, err := p.pinOutside(ctx, CommitID{})
	if err != nil {
		return CommitID{}, err
	}
	release()
	return CommitID(c.ID), nil
}

// watcher is one loop of a Watch. All that it remembers between notifications is a commit.
type watcher struct {
	page    *Page
	o       WatchOptions
	yield   func(Notification, error) bool
	at      *commit.Commit // what has been told
	release func()         // of at
}

// start goes to the commit where the watch begins.
func (w *watcher) start(ctx context.Context) error {
	c, release, err := w.page.pinOutside(ctx, w.o.From)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("commit %s is not here, or no more: %w", w.o.From.Short(), ErrGone)
	}
	w.at, w.release = c, release
	return err
}

// step waits for a newer commit and tells it. It reports whether the loop goes on.
func (w *watcher) step(ctx context.Context) bool {
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

func (w *watcher) fail(err error) bool {
	w.yield(Notification{}, fmt.Errorf("watch: %w", err))
	return false
}

// wait returns the newest durable head that descends from where the watch is, pinned, once there is
// one.
func (w *watcher) wait(ctx context.Context) (*commit.Commit, func(), error) {
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
func (w *watcher) look(ctx context.Context) (next *commit.Commit, release func(), changed <-chan struct{}, err error) {
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
		changed = p.store.HeadsChanged() // before the heads are read: what comes after them is not missed
		next, err := p.follow(call, w.at)
		if err != nil {
			return nil, nil, nil, call.Explain(fmt.Errorf("follow the branch of commit %s: %w", w.at.ID.Short(), err))
		}
		if next.ID == w.at.ID {
			return nil, nil, changed, nil
		}
		release := p.store.Pin(next.ID)
		// It may have become an ancestor in between, and have been pruned.
		_, err = p.store.Commit(call, next.ID)
		if err == nil {
			return next, release, nil, nil
		}
		release()
		if !errors.Is(err, ErrNotFound) {
			p.note(err)
			return nil, nil, nil, call.Explain(err)
		}
	}
}

// tell yields what differs between where the watch is and next, in parts. It reports whether the
// loop goes on.
func (w *watcher) tell(ctx context.Context, next *commit.Commit) bool {
	var changes []Change
	size := 0
	kind := First // of a part that is not the last one
	for d, err := range diffTrees(ctx, w.page.tree(w.at), w.page.tree(next), DiffOptions{Prefix: w.o.Prefix}) {
		if err != nil {
			return w.fail(fmt.Errorf("find the changes of commit %s since %s: %w", next.ID.Short(), w.at.ID.Short(), err))
		}
		n := changeBytes(&d)
		// A part is full only when there is one more change: so the last one is never empty.
		if len(changes) == w.o.PageEntries || len(changes) > 0 && size+n > w.o.PageBytes {
			if !w.deliver(ctx, next, changes, kind) {
				return false
			}
			changes, size, kind = nil, 0, Middle
		}
		changes = append(changes, w.page.newChange(&d))
		size += n
	}
	switch {
	case len(changes) == 0:
		return true
	case kind == First:
		return w.deliver(ctx, next, changes, Whole)
	}
	return w.deliver(ctx, next, changes, Last)
}

// changeBytes is what a change counts for WatchOptions.PageBytes.
func changeBytes(d *btree.DiffEntry) int {
	return len(d.Key) + len(d.Left.Value) + len(d.Right.Value)
}

// deliver yields a part. It reports whether the loop goes on.
func (w *watcher) deliver(ctx context.Context, next *commit.Commit, changes []Change, kind PartKind) bool {
	err := ctx.Err()
	if w.page.gate.Closed() {
		err = errPageClosed
	}
	if err != nil {
		return w.fail(err)
	}
	return w.yield(Notification{Commit: newCommit(next), Base: CommitID(w.at.ID), Changes: changes, Part: kind}, nil)
}
