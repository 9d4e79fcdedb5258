package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// Options say which page to open and how. The zero values of what is optional are replaced by
// defaults.
type Options struct {
	// FS and Dir are where the page lives. Dir is the page's own directory. page.db itself always
	// lies on the machine's file system, unless MemoryIndex is set.
	FS  vfs.FS
	Dir string
	// Page is the id of the page: it keys the levels of the tree and is checked against what is on
	// disk.
	Page [16]byte
	// ReadOnly opens for reading: nothing is written. No writer may have the page open.
	ReadOnly bool
	// Cache keeps tree nodes; nil: a cache of its own of DefaultCacheBytes.
	Cache *NodeCache
	// SegmentBytes is where a new segment is begun; 0: 64 MiB.
	SegmentBytes int64
	// FoldRows and FoldBytes say how many rows, or bytes of records that are not pieces of values,
	// may be pending before the index is brought up to date; writers wait at half as much again.
	// A piece of a value counts six times: its rows are spread over the whole index. 0: 131072 and
	// 128 MiB.
	FoldRows  int
	FoldBytes int64
	// MemoryIndex replaces page.db, for repositories in memory and for crash tests.
	MemoryIndex *index.Memory
	// Recency is told which pieces of values are read; nil: nobody is.
	Recency *Recency
	// Clock bounds how long a commit waits for others that are about to join its batch; nil: the
	// machine's clock.
	Clock clock.Clock
	// Logger takes what happens in the background; nil: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Cache == nil {
		o.Cache = NewNodeCache(0)
	}
	if o.FoldRows <= 0 {
		o.FoldRows = 131072
	}
	if o.FoldBytes <= 0 {
		o.FoldBytes = 128 << 20
	}
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Recovery says what Open had to mend.
type Recovery struct {
	// Torn lists what was cut from the ends of segments: bytes that were being written when the
	// machine or the process stopped, and that no reported commit needs.
	Torn []segment.Torn
	// RewrittenBatches counts the batches that were written again and synced, because they might
	// not have been.
	RewrittenBatches int
	// IndexRebuilt says why page.db was made anew from the log; empty when it was not.
	IndexRebuilt string
}

// Store is an open page. Use Open; Close releases it. What belongs together, and is mostly guarded
// by one lock, is in structs beside the functions that use it.
type Store struct {
	o         Options
	log       *segment.Log
	cache     *NodeCache
	cacheSalt uint64
	over      *overlay
	recovery  Recovery
	fetcher   atomic.Pointer[Fetcher] // nil: there is none
	counters  counters

	mu sync.RWMutex // also of what over has
	committing
	journaling
	pruning
	notices
	lifetime
	heads []*commit.Commit       // guarded by mu; durable heads, sorted
	whole map[object.Digest]bool // guarded by mu; roots of trees that were found whole, see TreeWhole
	syncs uint64                 // guarded by mu; counts submissions that change which pieces are held or placed

	lastUnsynced unsyncedCommits // guarded by mu

	indexing
	folding
	reserve reserve
}

// lifetime is how the page ends.
type lifetime struct {
	poisoned error         // guarded by mu; why nothing can be written any more
	closed   bool          // guarded by mu
	released chan struct{} // closed at the end of Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Create makes the directory of a page, which is empty until something is written, and its name
// durable. A directory that is there already is left as it is: Open makes its name durable.
func Create(_ context.Context, o Options) error {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err == nil {
		return nil
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return fmt.Errorf("create page: %w", err)
	}
	return o.FS.SyncDir(parentDir(o.Dir))
}

func (o *Options) segmentOptions() segment.Options {
	return segment.Options{FS: o.FS, Dir: o.Dir, Page: o.Page, ReadOnly: o.ReadOnly, SegmentBytes: o.SegmentBytes}
}

// Blank reports that neither the log nor the index knows of anything that was ever appended: nobody
// has written to the page, or its files are gone or empty. It waits for a fold that runs.
func (s *Store) Blank() bool {
	s.foldTurn.lock()
	defer s.foldTurn.release()
	return s.state.position.Number == 0 && !slices.ContainsFunc(s.log.Segments(), func(g segment.SegmentInfo) bool { return g.SyncedEnd > emptyBytes })
}

// WaitDurable waits until c, which NewestHead gave, is durable. It returns the error of the disk
// with which c failed.
func (s *Store) WaitDurable(c *commit.Commit) error {
	s.mu.Lock()
	g, failure := s.unsettled[c.ID], s.failure
	s.mu.Unlock()
	if g != nil {
		return s.await(g)
	}
	if failure == nil {
		return nil
	}
	// It is durable, or it failed before this call: then nothing knows it any more (I5).
	if _, err := s.Commit(context.Background(), c.ID); !errors.Is(err, base.ErrNotFound) {
		return err
	}
	return failure
}

// Recovery returns what Open had to mend.
func (s *Store) Recovery() Recovery {
	s.indexMu.RLock()
	defer s.indexMu.RUnlock()
	return s.recovery
}

// Page returns the id of the page.
func (s *Store) Page() [16]byte { return s.o.Page }

// TempDir returns the directory in which a transaction may keep what does not fit in memory. It
// lies on the machine's file system, belongs to this page and is emptied by Open. For a page in
// memory it is "".
func (s *Store) TempDir() string {
	if s.o.MemoryIndex != nil {
		return ""
	}
	return s.o.Dir + "/tmp"
}

// Pin keeps the commit and all it reaches from being collected until release is called. release may
// be called more than once.
func (s *Store) Pin(id commit.ID) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[id]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pins[id]--; s.pins[id] == 0 {
			delete(s.pins, id)
		}
	})
}

// Lock waits for the page's write turn, in which one caller reads the newest head and submits a
// commit on it. It returns the error of ctx, or one that matches base.ErrClosed or
// base.ErrReadOnly. unlock must be called once, and may be called after Submit or without it.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	s.joiners.Add(1)
	if err := s.turn.take(ctx); err != nil {
		s.leave()
		return nil, fmt.Errorf("wait for the page's write turn: %w", err)
	}
	return func() {
		s.leave()
		s.turn.release()
	}, nil
}

// leave says that a caller who might have joined the group has done so or will not.
func (s *Store) leave() {
	s.joiners.Add(-1)
	select {
	case s.joined <- struct{}{}:
	default:
	}
}

// writable returns why nothing can be written, or nil.
func (s *Store) writable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.writableLocked()
}

func (s *Store) writableLocked() error {
	switch {
	case s.closed:
		return fmt.Errorf("page: %w", base.ErrClosed)
	case s.o.ReadOnly:
		return fmt.Errorf("page is open for reading: %w", base.ErrReadOnly)
	case s.poisoned != nil:
		return s.poisoned
	}
	return nil
}
