package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
)

// Work is a page that is synced, and what came of it.
type Work struct {
	Page base.Page
	// Name is the human name, "" when that is not known.
	Name string
	// Created reports that the page is not here, and comes from the bucket.
	Created bool
	// Missing counts the pieces that Page.Reupload found nowhere, and State is that at the end.
	Missing int
	State   cloudsync.PageState
	// Err says why the page was not synced; nil when it was.
	Err error
}

// Sync calls fn with pages, several at a time: with those that are named, or, when none is, with
// all that are here or that other devices have announced in the bucket. One that fails does not
// keep the others; when the bucket cannot be reached, or refuses, the rest is given up. It returns
// the pages that were tried, sorted. The error says why others were not.
func (l *Link) Sync(ctx context.Context, only []base.Page, fn func(context.Context, *Work) error) ([]Work, error) {
	conn, err := l.Connect(ctx)
	if err == nil {
		err = l.Check(ctx, conn)
	}
	if err != nil {
		l.noteFailure(ctx, conn, err)
		return nil, err
	}
	l.set(func(l *Link) { l.failed = failure{} })
	work, bad, err := l.pagesToSync(ctx, conn, only)
	if err != nil {
		return nil, err
	}
	done := l.runSyncs(ctx, work, fn)
	if len(only) == 0 && bad == nil && !slices.ContainsFunc(done, func(w Work) bool { return w.Err != nil }) {
		l.mu.Lock()
		l.record.Success = l.o.Clock.Now().UTC()
		l.mu.Unlock()
	}
	l.Remember()
	return done, bad
}

// syncParallel is how many pages Sync works on at once.
const syncParallel = 4

// noteFailure lets the states and Status tell, of all pages that are here, why the last sync did
// not begin. conn is nil when there is none.
func (l *Link) noteFailure(ctx context.Context, conn *Conn, err error) {
	f, _ := l.get()
	keys, listErr := l.o.Disk.Pages()
	if f == nil || listErr != nil || ctx.Err() != nil {
		return // whoever wants to know syncs again
	}
	if conn != nil {
		l.set(func(l *Link) { l.failed = failure{err, l.o.Clock.Now()} })
	}
	l.mu.Lock()
	for _, k := range keys {
		l.record.page(k.Ledger, k.ID).Err = err.Error()
	}
	l.mu.Unlock()
	l.Remember()
}

// Check proves that the bucket is the one whose keyring is remembered, and takes over newer
// rings of that.
func (l *Link) Check(ctx context.Context, conn *Conn) error {
	return l.OfBucket(conn.Syncer.CheckKeys(ctx))
}

// Prove asks the bucket whether it is the one that is remembered. Errors: those of Connect and
// Check.
func (l *Link) Prove(ctx context.Context) error {
	conn, err := l.Connect(ctx)
	if err != nil {
		return err
	}
	return l.Check(ctx, conn)
}

// OfBucket says of which bucket an error is that a look at its keyring has given.
func (l *Link) OfBucket(err error) error {
	f, _ := l.get()
	switch {
	case f == nil:
		return base.ErrNoCloud
	case err == nil, errors.Is(err, base.ErrInvalid), errors.Is(err, base.ErrNotFound), errors.Is(err, base.ErrUnsupported):
		return err
	case errors.Is(err, cloudsync.ErrBucketWiped):
		return fmt.Errorf("bucket %s is empty or was never one of Ledger's: %w", f.url, cloudsync.ErrBucketRolledBack)
	case errors.Is(err, cloudsync.ErrBucketReplaced):
		return fmt.Errorf("bucket %s was made anew: %w", f.url, err)
	}
	return fmt.Errorf("look at bucket %s: %w", f.url, err)
}

// pagesToSync returns the pages of a Sync. bad tells of pages in the bucket that are announced by
// bytes which are not what was written; it keeps no other.
func (l *Link) pagesToSync(ctx context.Context, conn *Conn, only []base.Page) (work []Work, bad, err error) {
	here, err := l.o.Disk.Pages()
	if err != nil {
		return nil, nil, err
	}
	all := map[base.Page]*Work{}
	for _, k := range here {
		all[k] = &Work{Page: k}
	}
	away, err := l.o.Gone(ctx)
	if err != nil {
		return nil, nil, err
	}
	isAway := map[base.Page]bool{}
	for _, p := range away { // they come when they are named
		isAway[p.Page] = true
		if slices.Contains(only, p.Page) && p.Kind == layout.Evicted {
			all[p.Page] = &Work{Page: p.Page, Name: p.Name, Created: true}
		}
	}
	wanted := func(k base.Page) bool { return len(only) == 0 || slices.Contains(only, k) }
	lookUp := len(only) == 0
	for _, k := range only {
		lookUp = lookUp || all[k] == nil
	}
	if lookUp {
		announced, err := conn.Syncer.Announced(ctx)
		if err != nil {
			bad = fmt.Errorf("list the pages of the bucket: %w", err)
		}
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
			return nil, nil, bad
		}
		for _, a := range announced {
			k := base.Page{Ledger: a.Ledger, ID: a.Page}
			named := slices.Contains(only, k)
			if all[k] == nil && (named || !isAway[k]) {
				all[k] = &Work{Page: k, Name: a.Name, Created: true}
			}
		}
	}
	for _, k := range only {
		if all[k] == nil {
			return nil, nil, fmt.Errorf("page %s is neither here nor in the bucket: %w", l.text(k), base.ErrNotFound)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(all), base.Page.Compare) {
		if wanted(k) {
			work = append(work, *all[k])
		}
	}
	return work, bad, nil
}

// runSyncs calls fn with the pages and returns those that were tried.
func (l *Link) runSyncs(call context.Context, work []Work, fn func(context.Context, *Work) error) []Work {
	ctx, giveUp := context.WithCancel(call)
	defer giveUp()
	tried := make([]bool, len(work))
	_ = bucket.InParallel(ctx, syncParallel, len(work), func(ctx context.Context, i int) error { // each Work has its error
		tried[i] = true
		if work[i].Err = fn(ctx, &work[i]); Hopeless(work[i].Err) {
			giveUp()
		}
		return nil
	})
	done := make([]Work, 0, len(work))
	for i, p := range work {
		gaveUp := errors.Is(p.Err, context.Canceled) && call.Err() == nil
		if tried[i] && !gaveUp {
			done = append(done, p)
		}
	}
	return done
}

// Hopeless reports an error of the bucket that other pages would meet too.
func Hopeless(err error) bool {
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		return e.Class.NeedsUser() || errors.Is(err, base.ErrNetwork)
	}
	return errors.Is(err, base.ErrNetwork)
}

// attachAll connects and begins to sync the open pages, unless nothing is to sync by itself: then
// reads of what is not here do. The caller has the cloud's turn. anyhow: see attach.
func (l *Link) attachAll(ctx context.Context, anyhow bool) error {
	f, _ := l.get()
	if f == nil || l.o.ReadOnly {
		return nil
	}
	if l.o.Manual {
		for _, s := range l.o.Open() {
			s.Store.SetFetcher(lateFetcher{s})
		}
		return nil
	}
	conn, err := l.connectInTurn(ctx)
	if err != nil {
		return err
	}
	for _, s := range l.o.Open() { // behind connecting: a page that is opened from now on sees the connection
		if _, err := s.attach(ctx, conn, anyhow); err != nil {
			return fmt.Errorf("begin to sync page %s: %w", s.Page.Text(s.Name), err)
		}
	}
	return nil
}
