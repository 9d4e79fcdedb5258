package ledger

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/session"
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

// validate reports options that cannot be right. Errors: ErrInvalid.
func (o *WatchOptions) validate() error {
	switch {
	case o == nil:
	case o.PageEntries < 0:
		return fmt.Errorf("check watch options: PageEntries is %d, want 0 or more: %w", o.PageEntries, ErrInvalid)
	case o.PageBytes < 0:
		return fmt.Errorf("check watch options: PageBytes is %d, want 0 or more: %w", o.PageBytes, ErrInvalid)
	}
	return nil
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
	// First and Last say that this part is the first, and the last, of what is told. A notification
	// in one part is both.
	First, Last bool
}

// Resume returns the commit from which a new Watch continues behind this notification: Commit, when
// it has been told wholly. After a part that is not the last it is Base: the new watch begins with
// the changes behind Base again, up to what is then the newest commit, so that parts whose last one
// has not come must be forgotten.
func (n *Notification) Resume() CommitID {
	if n.Last {
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
	if err := o.validate(); err != nil {
		return func(yield func(Notification, error) bool) { yield(Notification{}, fmt.Errorf("watch: %w", err)) }
	}
	return each(session.Watch(ctx, p.in, session.WatchOptions(o.withDefaults()), p.newChange), newNotification)
}

func newNotification(p session.Part[Change]) Notification {
	return Notification{Commit: newCommit(p.Commit), Base: p.Base.ID, Changes: p.Changes, First: p.First, Last: p.Last}
}
