package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// pageKey names a page within a repository.
type pageKey = layout.Page

// pageStore is the open store of a page, which its handles share.
type pageStore struct {
	repo      *Repository
	key       pageKey
	name      string         // set before ready is closed
	store     *storage.Store // set before ready is closed
	merger    *merger        // set before ready is closed
	collector *pageCollector // set before ready is closed
	err       error          // set before ready is closed: why it could not be opened
	back      bool           // set before it is opened: it was evicted, and has been brought back

	ready chan struct{} // closed when it is open or could not be opened
	gone  chan struct{} // closed when it has been closed

	syncTurn  chan struct{}   // holds one token: guards what follows
	sync      *cloudsync.Page // nil while it is not synced
	syncLink  *cloudLink      // with which it is synced
	syncEnded bool            // it is about to close

	handles map[*Page]struct{} // guarded by repo.mu
	closing bool               // guarded by repo.mu
	users   int                // guarded by repo.mu; handles that count as use of the page
	keeping bool               // it was opened to be kept
	leaving bool               // it only holds the place of a page that is about to be evicted
	wanted  bool               // guarded by repo.mu; somebody waits for that place
	offered bool               // guarded by repo.mu; who wants that place may have it at once

	useTurn chan struct{} // holds one token: one at a time notes the use of the page
}

// handleKind says what a handle is for.
type handleKind uint8

const (
	handleLook handleKind = iota // of the repository itself: the page must be there
	handleUse                    // of the app: the page is made when it is absent, unless the repository is read-only, and its heads are merged in the background
	handleKept                   // of the keeper: the page must be there, and its heads are merged
)

// openPage returns a new handle of a page, for the app with create, else for a look.
func (r *Repository) openPage(ctx context.Context, l *Ledger, id PageID, name string, create bool) (*Page, error) {
	if create {
		return r.openHandle(ctx, l, id, name, handleUse)
	}
	return r.openHandle(ctx, l, id, name, handleLook)
}

// openHandle returns a new handle of a page, opening its store when no other handle is there.
func (r *Repository) openHandle(ctx context.Context, l *Ledger, id PageID, name string, kind handleKind) (*Page, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.gate.leave()
	call := r.gate.context(ctx)
	defer call.release()
	key := pageKey{Ledger: l.name, ID: id}
	back := false
	for {
		if err := call.Err(); err != nil {
			return nil, call.explain(fmt.Errorf("open page %s: %w", key.Text(name), err))
		}
		if leaving := r.departing(key); leaving != nil && kind == handleKept { // who keeps it gives way
			select {
			case <-leaving:
			case <-call.Done():
			}
			continue
		}
		s, mine := r.reserve(key, name, kind)
		if mine {
			s.back = back
			r.openStore(call, s, kind == handleUse)
		}
		p, wait, err := r.newHandle(s, l, mine, kind)
		if errors.Is(err, errAway) {
			if err = r.bringBack(call, key); err == nil {
				back = true
				continue
			}
		}
		if err != nil {
			return nil, call.explain(fmt.Errorf("open page %s: %w", key.Text(name), err))
		}
		if p != nil {
			if err := s.begin(p, kind); err != nil {
				return nil, err
			}
			return p, nil
		}
		select {
		case <-wait:
		case <-call.Done():
		}
	}
}

// begin begins what a handle is for. On an error the handle is closed.
func (s *pageStore) begin(p *Page, kind handleKind) error {
	if kind == handleUse {
		if err := s.noteUse(); err != nil {
			return errors.Join(fmt.Errorf("open page %s: %w", s.key.Text(s.name), err), p.Close())
		}
	}
	if kind != handleLook {
		s.merger.want(false)
	}
	if kind == handleUse {
		s.repo.keeper.use(s.key)
	}
	return nil
}

// reserve returns the store of a page, and whether the caller is to open it.
func (r *Repository) reserve(key pageKey, name string, kind handleKind) (s *pageStore, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.pages[key]; s != nil {
		return s, false
	}
	s = r.newPageStore(key, name)
	s.keeping = kind == handleKept
	r.pages[key] = s
	return s, true
}

func (r *Repository) newPageStore(key pageKey, name string) *pageStore {
	return &pageStore{
		repo: r, key: key, name: name, ready: make(chan struct{}), gone: make(chan struct{}), syncTurn: make(chan struct{}, 1),
		useTurn: make(chan struct{}, 1), handles: map[*Page]struct{}{},
	}
}

