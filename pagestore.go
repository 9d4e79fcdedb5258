package ledger

import (
	"errors"
	"log/slog"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/internal/turn"
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

	useTurn turn.Lock // serializes noteUse
}

// openPages are the pages of a repository, with the stores and handles of open ones.
type openPages = presence.Pages[*pageStore, *Page]

// newHandle returns a handle of an open page.
func (s *pageStore) newHandle(kind presence.Kind) *Page {
	return &Page{shared: s, store: s.store, in: session.New(s.env), kind: kind}
}

// noteUse records in the page usage whether the app has the page open. Handles of the repository's
// own work, such as Status and Sync, do not count.
func (s *pageStore) noteUse() error {
	s.useTurn.Wait() // held for one write at most
	defer s.useTurn.Give()
	r := s.repo
	if r.pages.UseOf(s.key) == presence.ForUse {
		return r.usage.MarkOpened(s.key)
	}
	return r.usage.MarkClosed(s.key, r.clock.Now())
}

func (r *Repository) storageOptions(key pageKey) storage.Options {
	o := storage.Options{
		FS: r.fs, Dir: r.disk.PageDir(key), Page: key.ID, ReadOnly: r.o.ReadOnly, Cache: r.cache, SegmentBytes: r.o.SegmentBytes,
		Reserve: r.reserve, Recency: r.recency, Clock: r.clock, Logger: r.o.Logger.With("ledger", key.Ledger, "page", PageID(key.ID).String()),
	}
	if key.ID == ([16]byte{}) { // root pages of all ledgers have this id
		o.Identity = DerivePageID(key.Ledger, "")
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

// drop removes a handle.
func (s *pageStore) drop(p *Page) error {
	r := s.repo
	last, err := r.pages.Drop(s.key, p)
	unused := p.kind == presence.ForUse && (last || r.pages.UseOf(s.key) != presence.ForUse)
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

// positions returns the commits at which the handles of the page stand. Handles that only keep the
// page do not count: they are not read.
func (s *pageStore) positions() []commit.ID {
	var at []commit.ID
	for _, p := range s.repo.pages.Handles(s.key) {
		if p.kind != presence.ForSync {
			at = append(at, p.in.Position().ID)
		}
	}
	return at
}

// transactions returns the open transactions of all handles.
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

// observe adds the page to e and passes e to the observer.
func (s *pageStore) observe(e Event) {
	if observe := s.repo.o.Observe; observe != nil {
		e.Ledger, e.Page = s.key.Ledger, s.key.ID
		observe(e)
	}
}

// note reports an error that matches ErrCorrupt to the observer.
func (s *pageStore) note(err error) {
	if s.repo.o.Observe != nil && errors.Is(err, ErrCorrupt) {
		s.observe(Event{Kind: EventCorruption, Err: err})
	}
}
