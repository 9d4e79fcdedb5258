package replica

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Options say which page it is, and where its bucket is.
type Options struct {
	Store  *storage.Store
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  wire.Names
	// Fetcher is the one that SetFetcher sets.
	Fetcher *pack.Fetcher
	// NewID returns random ids, never zero. It is called on the goroutine of the caller.
	NewID func() epoch.ID
	// Parallel is how many packs are in flight at once, 0: 2. Each takes 16 MiB of memory.
	Parallel int
	// Plain reports whether the values of a key must not be compressed; nil: no key.
	Plain func(key []byte) bool
	// Again reports whether a value that a commit puts under a key goes up whole, even if the
	// bucket has the value or parts of it; nil: for no key.
	Again func(key []byte) bool
	// InUse returns commits that must not be pruned yet; nil: none.
	InUse func() []commit.ID
	// Up and Down count values that go up and come down; nil: none.
	Up, Down *progress.Tracker
}

// ErrHeads is the error of a cut while the log has several heads: they are merged first.
var ErrHeads = errors.New("the log has several heads")

// Page implements pagelog.Page for a page of a device. See the package's comment.
type Page struct {
	o     Options
	state *State
	// shared is state for the goroutines of the Fetcher.
	shared atomic.Pointer[State]
	runs   *checkpoint.Store
	// erase is what the next cut erases: see SetErase.
	erase Erase
	out   outgoing
	heads logHeads
	// orphans are commits of State.Near.
	orphans map[epoch.Commit]*commit.Commit
}

var _ pagelog.Page = (*Page)(nil)

// Erase says what the next cut removes from the bucket: commits, which are given up in all
// lineages, and values, whose pieces must not stay in any pack. Needed pieces of such packs are
// moved.
type Erase struct {
	Commits []commit.ID
	Values  []object.Digest
}

// Open returns the Page of a store. It reads the store's records of the bucket, and makes no
// request. Errors: *base.CorruptError for a bad row; those of the disk.
func Open(ctx context.Context, o Options) (*Page, error) {
	s, err := loadState(ctx, o.Store, o.Sealer.Keyring().BucketID())
	if err != nil {
		return nil, fmt.Errorf("read what is known of the bucket: %w", err)
	}
	p := &Page{
		o: o, state: s,
		runs: checkpoint.New(checkpoint.Options{
			Bucket: o.Bucket, Sealer: o.Sealer, Names: o.Names, NewID: o.NewID, Dir: o.Store.TempDir(),
		}),
	}
	p.shared.Store(s)
	return p, nil
}

// SetFetcher sets the Fetcher for pieces of EAGER values that have a place and are not held. The
// Fetcher uses PackEpoch and EntryPieces; only its FetchAll is called. SetFetcher precedes any call
// that reads from the bucket.
func (p *Page) SetFetcher(f *pack.Fetcher) { p.o.Fetcher = f }

// Position returns how far the page has read the log.
func (p *Page) Position() epoch.Position { return p.state.At }

// State returns the state of the log. It belongs to the page; the caller must not change it.
func (p *Page) State() *State { return p.state }

// SetErase sets what the next Propose erases. The setting is not durable.
func (p *Page) SetErase(e Erase) { p.erase = e }

// Keep implements pagelog.Page.
func (p *Page) Keep(ctx context.Context, next epoch.Position) error {
	s := *p.state
	s.At = next
	return p.write(ctx, nil, &storage.SyncBatch{}, &s)
}

// write makes a batch durable, with the rows in which next differs from the page's state. next then
// becomes the state.
func (p *Page) write(ctx context.Context, j *storage.Journal, b *storage.SyncBatch, next *State) error {
	b.Metadata = append(b.Metadata, next.changes(p.state)...)
	if err := submit(ctx, p.o.Store, j, b); err != nil {
		return err
	}
	p.state = next
	p.shared.Store(next)
	return nil
}