// newHandle returns a handle of s, or what to wait for before trying again. Only who has opened s
// sees the error of that: the others try for themselves.
func (r *Repository) newHandle(s *pageStore, l *Ledger, mine bool, kind handleKind) (p *Page, wait <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-s.ready:
	default:
		if kind == handleUse {
			s.wanted = true
			if s.offered {
				s.takeOfferedLocked()
			}
		}
		return nil, s.ready, nil
	}
	switch {
	case mine && s.err != nil:
		delete(r.pages, s.key)
		close(s.gone)
		return nil, nil, s.err
	case s.err != nil:
		return nil, s.gone, nil
	case s.closing:
		return nil, s.gone, nil
	}
	p = &Page{ledger: l, shared: s, store: s.store, gate: newGate(), txs: map[*Tx]struct{}{}, snapshots: map[*snapshotState]struct{}{}}
	heads := s.store.Heads()
	p.position.Store(heads[len(heads)-1])
	s.handles[p] = struct{}{}
	p.kept = kind == handleKept
	if p.use = kind == handleUse; p.use {
		s.users++
	}
	return p, nil, nil
}

// noteUse has page usage say whether the app has the page open. Looks of the repository's own, such
// as those of Status and Sync, are no use.
func (s *pageStore) noteUse() error {
	s.useTurn <- struct{}{} // never held for longer than a write
	defer func() { <-s.useTurn }()
	r := s.repo
	r.mu.Lock()
	used := s.users > 0
	r.mu.Unlock()
	if used {
		return r.usage.opened(s.key.Ledger, s.key.ID)
	}
	return r.usage.closed(s.key.Ledger, s.key.ID, r.clock.Now())
}

// openStore opens the store of s and sets what came of it.
func (r *Repository) openStore(ctx context.Context, s *pageStore, create bool) {
	defer close(s.ready)
	s.store, s.err = r.openStorage(ctx, s, create)
	if s.err != nil {
		s.note(s.err)
		return
	}
	s.merger, s.collector = newMerger(s), newPageCollector(s)
	if s.name == "" {
		name, _, err := r.usage.page(s.key.Ledger, s.key.ID)
		if err != nil {
			r.o.Logger.Warn("the name of a page cannot be read", "page", PageID(s.key.ID).String(), "error", err)
		}
		s.name = name
	}
	s.logRecovery()
	s.openedForSync(ctx)
	s.observe(Event{Kind: EventPageOpened})
}

