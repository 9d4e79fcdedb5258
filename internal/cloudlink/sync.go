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

// Work is a page to sync, and the result.
type Work struct {
	Page base.Page
	// Name is the human name, "" when unknown.
	Name string
	// Created reports that the page is not on this device and is made from the bucket.
	Created bool
	// Missing counts the pieces that Page.Reupload found nowhere, and State is the final state.
	Missing int
	State   cloudsync.PageState
	// Err says why the page was not synced; nil when it was.
	Err error
}

// Sync calls fn with pages, several at a time: the named pages or, without names, all pages of this
// device and all that other devices have announced in the bucket. One failure does not stop the
// other pages, unless the bucket is unreachable or refuses requests. Sync returns the pages that
// were tried, sorted. The error says why others were not.
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

// noteFailure records, for the states and Status of all pages of this device, why the last sync did
// not begin. conn is nil when there is none.
func (l *Link) noteFailure(ctx context.Context, conn *Conn, err error) {
	f, _ := l.get()
	keys, listErr := l.o.Disk.Pages()
	if f == nil || listErr != nil || ctx.Err() != nil {
		return // a caller that needs the states syncs again
	}
	if conn != nil {
		l.set(func(l *Link) { l.failed = failure{err, l.o.Clock.Now()} })
	}
	l.mu.Lock()
	for _, k := range keys {
		p := l.record.page(k)
		p.UpErr, p.DownErr = err.Error(), err.Error()
		p.Up, p.Down = activityOf(err), activityOf(err)
	}
	l.mu.Unlock()
	l.Remember()
}

// Check verifies that the bucket has the stored keyring, and takes over newer rings.
func (l *Link) Check(ctx context.Context, conn *Conn) error {
	return l.OfBucket(conn.Syncer.CheckKeys(ctx))
}

// Prove verifies by a request that the bucket is the stored one. Errors: those of Connect and
// Check.
func (l *Link) Prove(ctx context.Context) error {
	conn, err := l.Connect(ctx)
	if err != nil {
		return err
	}
	return l.Check(ctx, conn)
}

// OfBucket adds the bucket to an error of reading its keyring.
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

// pagesToSync returns the pages of a Sync. bad reports damaged announcements in the bucket, which
// do not stop other pages.
func (l *Link) pagesToSync(ctx context.Context, conn *Conn, only []base.Page) (work []Work, bad, err error) {
	all := map[base.Page]Work{}
	found := func(k base.Page) bool { _, ok := all[k]; return ok }
	add := func(w Work) {
		if !found(w.Page) && (len(only) == 0 || slices.Contains(only, w.Page)) {
			all[w.Page] = w
		}
	}
	here, err := l.o.Disk.Pages()
	if err != nil {
		return nil, nil, err
	}
	for _, k := range here {
		add(Work{Page: k})
	}
	away, err := l.o.Gone(ctx)
	if err != nil {
		return nil, nil, err
	}
	isAway := map[base.Page]bool{} // these are synced only by name
	for _, p := range away {
		isAway[p.Page] = true
		if len(only) > 0 && p.Kind == layout.Evicted {
			add(Work{Page: p.Page, Name: p.Name, Created: true})
		}
	}
	missing := func(k base.Page) bool { return !found(k) }
	if len(only) == 0 || slices.ContainsFunc(only, missing) {
		announced, err := conn.Syncer.Announced(ctx)
		if err != nil {
			bad = fmt.Errorf("list the pages of the bucket: %w", err)
		}
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
			return nil, nil, bad
		}
		for _, a := range announced {
			if k := (base.Page{Ledger: a.Ledger, ID: a.Page}); len(only) > 0 || !isAway[k] {
				add(Work{Page: k, Name: a.Name, Created: true})
			}
		}
	}
	if i := slices.IndexFunc(only, missing); i >= 0 {
		return nil, nil, fmt.Errorf("page %s is neither here nor in the bucket: %w", l.text(only[i]), base.ErrNotFound)
	}
	for _, k := range slices.SortedFunc(maps.Keys(all), base.Page.Compare) {
		work = append(work, all[k])
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

// Hopeless reports an error of the bucket that would affect other pages too.
func Hopeless(err error) bool {
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		return e.Class.NeedsUser() || errors.Is(err, base.ErrNetwork)
	}
	return errors.Is(err, base.ErrNetwork)
}

// attachAll connects and starts to sync the open pages. Without background sync, reads of missing
// data connect instead. The caller holds the cloud's turn. anyhow: see attach.
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
	for _, s := range l.o.Open() { // after connecting: pages opened from now on see the connection
		if _, err := s.attach(ctx, conn, anyhow); err != nil {
			return fmt.Errorf("begin to sync page %s: %w", s.Page.Text(s.Name), err)
		}
	}
	return nil
}

// beginAll begins to sync the open pages that were opened without a connection. It does not hold
// the cloud's turn while pages are being opened.
func (l *Link) beginAll(ctx context.Context) error {
	pages := l.o.Open()
	release, err := l.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, s := range pages {
		s.Begin(ctx)
	}
	return nil
}
