package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// reindex makes the index anew from the log because of what is wrong with it, at most once while
// the page is open, and reports whether it did (or somebody else just has).
func (s *Store) reindex(reason string) bool {
	if s.log == nil {
		return false
	}
	s.foldTurn.lock()
	defer s.foldTurn.release()
	return s.reindexInTurn(context.Background(), reason)
}

// reindexInTurn is reindex for a caller who holds the fold turn.
func (s *Store) reindexInTurn(ctx context.Context, reason string) bool {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.rebuilt || s.index == nil || s.o.MemoryIndex != nil && s.o.ReadOnly {
		return false
	}
	s.rebuilt = true
	if err := s.log.Verify(ctx, nil); err != nil { // the index knows what was in a damaged log: Salvage needs it
		s.o.Logger.Error("index cannot be made anew from a damaged log", "page", fmt.Sprintf("%x", s.o.Page), "reason", reason, "error", err)
		return false
	}
	if err := s.rebuild(ctx, reason, s.state.position.Number); err != nil {
		s.o.Logger.Error("index could not be made anew", "page", fmt.Sprintf("%x", s.o.Page), "error", err)
		return false
	}
	s.o.Logger.Warn("index made anew from the log", "page", fmt.Sprintf("%x", s.o.Page), "reason", reason)
	return true
}

// brokenIndex stands for an index that is of no use.
type brokenIndex struct{ err error }

func (b brokenIndex) View(func(index.Tx) error) error { return b.err }

func (b brokenIndex) Update(func(index.Tx) error) error { return b.err }

func (b brokenIndex) Close() error { return nil }

// rebuild fills an empty index with the batches up to a number. The caller holds the fold turn and
// indexMu.
func (s *Store) rebuild(ctx context.Context, reason string, upTo uint64) (err error) {
	defer func() {
		if err == nil {
			return
		}
		// What is there of it is not all: nothing may be read from it, or folded into it and then
		// believed.
		if s.index != nil {
			err = errors.Join(err, s.index.Close())
		}
		s.index = brokenIndex{fmt.Errorf("index that could not be made anew: %w", err)}
	}()
	ctx = context.WithoutCancel(ctx) // half an index would be the end for everybody, not for one caller
	if err := s.beginIndex(reason); err != nil {
		return err
	}
	st := s.state.clone()
	b := newRebuilder(s, s.index, &st)
	err = s.log.Verify(ctx, func(info segment.BatchInfo, records []segment.Record) error {
		if info.Number > upTo {
			return nil
		}
		ops, err := parseRecords(records, info)
		if err != nil {
			return err
		}
		return b.add(ctx, ops, info)
	})
	if err == nil {
		err = b.flush(ctx)
	}
	if err == nil {
		s.state = st
	}
	return err
}

// rebuilder folds batches into an index that readers do not use yet.
type rebuilder struct {
	s       *Store
	db      index.DB
	st      *state
	numbers *numberCache
	parts   [][]op
	// reflected is the position of what was flushed.
	reflected segment.Position
	rows      int
	touches   int
	pieces    map[object.Digest]*op // stored by parts
}

func newRebuilder(s *Store, db index.DB, st *state) *rebuilder {
	return &rebuilder{s: s, db: db, st: st, numbers: &numberCache{}, pieces: map[object.Digest]*op{}}
}

func (b *rebuilder) add(ctx context.Context, ops []op, info segment.BatchInfo) error {
	alone := aloneKind([][]op{ops}) != 0
	if alone && len(b.parts) > 0 {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.st.position.Add(info)
	b.parts = append(b.parts, ops)
	b.rows += len(ops)
	for i := range ops {
		o := &ops[i]
		b.touches += o.touches()
		if o.stored() && b.pieces[o.digest] == nil {
			b.pieces[o.digest] = o
		}
	}
	if b.rows < b.s.o.FoldRows && b.touches < b.s.maxTouches && !alone {
		return nil
	}
	return b.flush(ctx)
}

func (b *rebuilder) flush(ctx context.Context) error {
	if err := b.s.foldInto(ctx, b.db, b, b.numbers, b.st, &b.reflected, b.parts); err != nil {
		return err
	}
	b.parts, b.rows, b.touches, b.reflected = nil, 0, 0, b.st.position.Clone()
	clear(b.pieces)
	return nil
}

func (b *rebuilder) locate(d *object.Digest) (located, bool, error) {
	if o := b.pieces[*d]; o != nil {
		return o.located(), true, nil
	}
	var l located
	var ok bool
	err := b.db.View(func(tx index.Tx) (err error) {
		l, ok, err = locateIn(tx, d)
		return err
	})
	return l, ok, err
}

func (b *rebuilder) base(d *object.Digest) (located, bool, error) {
	l, ok, err := b.locate(d)
	if ok || err != nil {
		return l, ok, err
	}
	err = b.db.View(func(tx index.Tx) (err error) {
		l, ok, err = baseIn(tx, d)
		return err
	})
	return l, ok, err
}
