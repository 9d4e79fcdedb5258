package background_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/split"
)

const (
	// longestPause is how long the background waits at most, when only the user could help.
	longestPause = time.Hour
	// silence is how long there may be nothing on the wire while something is in progress: a try is
	// made again after half a minute at most.
	silence = 40 * time.Second
	// patience is how long something may wait for the background when nothing is in the way: two
	// looks, or a merge.
	patience = 2*maxPoll + time.Minute
	// aftermath is for how long trouble is felt: tries of a store that does not answer.
	aftermath = 15 * time.Minute
)

// call is one of Sync or WaitSynced.
type call struct {
	p      *page
	wait   bool
	id     commit.ID // that is waited for
	since  time.Time
	cancel context.CancelFunc
	left   bool // guarded by page.mu
}

// call calls Sync or WaitSynced for somebody.
func (p *page) call(wait bool) {
	w := p.run.d.w
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), caller{}, p))
	c := &call{p: p, wait: wait, since: w.now(), cancel: cancel, id: p.store.NewestHead().ID}
	own, err := p.store.Unsynced(ctx)
	if err != nil {
		w.fail("%w", err)
	}
	w.mu.Lock()
	there := maps.Clone(w.has[p.ledger])
	w.mu.Unlock()
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	w.work.Go(func() {
		defer cancel()
		var err error
		if wait {
			err = p.WaitSynced(ctx, c.id)
		} else {
			err = p.Sync(ctx)
		}
		p.mu.Lock()
		p.calls = slices.DeleteFunc(p.calls, func(o *call) bool { return o == c })
		left := c.left
		p.mu.Unlock()
		ended := left && errors.Is(err, context.Canceled) || errors.Is(err, base.ErrClosed) && (p.run.ends || p.isClosing())
		told := fmt.Sprint(err)
		if ended { // where a caller leaves at the moment at which the page closes, either may be told
			told = "it has ended"
		}
		w.trace("%s device %d page %s: wait %t from %s: %s", w.now().Format("02 15:04:05.000"), p.run.d.index, p.ledger, wait, c.since.Format("15:04:05.000"), told)
		switch {
		case err == nil && wait:
			p.inBucket(ctx, "W4", []commit.ID{c.id})
		case err == nil:
			p.inBucket(ctx, "W10", own)
			p.here(ctx, there)
		case ended:
		default:
			at, well := w.well(p.run.d)
			if explained := errors.Is(err, base.ErrNetwork) || errors.Is(err, base.ErrNoSpace) || bucket.ClassOf(err) == bucket.ClassDenied; !explained || well && at.Add(aftermath).Before(c.since) {
				w.fail("W4: device %d page %s: wait %t: %w", p.run.d.index, p.ledger, wait, err)
			}
		}
	})
}

