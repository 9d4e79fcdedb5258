package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/storage"
)

// openStore opens the store of a page.
func (r *Repository) openStore(ctx context.Context, key pageKey, name string) (*pageStore, error) {
	s := &pageStore{repo: r, key: key, name: name, useTurn: turn.New()}
	var err error
	if s.store, err = storage.Open(ctx, r.storageOptions(key)); err != nil {
		s.note(err)
		return nil, err
	}
	s.env = s.sessionEnv()
	s.merger = merging.New(s.mergingEnv())
	s.collector = reclaim.NewCollector(reclaim.Page{
		Key: key, Store: s.store, Clock: r.clock, Log: s.log(), Damaged: s.note,
		Collected: func(n int, bytes int64) { s.observe(Event{Kind: EventCollect, Changes: n, Bytes: bytes}) },
	})
	if s.name == "" {
		if s.name, _, err = r.usage.Page(key); err != nil {
			r.o.Logger.Warn("the name of a page cannot be read", "page", PageID(key.ID).String(), "error", err)
		}
	}
	s.logRecovery()
	s.cloud = s.cloudPage()
	s.cloud.Begin(ctx)
	s.observe(Event{Kind: EventPageOpened})
	return s, nil
}

// enroll records the name of a page.
func (r *Repository) enroll(key pageKey, name string) error {
	if r.o.ReadOnly || name == "" {
		return nil
	}
	return r.usage.SetPageName(key, name)
}

// createPage makes an empty page, and the directory of its ledger.
func (r *Repository) createPage(ctx context.Context, key pageKey) error {
	if r.o.ReadOnly {
		return ErrNotFound
	}
	defer r.pagesChanged() // the page has its name now
	if err := r.disk.MakeLedger(key.Ledger); err != nil {
		return err
	}
	return storage.Create(ctx, r.storageOptions(key))
}

// pageLeft removes the state of a page that was deleted or evicted. An evicted page keeps its name.
func (r *Repository) pageLeft(key pageKey, a *layout.Absence) {
	r.mu.Lock()
	delete(r.indexes, key)
	r.mu.Unlock()
	r.pagesChanged()
	forget := r.usage.Remove
	if a != nil && a.Kind == layout.Deleted {
		forget = r.usage.Forget
	}
	if err := forget(key); err != nil {
		r.o.Logger.Warn("the usage of a page that is away stays listed", "ledger", key.Ledger, "page", PageID(key.ID).String(), "error", err)
	}
}

// logRecovery logs what Open repaired, which no call returns.
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

// close closes the store after its last handle.
func (s *pageStore) close(p *Page) error {
	err := s.cloud.End()
	s.merger.Close()
	s.collector.Close()
	st := s.store.Stats()
	blank := s.store.Blank()
	err = errors.Join(err, s.store.Close(), s.noteSize(blank))
	if p.kind == presence.ForUse {
		err = errors.Join(err, s.noteUse())
	}
	s.observe(Event{Kind: EventPageClosed, Syncs: st.Syncs, WrittenBytes: st.BytesWritten})
	return err
}

// noteSize records the disk space of the page after closing; blank says whether its store was blank
// before.
func (s *pageStore) noteSize(blank bool) error {
	n, err := s.repo.disk.PageSize(s.key)
	if err != nil {
		return fmt.Errorf("measure page: %w", err)
	}
	if gone, err := checkup.Vanished(s.repo.disk, s.repo.usage, s.key, blank, n); err != nil || gone > 0 { // the recorded size lets a check detect the loss
		return err
	}
	return s.repo.usage.NoteSize(s.key, n)
}
