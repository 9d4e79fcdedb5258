package cloudsync

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Activity is what a direction of sync is doing.
type Activity uint8

// The activities, in order of urgency: of several, the greatest is the one to show.
const (
	Idle       Activity = iota // nothing to do
	Pending                    // there is something to do, or there may be
	InProgress                 // at work
	Failing                    // it failed and will be tried again
	NeedsUser                  // cannot go on without the user: credentials, quota, another bucket
)

// String returns words for people.
func (a Activity) String() string {
	if a > NeedsUser {
		return fmt.Sprintf("activity %d", uint8(a))
	}
	return [...]string{"idle", "pending", "in progress", "failing", "needs the user"}[a]
}

// Progress says how much of one direction is done since that direction was last idle.
type Progress = progress.State

// PageState is the state of one page.
type PageState struct {
	// Ledger, Name and Page identify the page.
	Ledger, Name string
	Page         [16]byte
	// Upload and Download are the activities of the directions. The errors are the causes of
	// Failing and NeedsUser.
	Upload, Download       Activity
	UploadErr, DownloadErr error
	// Up and Down are the progress of the directions, or their last one when they are idle.
	Up, Down Progress
	// Unsynced is the number of commits that are not in the bucket.
	Unsynced int
	// OldestUnsynced is the timestamp of the oldest of them, zero: none. Only the first thousand by
	// generation are examined.
	OldestUnsynced time.Time
	// LastSuccess is the last time at which all commits were known to be up and all entries down,
	// by this device's clock; zero: never since the page was opened. Pieces that are sent a second
	// time because their place is gone do not count.
	LastSuccess time.Time
	// Position is the number of the last entry applied.
	Position uint64
	// ServerTime is the bucket's time of the last entry with commits that was fetched.
	ServerTime time.Time
	// Paused says that nothing is synced in the background.
	Paused bool
}

// direction is the state of one direction of a page's sync.
type direction struct {
	activity Activity
	err      error
	failures int
	// notBefore is when the background may try again.
	notBefore time.Time
	progress  *progress.Tracker
}

// maxOldest bounds the commits that are searched for the oldest.
const maxOldest = 1000

// State returns the state of the page. It reads the unsynced commits from the store.
func (p *Page) State() PageState {
	st := PageState{Ledger: p.o.Ledger, Name: p.o.Name, Page: p.store.Page(), Paused: p.s.Paused()}
	p.mu.Lock()
	st.Upload, st.UploadErr = p.up.activity, p.up.err
	st.Download, st.DownloadErr = p.down.activity, p.down.err
	st.Up, st.Down = p.up.progress.State(), p.down.progress.State()
	st.LastSuccess, st.Position, st.ServerTime = p.lastSuccess, p.position, p.serverTime
	p.mu.Unlock()
	if unsynced, err := p.store.Unsynced(p.s.ctx); err == nil { // else the store is closed or damaged: its readers get the error
		st.SetUnsynced(p.s.ctx, p.store, unsynced)
	}
	return st
}

// SetUnsynced sets the fields that follow from the commits of a store that are not in the bucket.
func (st *PageState) SetUnsynced(ctx context.Context, store *storage.Store, ids []commit.ID) {
	st.Unsynced = len(ids)
	if st.Upload == Idle && len(ids) > 0 {
		st.Upload = Pending
	}
	for _, id := range ids[:min(len(ids), maxOldest)] {
		c, err := store.Commit(ctx, id)
		if err != nil {
			continue // it was pruned, or the store is closed: the state shows the rest
		}
		if at := time.Unix(0, c.Timestamp).UTC(); st.OldestUnsynced.IsZero() || at.Before(st.OldestUnsynced) {
			st.OldestUnsynced = at
		}
	}
}

// States returns the states of the open pages, sorted by ledger and page.
func (s *Syncer) States() []PageState {
	pages := s.openPages()
	place := func(p *Page) base.Page { return base.Page{Ledger: p.o.Ledger, ID: p.store.Page()} }
	slices.SortFunc(pages, func(a, b *Page) int { return place(a).Compare(place(b)) })
	states := make([]PageState, 0, len(pages))
	for _, p := range pages {
		states = append(states, p.State())
	}
	return states
}

// Changed returns a channel that is closed at the next change of any state, and when a page is
// opened or closed. A caller that takes the channel before it reads the states misses no change.
func (s *Syncer) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// notify wakes the watchers.
func (s *Syncer) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// change changes fields that p.mu guards. It wakes the waiters for commits, and the watchers if the
// visible state has changed.
func (p *Page) change(fn func()) {
	p.mu.Lock()
	up, down, position := p.up, p.down, p.position
	fn()
	seen := up.activity != p.up.activity || up.err != p.up.err || down.activity != p.down.activity || down.err != p.down.err || position != p.position
	close(p.moved)
	p.moved = make(chan struct{})
	p.mu.Unlock()
	if seen {
		p.s.notify()
	}
}

// begins records that a direction is at work.
func (p *Page) begins(d *direction) {
	p.change(func() {
		if d.activity != InProgress {
			d.progress.Restart()
		}
		d.activity = InProgress
	})
}

// ends records the result of the work on a direction. Work that ctx ended has neither failed nor
// succeeded.
func (p *Page) ends(ctx context.Context, d *direction, err error) {
	now := p.s.o.Clock.Now()
	p.change(func() {
		if err != nil && d == &p.up {
			p.wantUpload = true // only trying shows that the cause is gone, also when there is nothing to send
		}
		switch {
		case err == nil:
			*d = direction{progress: d.progress}
		case ctx.Err() != nil && d.err == nil:
			d.activity = Pending
		case ctx.Err() != nil:
			d.activity = ActivityOf(d.err)
		default:
			p.failures++
			p.failure = err
			d.err = err
			d.failures++
			d.activity = ActivityOf(err)
			d.notBefore = now.Add(p.s.backoff(d.activity, d.failures))
		}
	})
}

// ActivityOf returns the activity after the failure err: NeedsUser if waiting does not help, else
// Failing.
func ActivityOf(err error) Activity {
	if needsUser(err) {
		return NeedsUser
	}
	return Failing
}

// userPause is how long the background waits when only the user can help.
const userPause = time.Hour

// backoff returns how long the background waits after the given number of failures.
func (s *Syncer) backoff(a Activity, failures int) time.Duration {
	rule := bucket.Rule{First: s.o.MinPoll, Most: s.o.MaxPoll}
	if a == NeedsUser {
		rule = bucket.Rule{First: userPause, Most: userPause}
	}
	return rule.Pause(failures, s.random())
}
