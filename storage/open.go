package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// indexName is the file of the index in a page's directory.
const indexName = "page.db"

var nextSalt atomic.Uint64

// newSalt returns a number that separates the nodes of this open page from those of others in a
// cache.
func newSalt() uint64 { return nextSalt.Add(1) * 0x9e3779b97f4a7c15 }

// Open opens a page. It repairs what a crash left (see Recovery), rebuilds page.db from the log
// when it is missing or damaged, and starts the folder. Errors match base.ErrNotFound when there is
// no such page, base.ErrCorrupt when bytes that were durable are damaged, base.ErrUnsupported, or
// are those of the disk. They do not name the page, which the caller can name.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = base.ErrNotFound
		}
		return nil, err
	}
	s := &Store{
		o: o, cache: o.Cache, cacheSalt: newSalt(), folding: newFolding(),
		committing: committing{turn: turn.New(), joined: make(chan struct{}, 1), appendTurn: turn.New(), unsettled: map[commit.ID]*group{}, appenders: map[*appender]uint64{}},
		journaling: journaling{journals: map[*Journal]struct{}{}}, pruning: pruning{pins: map[commit.ID]int{}},
		lifetime: lifetime{released: make(chan struct{})},
	}
	s.over, s.appended.L = newOverlay(&s.mu), &s.mu
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	if !o.ReadOnly {
		run, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.wg.Go(func() { s.runFolder(run) })
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if dir := s.TempDir(); dir != "" && !s.o.ReadOnly {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	from, err := s.openIndex()
	if err != nil && !errors.Is(err, errOldIndex) {
		return err
	}
	if err := s.openLog(ctx, from, err); err != nil {
		return err
	}
	heads, err := s.readHeads()
	if err != nil {
		// The head rows are few and are checked together: rebuild the index when they do not agree.
		if !errors.Is(err, base.ErrCorrupt) || !s.reindex(err.Error()) {
			return err
		}
		if heads, err = s.readHeads(); err != nil {
			return err
		}
	}
	pending, _ := s.pendingSync(false, ofCommits)
	for _, o := range pending {
		switch {
		case o.kind == recCommit && o.origin != originAhead:
			heads = withCommit(heads, o.commit)
		case o.kind == recPruned, o.kind == recStatus && o.sync.status == statusInner:
			heads = withoutCommits(heads, o.sync.ids)
		}
	}
	s.heads, s.chained = heads, heads
	return nil
}

// openIndex opens page.db, or begins an empty one, and returns the position that it reflects: nil
// for one that is empty, or whose first fold or rebuild did not end. With an error that matches
// errOldIndex it returns the position of an index of an older version.
func (s *Store) openIndex() (*segment.Position, error) {
	db, err := s.openIndexFile(index.Options{ReadOnly: s.o.ReadOnly})
	if err == nil {
		s.index = db
		var st *state
		st, err = readState(db)
		old := errors.Is(err, errOldIndex)
		if (err == nil || old) && st != nil && st.page != s.o.Identity {
			err, old = badRow(bucketState, "state", "the id of another page"), false
		}
		if old && st.position.Number != 0 {
			return &st.position, err
		}
		if err == nil && st != nil {
			if s.state = *st; st.position.Number == 0 {
				return nil, nil
			}
			return &st.position, nil
		}
		if err == nil {
			return nil, s.beginIndex("page.db is empty")
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, s.beginIndex("page.db is missing")
	case errors.Is(err, base.ErrCorrupt), errors.Is(err, errOldIndex):
		return nil, s.beginIndex(err.Error())
	}
	return nil, err
}

func (s *Store) openIndexFile(o index.Options) (index.DB, error) {
	if s.o.MemoryIndex != nil {
		return s.o.MemoryIndex, nil
	}
	path := filepath.Join(s.o.Dir, indexName)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return index.OpenFile(path, o)
}

// readState returns nil for an index into which nothing has been folded yet. With an error that
// matches errOldIndex it returns the state of the older version.
func readState(db index.DB) (*state, error) {
	var st *state
	err := db.View(func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		if b == nil {
			if slices.ContainsFunc(allBuckets, func(name string) bool { return tx.Bucket(name) != nil }) {
				return badRow(bucketState, "", "the bucket is missing")
			}
			return nil
		}
		v := b.Get(stateKey)
		if v == nil {
			return badRow(bucketState, "state", "missing")
		}
		parsed, err := parseState(bytes.Clone(v)) // before the other buckets, which differ between versions
		st = &parsed
		if err != nil {
			return err
		}
		for _, name := range allBuckets {
			if tx.Bucket(name) == nil {
				return badRow(name, "", "the bucket is missing")
			}
		}
		return nil
	})
	return st, err
}

// beginIndex replaces the index by an empty one. A page that is open for reading gets one in
// memory.
func (s *Store) beginIndex(reason string) error {
	if s.index != nil {
		_ = s.index.Close() // the old index is given up, whatever the error
		s.index = nil
	}
	s.indexes.Add(1)
	s.freed = nil
	db, err := s.emptyIndex()
	if err != nil {
		return err
	}
	s.index = db
	s.over.changed() // the rows read before may have been damaged
	if s.state, err = initIndex(db, s.o.Identity); err != nil {
		return fmt.Errorf("begin page.db: %w", err)
	}
	s.recovery.IndexRebuilt = reason
	return nil
}

// initIndex gives an empty index its buckets and the rows of a page without commits.
func initIndex(db index.DB, page [16]byte) (state, error) {
	st := state{page: page, next: 1}
	first := commit.First()
	st.addHead(first.ID)
	return st, db.Update(func(tx index.Tx) error {
		for _, name := range allBuckets {
			tx.Bucket(name) // is made
		}
		if err := tx.Bucket(bucketHeads).Put(first.ID[:], headRow(first)); err != nil {
			return err
		}
		return tx.Bucket(bucketState).Put(stateKey, st.encode())
	})
}

func (s *Store) emptyIndex() (index.DB, error) {
	switch {
	case s.o.ReadOnly:
		return index.NewMemory(), nil
	case s.o.MemoryIndex != nil:
		s.o.MemoryIndex.Clear()
		return s.o.MemoryIndex, nil
	}
	path := filepath.Join(s.o.Dir, indexName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove damaged page.db: %w", err)
	}
	return index.OpenFile(path, index.Options{})
}

// openLog opens the segments and takes the batches that the index does not reflect into the
// overlay. From nil it builds the index; for an empty log it does not report that. old says why the
// rows are unusable while from is still valid.
func (s *Store) openLog(ctx context.Context, from *segment.Position, old error) (err error) {
	if err = old; err == nil {
		err = s.replayLog(ctx, from)
	}
	// When only the index says that invalid bytes were durable, it is right: it was written after
	// they were durable.
	if old != nil || errors.Is(err, segment.ErrIndexMismatch) && !errors.Is(err, base.ErrCorrupt) {
		if lost := s.lostBatches(ctx, from); lost != nil {
			return lost // says of the log what err says of the index
		}
		if err := s.beginIndex(err.Error()); err != nil {
			return err
		}
		from, err = nil, s.replayLog(ctx, nil)
	}
	switch {
	case err != nil || from != nil:
		return err
	case s.log.Complete() == 0:
		s.recovery.IndexRebuilt = ""
		return nil
	}
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	return s.rebuild(ctx, s.recovery.IndexRebuilt, s.log.Complete())
}

// lostBatches returns an error when the log ends before the position of the index. The index is
// written only after the log was synced, so the log is damaged, and nothing may be cut off it.
func (s *Store) lostBatches(ctx context.Context, from *segment.Position) error {
	if from == nil {
		return nil
	}
	o := s.o.segmentOptions()
	o.ReadOnly = true
	var last segment.BatchInfo
	log, _, err := segment.Open(ctx, o, nil, func(info segment.BatchInfo, _ []segment.Record) error {
		last = info
		return nil
	})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil || last.Number >= from.Number {
		return err
	}
	return &base.CorruptError{
		Where: placeString(segment.Place{Segment: from.Segment, Offset: from.Start}),
		Want:  fmt.Sprintf("batch %d, which page.db reflects", from.Number), Got: fmt.Sprintf("a log that ends with batch %d", last.Number),
	}
}

// replayLog opens the segments, and takes the batches after a position into the overlay.
func (s *Store) replayLog(ctx context.Context, from *segment.Position) error {
	var replay func(info segment.BatchInfo, records []segment.Record) error
	if from != nil {
		replay = func(info segment.BatchInfo, records []segment.Record) error {
			ops, err := parseRecords(records, info)
			if err == nil {
				s.over.add(ops, info)
			}
			return err
		}
	}
	log, rec, err := segment.Open(ctx, s.o.segmentOptions(), from, replay)
	if err != nil {
		return err
	}
	s.log = log
	s.recovery.Torn, s.recovery.RewrittenBatches = rec.Torn, rec.Rewritten
	return nil
}

// parseRecords reads the records of a batch whose content is needed no more.
func parseRecords(records []segment.Record, info segment.BatchInfo) ([]op, error) {
	if err := checkAlone(records); err != nil {
		return nil, err
	}
	ops := make([]op, len(records))
	for i, r := range records {
		o, err := parseRecord(r)
		if err != nil {
			return nil, err
		}
		o.content, o.number, o.ord = nil, info.Number, uint32(i)
		ops[i] = o
	}
	return ops, nil
}

// Close waits for running calls, folds, and releases the page. Submitted commits are written. It is
// idempotent: later calls wait for the first one, and return nil. Errors are those of the disk;
// what was reported durable is durable also when Close fails.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.released
		return nil
	}
	s.closed = true
	s.headsChanged.tell()
	s.syncChanged.tell()
	s.folded.tell()
	g := s.group
	s.mu.Unlock()
	defer close(s.released)
	var errs []error
	if g != nil {
		errs = append(errs, s.await(g))
	}
	s.appendTurn.Wait() // the append in flight has finished
	s.appendTurn.Give()
	if s.stop != nil {
		s.stop()
	}
	s.wg.Wait()
	if !s.o.ReadOnly && s.poisonedBy() == nil {
		errs = append(errs, s.Fold(context.Background()))
	}
	errs = append(errs, s.release())
	return errors.Join(errs...)
}

func (s *Store) poisonedBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poisoned
}

func (s *Store) release() error {
	var errs []error
	s.indexMu.Lock()
	if s.index != nil {
		errs = append(errs, s.index.Close())
		s.index = nil
	}
	s.indexMu.Unlock()
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	s.cache.drop(s)
	return errors.Join(errs...)
}

func parentDir(dir string) string { return filepath.Dir(dir) }
