package outgoing

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// Options say for which page.
type Options struct {
	Store  *storage.Store
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  format.PageNames
	// Device is the fingerprint that bodies carry.
	Device format.ID
	// NewID returns random ids, never zero. It is called on the goroutine of the caller.
	NewID func() format.ID
	// Parallel is how many packs are under way at once, 0: 2. Each takes 16 MiB of memory.
	Parallel int
	// Cached returns an entry of the log that was read or written lately, as it is stored, which is
	// not changed; nil: none are kept. It spares WriteRanges requests.
	Cached func(number uint64) (format.RangeEntry, bool)
	// Kept returns what a checkpoint says of the bucket beside commits: its retention, and what is
	// condemned and not deleted. Nil: neither.
	Kept func() (format.Retention, []format.Condemnation)
	// At returns the number of the entry up to which the page has read the log, and shallow whether
	// the bucket gives history up, so that parents of what is sent may be given up. Nil: 0 and
	// false.
	At func() (number uint64, shallow bool)
	// Plain reports whether what a key has must not be compressed; nil: no key. A commit that
	// changes such a key is not compressed, and neither is what has all keys of the page.
	Plain func(key []byte) bool
	// Progress is told of the values of the commits of each body that Next makes, in bytes of
	// content; nil: nobody is.
	Progress *progress.Tracker
}

// Page makes what goes up for one page. Its calls run one at a time. It holds no resources between
// calls.
type Page struct {
	o Options

	// lookLocal says that there may be local pieces of commits that are synced: left by an earlier
	// process, or condemned.
	lookLocal bool
	past      Past
	waited    int // bodies since it was set, or since one was made of them

	mu      sync.Mutex
	pending pending // guarded by mu; as in the row of packs
	// sure are packs of pending that were uploaded, or looked for, since the last doubt. Guarded by
	// mu.
	sure map[format.ID]bool
}

// New returns a Page. It asks neither the store nor the bucket for anything.
func New(o Options) *Page { return &Page{o: o, lookLocal: true} }

// Outgoing is a body that is ready to be appended, with what becomes true once it is.
type Outgoing struct {
	Body *format.SealedBody
	// Settle returns what storage is to be told when the body counts as the entry of a number:
	// synced commits and tags, places of inline pieces, metadata but for the position. It is called
	// on the goroutine of the Page's calls, before the next of them.
	Settle func(number uint64) *storage.SyncBatch
	// Commits is how many commits the body brings.
	Commits int
	// Bases are the commits outside the body from which its diffs lead.
	Bases []commit.ID
	// More says that there is more to send than went into this body.
	More bool
}

// Resend makes Next look for pieces of synced commits that are local. It is to be called when an
// entry has condemned something, and when commits or pieces have become unsynced other than by a
// commit. The first Next looks unasked.
func (p *Page) Resend() { p.lookLocal = true }

// SetPast says which commits go up as such that are no heads, until it is said anew.
func (p *Page) SetPast(past Past) { p.past = past }

// Announce returns a body that brings only what b says (retention, condemnations), with the
// fingerprint of the device. b is the body's afterwards. Errors: base.ErrInvalid for a body that is
// not valid, base.ErrTooLarge.
func (p *Page) Announce(ctx context.Context, b *format.Body) (*Outgoing, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	b.Device = p.o.Device
	return p.seal(b, false)
}

// seal seals a body that has the lists in their final form.
func (p *Page) seal(b *format.Body, more bool) (*Outgoing, error) {
	bases := basesOf(b)
	if number, shallow := p.at(); len(b.Commits) > 0 {
		b.Shallow = b.Shallow || shallow
		if len(bases) > 0 {
			b.Since = number
		}
	}
	sealed, err := format.SealBody(p.o.Sealer, p.o.Names, p.o.NewID(), b)
	if err != nil {
		return nil, fmt.Errorf("make log entry: %w", err)
	}
	settle := func(number uint64) *storage.SyncBatch { return p.settle(sealed, number) }
	return &Outgoing{Body: sealed, Settle: settle, Commits: len(b.Commits), Bases: bases, More: more}, nil
}

// at is Options.At.
func (p *Page) at() (number uint64, shallow bool) {
	if p.o.At == nil {
		return 0, false
	}
	return p.o.At()
}

// basesOf returns the commits outside a body from which its diffs lead.
func basesOf(b *format.Body) (ids []commit.ID) {
	within := make(map[commit.ID]bool, len(b.Commits))
	for i := range b.Commits {
		within[b.Commits[i].Commit.ID] = true
	}
	for i := range b.Commits {
		if from := b.Commits[i].Base; !from.Empty && !within[from.Commit] {
			within[from.Commit] = true
			ids = append(ids, from.Commit)
		}
	}
	return ids
}

// settle says what is true once a body counts as the entry of a number.
func (p *Page) settle(sealed *format.SealedBody, number uint64) *storage.SyncBatch {
	b := sealed.Body
	s := &storage.SyncBatch{}
	for i := range b.Commits {
		s.Synced = append(s.Synced, b.Commits[i].Commit.ID)
	}
	for i := range b.Pieces {
		q := &b.Pieces[i]
		s.Places = append(s.Places, storage.PlacedPiece{Digest: q.Digest, Place: storage.CloudPlace{
			Entry: number, Block: uint32(i), Bytes: uint32(len(q.Content)), KeyIndex: sealed.KeyIndex,
		}})
	}
	for _, t := range b.Tags {
		s.SyncedTags = append(s.SyncedTags, storage.TagChange{Name: t.Name, Commit: t.Commit, Removed: t.Removed})
	}
	if b.Lacks {
		s.Metadata = append(s.Metadata, storage.Metadata{Type: format.MetadataLacks, Value: []byte{1}})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.pending.settled(b)
	if len(rest.packs) != len(p.pending.packs) || len(rest.diffs) != len(p.pending.diffs) {
		s.Metadata = append(s.Metadata, rest.row())
	}
	return s
}