func (r *Repository) openStorage(ctx context.Context, s *pageStore, create bool) (*storage.Store, error) {
	o := r.storageOptions(s.key)
	here, err := r.disk.HasPage(s.key)
	if err != nil {
		return nil, err
	}
	var away *layout.Absence
	if !here {
		if away, err = r.readAbsence(s.key); err != nil {
			return nil, err
		}
		if away == nil { // it may have come back in between; nothing leaves while its place is taken
			if here, err = r.disk.HasPage(s.key); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case create && away != nil && away.Kind == layout.Evicted:
		return nil, errAway
	case !here && (r.o.ReadOnly || !create):
		return nil, ErrNotFound
	}
	if err := r.usage.named(s.key.Ledger, s.key.ID, s.name); err != nil {
		return nil, err
	}
	if !r.o.ReadOnly {
		if err := r.makeLedgerDir(s.key.Ledger); err != nil {
			return nil, err
		}
	}
	if !here {
		if err := storage.Create(ctx, o); err != nil {
			return nil, err
		}
		defer r.pagesChanged() // once it has its name
	}
	if away != nil || here && s.back { // deleted here once, and wanted again; or evicted. While its place is taken it does not leave.
		if err := r.disk.RemoveAbsence(s.key); err != nil {
			return nil, err
		}
	}
	return storage.Open(ctx, o)
}

// makeLedgerDir makes the directory of a ledger. It lists it once in the life of r: a ledger may
// have many pages.
func (r *Repository) makeLedgerDir(ledger string) error {
	r.mu.Lock()
	made := r.ledgerDirs[ledger]
	r.mu.Unlock()
	if made {
		if there, err := r.disk.HasLedger(ledger); err != nil || there {
			return err
		}
	}
	if err := r.disk.MakeLedger(ledger); err != nil {
		return err
	}
	r.mu.Lock()
	r.ledgerDirs[ledger] = true
	r.mu.Unlock()
	return nil
}

func (r *Repository) storageOptions(key pageKey) storage.Options {
	o := storage.Options{
		FS: r.fs, Dir: r.disk.PageDir(key), Page: key.ID, ReadOnly: r.o.ReadOnly, Cache: r.cache, SegmentBytes: r.o.SegmentBytes,
		Recency: r.recency, Clock: r.clock, Logger: r.o.Logger.With("ledger", key.Ledger, "page", PageID(key.ID).String()),
	}
	if r.o.InMemory {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.indexes[o.Dir] == nil {
			r.indexes[o.Dir] = index.NewMemory()
		}
		o.MemoryIndex = r.indexes[o.Dir]
	}
	return o
}

// logRecovery reports what Open mended, which is returned to no caller.
func (s *pageStore) logRecovery() {
	log := s.log()
	rec := s.store.Recovery()
	for _, t := range rec.Torn {
		log.Info("the torn end of a segment was set aside", "segment", t.Segment, "offset", t.Offset, "bytes", t.Bytes, "savedAs", t.SavedAs)
	}
	if rec.IndexRebuilt != "" {
		log.Warn("the index of a page was made anew", "reason", rec.IndexRebuilt)
	}
}

// drop takes a handle away and closes the store after the last one.
func (s *pageStore) drop(p *Page) error {
	r := s.repo
	r.mu.Lock()
	delete(s.handles, p)
	last := len(s.handles) == 0
	s.closing = s.closing || last
	if p.use {
		s.users--
	}
	unused := p.use && s.users == 0
	r.mu.Unlock()
	if !last {
		if unused {
			r.pokeQuota()
			return s.noteUse()
		}
		return nil
	}
	err := s.endSync(true)
	s.merger.close()
	s.collector.close()
	st := s.store.Stats()
	blank := s.store.Blank()
	err = errors.Join(err, s.store.Close(), s.noteSize(blank))
	if unused {
		err = errors.Join(err, s.noteUse())
	}
	s.observe(Event{Kind: EventPageClosed, Syncs: st.Syncs, WrittenBytes: st.BytesWritten})
	r.mu.Lock()
	delete(r.pages, s.key)
	r.mu.Unlock()
	close(s.gone)
	r.pokeQuota()
	if unused {
		r.keeper.use(s.key)
	}
	return err
}

// waitStores waits for the stores that others are closing. No handle can be made any more.
func (r *Repository) waitStores() {
	r.mu.Lock()
	var wait []*pageStore
	for _, s := range r.pages {
		wait = append(wait, s)
	}
	r.mu.Unlock()
	for _, s := range wait {
		<-s.gone
	}
}

// isOpen reports whether somebody has the page open, other than to keep it.
func (r *Repository) isOpen(key pageKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pages[key]
	return s != nil && !s.closing && !s.leaving && !s.isKeptLocked()
}

// isKept reports whether the page is open only to be kept.
func (r *Repository) isKept(key pageKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pages[key]
	return s != nil && s.isKeptLocked()
}

// noteSize notes what the page takes on disk, once it is closed; blank says what its store said
// before.
func (s *pageStore) noteSize(blank bool) error {
	n, err := s.repo.disk.PageSize(s.key)
	if err != nil {
		return fmt.Errorf("measure page: %w", err)
	}
	if gone, err := s.repo.vanished(s.key, blank, n); err != nil || gone > 0 { // what was noted last tells a check
		return err
	}
	return s.repo.usage.noteSize(s.key.Ledger, s.key.ID, n)
}

func (s *pageStore) log() *slog.Logger {
	return s.repo.o.Logger.With("ledger", s.key.Ledger, "page", PageID(s.key.ID).String())
}

// observe fills in where e happened and tells the observer.
func (s *pageStore) observe(e Event) {
	if o := s.repo.o.Observer; o != nil {
		e.Ledger, e.Page = s.key.Ledger, s.key.ID
		o.Observe(e)
	}
}

// note tells the observer of an error that matches ErrCorrupt.
func (s *pageStore) note(err error) {
	if s.repo.o.Observer != nil && errors.Is(err, ErrCorrupt) {
		s.observe(Event{Kind: EventCorruption, Err: err})
	}
}

// leaks counts what was open when its page was closed.
type leaks struct{ transactions, snapshots int }

func (l *leaks) add(m leaks) {
	l.transactions += m.transactions
	l.snapshots += m.snapshots
}

func (l leaks) err() error {
	if l == (leaks{}) {
		return nil
	}
	return fmt.Errorf("%d transactions and %d snapshots were left open", l.transactions, l.snapshots)
}
