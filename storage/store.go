package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// Options say which page to open and how. Zero values of optional fields are replaced by defaults.
type Options struct {
	// FS and Dir locate the page. Dir is the page's own directory. page.db always lies on the
	// machine's file system, unless MemoryIndex is set.
	FS  vfs.FS
	Dir string
	// Page is the id of the page in its ledger. It keys the levels of the tree.
	Page [16]byte
	// Identity stands in the files, which are refused if they have another; zero: Page. Files of a
	// page whose id is not unique among all ledgers need one.
	Identity [16]byte
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
	// Reserve keeps disk space free for collection and compaction; nil: there is none.
	Reserve *Reserve
	// Recency records which pieces of values are read; nil: reads are not recorded.
	Recency *Recency
	// Clock bounds how long a commit waits for callers that are about to join its batch; nil: the
	// machine's clock.
	Clock clock.Clock
	// Logger receives events of the background work; nil: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Identity == ([16]byte{}) {
		o.Identity = o.Page
	}
	if o.Cache == nil {
		o.Cache = NewNodeCache(0)
	}
	if o.Reserve == nil {
		o.Reserve = &Reserve{}
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

// Recovery reports what Open repaired.
type Recovery struct {
	// Torn lists what was cut from the ends of segments: writes that a crash interrupted, and that
	// no reported commit needs.
	Torn []segment.Torn
	// RewrittenBatches counts the batches that Open wrote and synced again, because they might not
	// have been durable.
	RewrittenBatches int
	// IndexRebuilt is the reason for which page.db was rebuilt from the log, or empty.
	IndexRebuilt string
}

// Store is an open page. Use Open; Close releases it. Fields that belong together, and mostly share
// a lock, are in structs beside the functions that use them.
type Store struct {
	o         Options
	log       *segment.Log
	cache     *NodeCache
	cacheSalt uint64
	over      *overlay
	recovery  Recovery
	fetcher   atomic.Pointer[Fetcher] // nil: there is none
	counters  counters

	mu sync.RWMutex // also guards the fields of over
	committing
	journaling
	pruning
	notices
	lifetime
	heads []*commit.Commit       // guarded by mu; durable heads, sorted
	whole map[object.Digest]bool // guarded by mu; roots of trees that were found whole, see TreeWhole
	drops sync.Mutex             // held while pieces are dropped, or the bucket is forgotten

	lastUnsynced unsyncedCommits // guarded by mu

	indexing
	folding
}

// lifetime is the end of the page, by failure or by Close.
type lifetime struct {
	poisoned error         // guarded by mu; why nothing can be written any more
	closed   bool          // guarded by mu
	released chan struct{} // closed at the end of Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Create makes the directory of a page, which is empty until the first write, and makes its name
// durable. An existing directory is left as it is: Open makes its name durable.
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
	return segment.Options{FS: o.FS, Dir: o.Dir, Page: o.Identity, ReadOnly: o.ReadOnly, SegmentBytes: o.SegmentBytes}
}

// Blank reports that neither the log nor the index records an append: the page was never written,
// or its files are lost or empty. It waits for a running fold.
func (s *Store) Blank() bool {
	s.foldTurn.Wait()
	defer s.foldTurn.Give()
	return s.state.position.Number == 0 && !slices.ContainsFunc(s.log.Segments(), func(g segment.SegmentInfo) bool { return g.SyncedEnd > emptyBytes })
}

// WaitDurable waits until c, which NewestHead returned, is durable. It returns the disk error that
// made c fail.
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
	// c is durable, or failed before this call and is no longer recorded (I5).
	if _, err := s.Commit(context.Background(), c.ID); !errors.Is(err, base.ErrNotFound) {
		return err
	}
	return failure
}

// Recovery returns what Open repaired.
func (s *Store) Recovery() Recovery {
	s.indexMu.RLock()
	defer s.indexMu.RUnlock()
	return s.recovery
}

// Page returns the id of the page.
func (s *Store) Page() [16]byte { return s.o.Page }

// TempDir returns the directory for temporary files. It lies on the machine's file system, belongs
// to this page and is emptied by Open. For a page in memory it is "".
func (s *Store) TempDir() string {
	if s.o.MemoryIndex != nil {
		return ""
	}
	return s.o.Dir + "/tmp"
}

// Pin keeps the commit and all that it reaches from being collected until the caller calls release.
// Further calls of release do nothing.
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

// Pins returns the pinned commits, in no order.
func (s *Store) Pins() []commit.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.pins))
}

// Lock waits for the page's write turn, in which one caller reads the newest head and submits a
// commit on it. It returns the error of ctx, or one that matches base.ErrClosed or
// base.ErrReadOnly. unlock must be called once, after Submit or without it.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	s.joiners.Add(1)
	if err := s.turn.Take(ctx); err != nil {
		s.leave()
		return nil, fmt.Errorf("wait for the page's write turn: %w", err)
	}
	return func() {
		s.leave()
		s.turn.Give()
	}, nil
}

// leave reports that a caller that might have joined the group has joined it or will not.
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
