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

// WatchOptions select what a Watch reports. All fields are set, but Prefix may be nil.
type WatchOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// From is the commit after which the watch begins; zero means the session's head when Watch is
	// called.
	From commit.ID
	// PageEntries is the greatest number of changes in one part.
	PageEntries int
	// PageBytes is the greatest number of bytes of keys and inline values, old and new ones, in one
	// part; a single larger change is a part of its own.
	PageBytes int
}

// Part is the difference between two commits, or a part of it; the caller converts each change to
// C.
type Part[C any] struct {
	// Base and Commit are the commits.
	Base, Commit *commit.Commit
	// Changes are the keys that differ, at least one, in ascending order.
	Changes []C
	// First and Last mark the first and the last part.
	First, Last bool
}

// Watch reports the changes of the page as they become durable, from one commit to the newest
// durable head that descends from it. own converts a borrowed change. Watch computes nothing in
// advance and holds at most one part. The sequence may be ranged over more than once. It ends only
// with an error, as the last element: base.ErrGone (From is not on this device, or no longer),
// base.ErrClosed, base.ErrCorrupt, those of ctx, which governs the whole loop, and those of the
// disk.
func Watch[C any](ctx context.Context, p *Page, o WatchOptions, own func(*btree.DiffEntry) C) iter.Seq2[Part[C], error] {
	o.Prefix = bytes.Clone(o.Prefix)
	var err error
	if o.From.IsZero() {
		o.From, err = p.watchStart(ctx)
	}
	return Sequence("watch", func(yield func(Part[C]) bool) error {
		if err != nil {
			return err
		}
		at, release, err := p.Pin(ctx, o.From)
		if errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("commit %s is not here, or no more: %w", o.From.Short(), base.ErrGone)
		}
		if err != nil {
			return err
		}
		defer func() { release() }()
		for {
			next, releaseNext, err := p.awaitAbove(ctx, at)
			if err != nil {
				return err
			}
			more, err := tell(ctx, p, &o, Part[C]{Base: at, Commit: next, First: true}, own, yield)
			release()
			at, release = next, releaseNext
			if err != nil || !more {
				return err
			}
		}
	})
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

// awaitAbove waits for a durable head that descends from a commit, and returns the newest, pinned.
func (p *Page) awaitAbove(ctx context.Context, c *commit.Commit) (*commit.Commit, func(), error) {
	for {
		next, release, changed, err := p.lookAbove(ctx, c)
		if err != nil || next != nil {
			return next, release, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-p.gate.Life().Done():
		}
	}
}

// lookAbove returns the newest durable head that descends from a commit, pinned, or else nil and a
// channel that is closed when the heads change.
func (p *Page) lookAbove(ctx context.Context, c *commit.Commit) (next *commit.Commit, release func(), changed <-chan struct{}, err error) {
	err = p.Call(ctx, func(call context.Context) error {
		for {
			if err := call.Err(); err != nil {
				return err
			}
			changed = p.env.Store.HeadsChanged() // taken before the heads are read
			head, err := p.newestAbove(call, c, p.env.Store.Heads())
			if err != nil {
				return fmt.Errorf("follow the branch of commit %s: %w", c.ID.Short(), err)
			}
			if head.ID == c.ID {
				return nil
			}
			unpin := p.env.Store.Pin(head.ID)
			// It may have become an ancestor and been pruned meanwhile.
			if _, err = p.env.Store.Commit(call, head.ID); err == nil {
				next, release = head, unpin
				return nil
			}
			unpin()
			if !errors.Is(err, base.ErrNotFound) {
				p.note(err)
				return err
			}
		}
	})
	return next, release, changed, err
}

// tell yields the difference between the commits of part, which has no changes yet, in parts. It
// reports whether the loop continues.
func tell[C any](ctx context.Context, p *Page, o *WatchOptions, part Part[C], own func(*btree.DiffEntry) C, yield func(Part[C]) bool) (more bool, err error) {
	deliver := func() (bool, error) {
		if p.gate.Closed() {
			return false, errPageClosed
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		return yield(part), nil
	}
	size := 0
	for d, err := range diffTrees(ctx, p.Tree(part.Base), p.Tree(part.Commit), o.Prefix, nil) {
		if err != nil {
			return false, fmt.Errorf("find the changes of commit %s since %s: %w", part.Commit.ID.Short(), part.Base.ID.Short(), err)
		}
		n := len(d.Key) + len(d.Left.Value) + len(d.Right.Value)
		// A part is full only when there is one more change, so that the last part is never empty.
		if len(part.Changes) == o.PageEntries || len(part.Changes) > 0 && size+n > o.PageBytes {
			if more, err := deliver(); err != nil || !more {
				return false, err
			}
			part.Changes, part.First, size = nil, false, 0
		}
		part.Changes = append(part.Changes, own(&d))
		size += n
	}
	if len(part.Changes) == 0 {
		return true, nil
	}
	part.Last = true
	return deliver()
}
