package cloudsync

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Activity is what a direction of sync is doing.
type Activity uint8

// The activities. Their order is that of urgency: the greatest of several is the one to show.
const (
	Idle       Activity = iota // nothing to do
	Pending                    // there is something to do, or it is not known yet whether there is
	InProgress                 // it is being done
	Failing                    // it failed and will be tried again
	NeedsUser                  // it cannot go on without the user: credentials, quota, another bucket
)

// String returns the words for a, for people.
func (a Activity) String() string {
	if a > NeedsUser {
		return fmt.Sprintf("activity %d", uint8(a))
	}
	return [...]string{"idle", "pending", "in progress", "failing", "needs the user"}[a]
}

// Progress says how much one direction has done since it was last at rest.
type Progress = progress.State

// PageState is the state of one page.
type PageState struct {
	// Ledger, Name and Page say which page.
	Ledger, Name string
	Page         [16]byte
	// Upload and Download say what the directions are doing, and the errors why, where that is
	// Failing or NeedsUser.
	Upload, Download       Activity
	UploadErr, DownloadErr error
	// Up and Down say how far the directions are, or were when they last rested.
	Up, Down Progress
	// Unsynced is the number of commits that are not in the bucket.
	Unsynced int
	// OldestUnsynced is the timestamp of the oldest of them, zero: none. Beyond the first thousand
	// by generation it is not looked for.
	OldestUnsynced time.Time
	// LastSuccess is when all commits were last known to be up and all entries down, by this
	// device's clock; zero: never since the page was opened. Pieces that go up a second time, since
	// their place is gone, do not count.
	LastSuccess time.Time
	// Position is the number of the last entry applied.
	Position uint64
	// ServerTime is the bucket time of the last entry with commits that was fetched.
	ServerTime time.Time
	// Paused says that nothing is synced in the background.
	Paused bool
}

// direction is what is known of one direction of a page's sync.
type direction struct {
	activity Activity
	err      error
	failures int
	// notBefore is when the background may try again.
	notBefore time.Time
	progress  *progress.Tracker
}

// maxOldest bounds the commits among which the oldest is looked for.
const maxOldest = 1000

// State returns the state of the page. It reads what the store knows of unsynced commits.
func (p *Page) State() PageState {
	st := PageState{Ledger: p.o.Ledger, Name: p.o.Name, Page: p.store.Page(), Paused: p.s.Paused()}
	if unsynced, err := p.store.Unsynced(p.s.ctx); err == nil { // else the store is closed, or damaged: who reads it is told
		st.SetUnsynced(p.s.ctx, p.store, unsynced)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Upload, st.UploadErr = p.up.activity, p.up.err
	st.Download, st.DownloadErr = p.down.activity, p.down.err
	st.Up, st.Down = p.up.progress.State(), p.down.progress.State()
	st.LastSuccess, st.Position, st.ServerTime = p.lastSuccess, p.position, p.serverTime
	st.awaitUpload()
	return st
}

func (st *PageState) awaitUpload() {
	if st.Upload == Idle && st.Unsynced > 0 {
		st.Upload = Pending
	}
}

// SetUnsynced sets what follows from the commits of a store that are not in the bucket.
func (st *PageState) SetUnsynced(ctx context.Context, store *storage.Store, ids []commit.ID) {
	st.Unsynced = len(ids)
	st.awaitUpload()
	for _, id := range ids[:min(len(ids), maxOldest)] {
		c, err := store.Commit(ctx, id)
		if err != nil {
			continue // it was pruned, or the store is closed: the state shows what is known
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
// opened or closed. Who takes it before he looks misses nothing.
func (s *Syncer) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// notify tells who watches.
func (s *Syncer) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// change changes what p.mu guards. It wakes who waits for commits, and tells who watches if there
// is something to see.
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

// begins says that a direction is being worked on.
func (p *Page) begins(d *direction) {
	p.change(func() {
		if d.activity != InProgress {
			d.progress.Restart()
		}
		d.activity = InProgress
	})
}

// ends says how the work on a direction ended. When ctx ended it, it has neither failed nor
// succeeded.
func (p *Page) ends(ctx context.Context, d *direction, err error) {
	if err != nil && ctx.Err() != nil {
		p.change(func() {
			if d.activity = Pending; d.err != nil {
				d.activity = d.failing()
			}
			if d == &p.up {
				p.wantUpload = true // whether there is anything to send is found out by trying
			}
		})
		return
	}
	now := p.s.o.Clock.Now()
	p.change(func() {
		if err == nil {
			*d = direction{progress: d.progress}
			return
		}
		p.failures++
		p.failure = err
		d.err = err
		d.failures++
		d.activity = d.failing()
		if d == &p.up {
			p.wantUpload = true // that it is well again is found out by trying, also when there is nothing to send
		}
		d.notBefore = now.Add(p.s.backoff(d.activity, d.failures))
	})
}

// failing returns the activity for the error.
func (d *direction) failing() Activity { return ActivityOf(d.err) }

// ActivityOf returns the activity of what has failed with err: NeedsUser where waiting does not
// help, else Failing.
func ActivityOf(err error) Activity {
	if needsUser(err) {
		return NeedsUser
	}
	return Failing
}

// userPause is how long the background waits when only the user can help.
const userPause = time.Hour

// backoff returns how long the background waits after so many failures.
func (s *Syncer) backoff(a Activity, failures int) time.Duration {
	bound := s.o.MinPoll
	for i := 1; i < failures && bound < s.o.MaxPoll; i++ {
		bound *= 2
	}
	if bound = min(bound, s.o.MaxPoll); a == NeedsUser {
		bound = userPause
	}
	return bound/2 + time.Duration(s.random()*float64(bound-bound/2))
}
