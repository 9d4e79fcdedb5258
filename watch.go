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
	// DefaultWatchBytes is the approximate size of one part of a notification, in bytes of keys and
	// inline values.
	DefaultWatchBytes = 1 << 20
)

// WatchOptions select what a Watch reports. The zero value and a nil pointer mean all changes from
// now on.
type WatchOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// From is the commit after which the watch begins; zero means the handle's head when Watch is
	// called. FirstCommit reports all content of the page, even after history was given up.
	From CommitID
	// PageEntries is the greatest number of changes in one part of a notification; 0 means
	// DefaultWatchEntries.
	PageEntries int
	// PageBytes is the greatest number of bytes of keys and inline values, old and new ones, in one
	// part; a single larger change is a part of its own. 0 means DefaultWatchBytes.
	PageBytes int
}

// withDefaults returns a copy of o with every zero field that has a default replaced by it. o may
// be nil.
func (o *WatchOptions) withDefaults() WatchOptions {
	c := given(o)
	c.Prefix = bytes.Clone(c.Prefix)
	if c.PageEntries == 0 {
		c.PageEntries = DefaultWatchEntries
	}
	if c.PageBytes == 0 {
		c.PageBytes = DefaultWatchBytes
	}
	return c
}

// validate rejects invalid options. Errors: ErrInvalid.
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

// Notification is the difference between two commits of a page. It belongs to the caller; the
// values of its entries may be read until the page is closed, but are kept for certain only until
// the loop asks for the next notification.
type Notification struct {
	// Commit is the new state, and Base an ancestor of it with which it is compared. Below the
	// prefix, Base has the content that the previous notification led to.
	Commit Commit
	Base   CommitID
	// Changes are the keys that differ, at least one, in ascending order. Each part continues after
	// the previous one.
	Changes []Change
	// First and Last mark the first and the last part of a notification. A single part is both.
	First, Last bool
	// Resume is the commit from which a new Watch continues after this notification: after the last
	// part Commit, after any other part Base. Then the new watch repeats all changes since Base, up
	// to the then newest commit, so the caller must discard the incomplete parts.
	Resume CommitID
}

// Watch reports the changes of the page as they become durable. Each notification leads from one
// commit to the newest durable head that descends from it. When the loop is slower than the
// writers, a notification combines several commits; a long one is split into parts with the same
// Base and Commit. Commits that change nothing below the prefix are not reported.
//
// The loop pulls: Watch computes nothing in advance and buffers at most one part, however long the
// loop takes. A watch follows its own branch: it reports a sibling after the two have been merged,
// and never goes back. Every change is reported exactly once, also across Close and Open, when the
// new watch begins at Notification.Resume of the last notification.
//
// While the loop runs, the commits between which it stands are not pruned. o may be nil. Each range
// over the sequence begins at the same commit. The sequence ends only with an error, as the last
// element, after which a new Watch may continue: ErrGone (From is not on this device, or no
// longer), ErrClosed (the page was closed), ErrInvalid, ErrCorrupt, those of ctx, which governs the
// whole loop, and those of the disk.
func (p *Page) Watch(ctx context.Context, o *WatchOptions) iter.Seq2[Notification, error] {
	if err := o.validate(); err != nil {
		return func(yield func(Notification, error) bool) { yield(Notification{}, fmt.Errorf("watch: %w", err)) }
	}
	return each(session.Watch(ctx, p.in, session.WatchOptions(o.withDefaults()), p.newChange), newNotification)
}

func newNotification(p session.Part[Change]) Notification {
	n := Notification{Commit: newCommit(p.Commit), Base: p.Base.ID, Changes: p.Changes, First: p.First, Last: p.Last, Resume: p.Base.ID}
	if n.Last {
		n.Resume = n.Commit.ID
	}
	return n
}