// inBucket notes that commits are in the bucket, of which the store must know.
func (p *page) inBucket(ctx context.Context, promise string, ids []commit.ID) {
	w := p.run.d.w
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		if !errors.Is(err, base.ErrClosed) {
			w.fail("%w", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if slices.Contains(unsynced, id) && w.failure == nil {
			w.failure = fmt.Errorf("%s: device %d page %s: commit %s is not in the bucket", promise, p.run.d.index, p.ledger, id.Short())
		}
		w.has[p.ledger][id] = true
	}
}

// here checks that commits are here.
func (p *page) here(ctx context.Context, ids map[commit.ID]bool) {
	for id := range ids {
		if _, err := p.store.Commit(ctx, id); err != nil && !errors.Is(err, base.ErrClosed) {
			p.run.d.w.fail("W10: device %d page %s after a sync: commit %s: %w", p.run.d.index, p.ledger, id.Short(), err)
		}
	}
}

// watch is what somebody saw who watches states.
type watch struct {
	changed <-chan struct{}
	seen    []seen
}

// seen is what a watch shows of a page.
type seen struct {
	ledger         string
	up, down       cloudsync.Activity
	upErr, downErr error
	position       uint64
	paused         bool
}

func seenOf(all []cloudsync.PageState) (s []seen) {
	for i := range all {
		st := &all[i]
		s = append(s, seen{st.Ledger, st.Upload, st.Download, st.UploadErr, st.DownloadErr, st.Position, st.Paused})
	}
	return s
}

// check looks at the promises when nothing moves.
func (w *world) check() {
	for _, d := range w.devices {
		r := d.run
		if r.closing() {
			continue
		}
		states := r.s.States()
		w.checkWatch(r, states)
		since, well := w.well(d)
		if r.since.After(since) {
			since = r.since
		}
		for i := range states {
			r.page(states[i].Ledger).check(&states[i], well && !r.paused, since)
		}
	}
}

// checkWatch: W9.
func (w *world) checkWatch(r *run, states []cloudsync.PageState) {
	now := seenOf(states)
	if c := r.watch.changed; c != nil && !slices.Equal(now, r.watch.seen) {
		select {
		case <-c:
		default:
			w.fail("W9: device %d: who watches sees %+v, and there is %+v", r.d.index, r.watch.seen, now)
		}
	}
	r.watch = watch{r.s.Changed(), now}
}

// What check looks at over time.
const (
	busy       = iota // in progress without a request
	failing           // W2
	waiting           // W3: something is to be sent
	pendingFor        // W3: something is said to be pending
)

// lasts returns for how long a thing has held, which holds now or does not.
func (p *page) lasts(what int, holds bool) time.Duration {
	now := p.run.d.w.now()
	if !holds {
		p.since[what] = time.Time{}
		return 0
	}
	if p.since[what].IsZero() {
		p.since[what] = now
	}
	return now.Sub(p.since[what])
}

// check looks at the promises for a page. free says that nothing is in its way, since when.
func (p *page) check(st *cloudsync.PageState, free bool, since time.Time) {
	w, d := p.run.d.w, p.run.d
	w.mu.Lock()
	onWire := slices.ContainsFunc(w.pending, func(r *request) bool { return r.run == p.run })
	w.mu.Unlock()
	p.mu.Lock()
	syncing, merging, changed := false, p.merging, p.changed
	var waited []commit.ID
	for _, c := range p.calls {
		if syncing = syncing || !c.wait; c.wait && !c.left && w.now().Sub(c.since) > time.Second { // it may not be durable before
			waited = append(waited, c.id)
		}
	}
	p.mu.Unlock()
	if len(waited) > 0 {
		unsynced, err := p.store.Unsynced(context.Background())
		for _, id := range waited {
			if !slices.Contains(unsynced, id) {
				w.fail("W4: device %d page %s: somebody still waits for commit %s, which is in the bucket, %v", d.index, p.ledger, id.Short(), err)
			}
		}
	}
	progress := st.Upload == cloudsync.InProgress || st.Download == cloudsync.InProgress || syncing
	bound := silence
	if w.h.Limited {
		bound *= 4
	}
	quiet := w.now().Sub(p.run.active)
	if at := p.lasts(busy, progress && !onWire && !merging); min(at, quiet) > bound {
		w.fail("W1: device %d page %s: nothing has been asked for %v: %+v", d.index, p.ledger, min(at, quiet), *st)
	}
	for _, at := range []time.Time{p.opened, changed} {
		if at.After(since) {
			since = at
		}
	}
	left := w.now().Sub(since)
	if left < 0 || !free {
		left = 0
	}
	failed := st.Upload >= cloudsync.Failing || st.Download >= cloudsync.Failing
	if at := min(left, p.lasts(failing, failed)); at > longestPause+patience || at > patience && st.Upload != cloudsync.NeedsUser && st.Download != cloudsync.NeedsUser {
		w.fail("W2: device %d page %s: failing %v after the trouble was over: %+v", d.index, p.ledger, at, *st)
	}
	if at := min(left, p.lasts(waiting, st.Unsynced > 0 && !failed)); at > patience {
		w.fail("W3: device %d page %s: %d commits wait for %v to be sent: %+v", d.index, p.ledger, st.Unsynced, at, *st)
	}
	idle := st.Unsynced == 0 && st.Upload == cloudsync.Pending || st.Download == cloudsync.Pending
	if at := min(left, p.lasts(pendingFor, idle && !failed)); at > patience {
		w.fail("W3: device %d page %s: pending for %v, with %d unsynced: %+v", d.index, p.ledger, at, st.Unsynced, *st)
	}
}

// verify: W2, W4, W7.
func (w *world) verify() {
	ctx := context.Background()
	for i := range w.h.Pages {
		var first *commit.Commit
		for _, d := range w.devices {
			p := d.run.pages[i]
			st := p.State()
			if st.Upload != cloudsync.Idle || st.Download != cloudsync.Idle || st.UploadErr != nil || st.DownloadErr != nil || st.Unsynced != 0 || w.now().Sub(st.LastSuccess) > patience {
				w.fail("W2: device %d page %s after healing, at %v: %+v", d.index, p.ledger, w.now(), st)
			}
			if len(p.calls) > 0 {
				w.fail("W4: device %d page %s after healing: %d calls have not returned", d.index, p.ledger, len(p.calls))
			}
			heads := p.store.Heads()
			if first == nil {
				first = heads[0]
			}
			if len(heads) != 1 || heads[0].ID != first.ID || heads[0].Root != first.Root {
				w.fail("W7: device %d page %s has %d heads, %s, want %s", d.index, p.ledger, len(heads), heads[0].ID.Short(), first.ID.Short())
				return
			}
			got, err := p.content(ctx)
			if err != nil {
				w.fail("W7: device %d page %s: %w", d.index, p.ledger, err)
			}
			for k, v := range w.acked[p.ledger] {
				if got[k] != v {
					w.fail("W7: device %d page %s: %s is %.6q, want %.6q", d.index, p.ledger, k, got[k], v)
				}
			}
			for id := range w.made[p.ledger] {
				if _, err := p.store.Commit(ctx, id); err != nil {
					w.fail("W7: device %d page %s: commit %s: %w", d.index, p.ledger, id.Short(), err)
				}
			}
		}
	}
}

// content returns what the newest head holds.
func (p *page) content(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	cur := btree.Tree{Page: pageID, Source: p.store, Root: p.store.NewestHead().Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		var b bytes.Buffer
		if e.Inline {
			b.Write(e.Value)
		} else if _, err := split.NewReader(ctx, p.store, e.Digest, e.Size).WriteTo(&b); err != nil {
			return nil, err
		}
		all[string(e.Key)] = b.String()
	}
	return all, err
}

// checkQuiet holds an hour in which nothing happened to the model (W6). Who has put entries in the
// hour before looks once at what they stand behind: that is a get for each, or one and a list.
func (w *world) checkQuiet() {
	const looks, behind = 16, 12
	for _, d := range w.devices {
		for _, p := range d.run.pages {
			got := w.tally[p]
			if gets := got[bucket.OpGet]; gets < 10 || gets > looks+behind || got[bucket.OpList] > 1 || got[bucket.OpPut] > 1 || got[bucket.OpDelete] > 1 {
				w.fail("W6: device %d page %s asks in an hour of peace for %v", d.index, p.ledger, got)
			}
		}
	}
}
