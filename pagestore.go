package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// pageKey names a page within a repository.
type pageKey = layout.Page

// pageStore is the open store of a page, which its handles share.
type pageStore struct {
	repo      *Repository
	key       pageKey
	name      string
	store     *storage.Store
	env       *session.Env // of its sessions
	merger    *merging.Driver
	collector *reclaim.Collector

	cloud *cloudlink.Page

	useTurn chan struct{} // holds one token: one at a time notes the use of the page
}

// openPages are the pages of a repository, with what stands behind those that are open.
type openPages = presence.Pages[*pageStore, *Page]

// openPage returns a new handle of a page, for the app with create, else for a look.
func (r *Repository) openPage(ctx context.Context, l *Ledger, id PageID, name string, create bool) (*Page, error) {
	if create {
		return r.openHandle(ctx, l, id, name, presence.ForUse)
	}
	return r.openHandle(ctx, l, id, name, presence.ForLook)
}

// openHandle returns a new handle of a page, and begins what it is for.
func (r *Repository) openHandle(ctx context.Context, l *Ledger, id PageID, name string, kind presence.Kind) (*Page, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.gate.Leave()
	call := r.gate.Call(ctx)
	defer call.Release()
	key := pageKey{Ledger: l.name, ID: id}
	p, err := r.pages.Open(call, key, name, kind)
	if err != nil {
		return nil, call.Explain(fmt.Errorf("open page %s: %w", key.Text(name), err))
	}
	s := p.shared
	if kind == presence.ForUse {
		if err := s.noteUse(); err != nil {
			return nil, errors.Join(fmt.Errorf("open page %s: %w", key.Text(name), err), p.Close())
		}
		r.keeper.Use(key)
	}
	if kind != presence.ForLook {
		s.merger.Want(false)
	}
	return p, nil
}

// keepPage holds a page open that is here, so that it is synced and its heads are merged in the
// background. That is no use of the page: it does not count as open for Pages, Usage and Evict.
// When nobody else has it open, Evict, DeletePage and the quota close the handle. The caller closes
// it, too. Errors: ErrNotFound (also of a page that was evicted), those of opening a page.
func (r *Repository) keepPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.openHandle(ctx, &Ledger{repo: r, name: page.Ledger}, page.ID, "", presence.ForSync)
}

// newHandle returns a handle of an open page.
func (s *pageStore) newHandle(kind presence.Kind) *Page {
	return &Page{ledger: &Ledger{repo: s.repo, name: s.key.Ledger}, shared: s, store: s.store, in: session.New(s.env), kind: kind}
}

// noteUse has page usage say whether the app has the page open. Looks of the repository's own, such
// as those of Status and Sync, are no use.
func (s *pageStore) noteUse() error {
	s.useTurn <- struct{}{} // never held for longer than a write
	defer func() { <-s.useTurn }()
	r := s.repo
	if r.pages.UseOf(s.key) == presence.Apps {
		return r.usage.MarkOpened(s.key)
	}
	return r.usage.MarkClosed(s.key, r.clock.Now())
}

func (r *Repository) storageOptions(key pageKey) storage.Options {
	o := storage.Options{
		FS: r.fs, Dir: r.disk.PageDir(key), Page: key.ID, ReadOnly: r.o.ReadOnly, Cache: r.cache, SegmentBytes: r.o.SegmentBytes,
		Recency: r.recency, Clock: r.clock, Logger: r.o.Logger.With("ledger", key.Ledger, "page", PageID(key.ID).String()),
	}
	if r.o.InMemory {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.indexes[key] == nil {
			r.indexes[key] = index.NewMemory()
		}
		o.MemoryIndex = r.indexes[key]
	}
	return o
}

// drop takes a handle away.
func (s *pageStore) drop(p *Page) error {
	r := s.repo
	last, err := r.pages.Drop(s.key, p)
	unused := p.kind == presence.ForUse && (last || r.pages.UseOf(s.key) != presence.Apps)
	switch {
	case unused && !last:
		err = errors.Join(err, s.noteUse())
	case unused:
		r.keeper.Use(s.key)
	}
	if last || unused {
		r.quota.Poke()
	}
	return err
}

// positions returns where the handles of the page stand, but for those that only keep it, which
// nobody reads through.
func (s *pageStore) positions() []commit.ID {
	var at []commit.ID
	for _, p := range s.repo.pages.Handles(s.key) {
		if p.kind != presence.ForSync {
			at = append(at, p.in.Position().ID)
		}
	}
	return at
}

// transactions returns those that are open, of all handles.
func (s *pageStore) transactions() map[*session.Tx]bool {
	all := map[*session.Tx]bool{}
	for _, p := range s.repo.pages.Handles(s.key) {
		for _, t := range p.in.Transactions() {
			all[t] = true
		}
	}
	return all
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
