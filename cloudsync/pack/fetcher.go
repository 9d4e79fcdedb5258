package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// defaultMemoryBytes is the default bound of a Fetcher's memory.
const defaultMemoryBytes = 8 << 20

// Store is what a Fetcher needs of a page. *storage.Store implements it.
type Store interface {
	// PieceState returns the page's state of a piece.
	PieceState(d object.Digest) (storage.PieceState, error)
	// AddFetched stores pieces that are synced and were not held. It stores none if one of them
	// does not match its digest (base.ErrCorrupt). It does not retain their content.
	AddFetched(ctx context.Context, pieces []storage.FetchedPiece) error
	// Piece returns the content of a piece that is held. The slice is shared.
	Piece(ctx context.Context, d object.Digest) ([]byte, error)
}

var _ Store = (*storage.Store)(nil)

// Fetcher fetches pieces on demand: it implements storage.Fetcher. Concurrent readers of one block
// cause one request. All pieces of a block that the page lacks are stored with the requested one.
// Pieces in log entries are read from the entries. It is safe for concurrent use.
type Fetcher struct {
	o      FetchOptions
	wg     sync.WaitGroup      // calls, and flights
	memory *semaphore.Weighted // bytes; readers that need more wait, in order
	blocks flights[blockKey, blockContent]
	caught flights[blockKey, struct{}]
	tables flights[epoch.ID, *contents]
	known  tableCache

	mu     sync.Mutex
	closed bool // guarded by mu
}

var _ storage.Fetcher = (*Fetcher)(nil)

// FetchOptions configure a Fetcher.
type FetchOptions struct {
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	Names  wire.Names
	// Epoch returns the epoch in whose directory a pack is; zero if unknown.
	Epoch func(pack epoch.ID) epoch.ID
	Store Store
	// Entries returns the pieces in an entry of the log, each with its digest. Errors name the
	// entry, and match base.ErrNotFound if there is none. nil: no piece is in an entry.
	Entries func(ctx context.Context, number uint64) (map[object.Digest][]byte, error)
	// Gone is called by Fetch when the bucket has no object at a piece's place, or the page has no
	// place of it. The worker then catches up with the log, and searches it, so that the piece may
	// get another place. Gone returns nil if looking up the place again is worthwhile. nil: it
	// never is. A Fetch with the context passed to Gone does not call Gone again, see CatchingUp,
	// and FetchAll never does.
	Gone func(ctx context.Context, d object.Digest) error
	// MemoryBytes bounds the sealed and opened blocks, entries and ranges held while they are read;
	// a single one may exceed the bound. 0: 8 MiB. Places in recently read packs are cached in
	// addition, in at most 4 MiB or those of one pack.
	MemoryBytes int64
}

// blockKey identifies the target of one request: a block of a pack, or an entry of the log.
type blockKey struct {
	pack  epoch.ID
	block uint32
	entry uint64
}

// blockContent has the verified pieces of one request. It is shared and not changed. It is nil if
// the first requested piece turned out to be held.
type blockContent map[object.Digest][]byte

// NewFetcher returns a Fetcher. Close ends it.
func NewFetcher(o FetchOptions) *Fetcher {
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = defaultMemoryBytes
	}
	f := &Fetcher{o: o, memory: semaphore.NewWeighted(o.MemoryBytes)}
	f.blocks.wg, f.caught.wg, f.tables.wg = &f.wg, &f.wg, &f.wg
	return f
}

// Close waits for fetches in flight, which end with their contexts; later ones fail with
// base.ErrClosed. It may be called more than once.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wg.Wait()
}

// enter counts a call that Close waits for. The caller calls f.wg.Done.
func (f *Fetcher) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("fetch from the bucket: %w", base.ErrClosed)
	}
	f.wg.Add(1)
	return nil
}

// Fetch implements storage.Fetcher. It returns the verified content of d, which the caller owns. It
// stores the piece in the page, with the others of its block or entry. If storing fails because the
// page is read-only or the disk is full, it still returns the content.
//
// If the bucket has nothing at place, and Gone returns nil, it looks up the place in the page and
// tries that. Errors match base.ErrNetwork, base.ErrGone, base.ErrCorrupt (a *base.CorruptError
// names the object), base.ErrClosed, fs.ErrPermission, or are those of ctx, Gone and the page.
func (f *Fetcher) Fetch(ctx context.Context, d object.Digest, place storage.CloudPlace) ([]byte, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.wg.Done()
	var content []byte
	err := error(base.ErrNotFound)
	if place != (storage.CloudPlace{}) {
		content, err = f.fetchAt(ctx, d, place)
	}
	if errors.Is(err, base.ErrNotFound) {
		content, err = f.fetchMoved(ctx, d, place, err)
	}
	if err != nil {
		return nil, tell(err) // storage names the piece
	}
	return content, nil
}

// fetchMoved fetches a piece that the bucket lacks at place, as err says. It first catches up with
// the log, once.
func (f *Fetcher) fetchMoved(ctx context.Context, d object.Digest, place storage.CloudPlace, err error) ([]byte, error) {
	gone := fmt.Errorf("%w: %w", base.ErrGone, err)
	if f.o.Gone == nil || f.CatchesUp(ctx) {
		return nil, gone
	}
	name := f.source(place).name
	_, err = f.caught.do(ctx, keyOf(place), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.o.Gone(f.CatchingUp(ctx), d)
	})
	if err != nil {
		return nil, fmt.Errorf("catch up with the log: %w", err)
	}
	state, err := f.o.Store.PieceState(d)
	if err != nil {
		return nil, err
	}
	if state.Held {
		return f.held(ctx, d)
	}
	if !state.Synced || state.Place == place && f.source(place).name == name {
		return nil, gone
	}
	content, err := f.fetchAt(ctx, d, state.Place)
	if errors.Is(err, base.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", base.ErrGone, err)
	}
	return content, err
}

// catchingUp is the context key whose value is the Fetcher for which the caller catches up.
type catchingUp struct{}

// CatchingUp returns a context for a caller that itself catches up with the log. A Fetch with it,
// or with one derived from it, neither calls Gone nor waits for Gone of another caller, which may
// wait for this one.
func (f *Fetcher) CatchingUp(ctx context.Context) context.Context {
	return context.WithValue(ctx, catchingUp{}, f)
}

// CatchesUp reports whether ctx comes from CatchingUp.
func (f *Fetcher) CatchesUp(ctx context.Context) bool { return ctx.Value(catchingUp{}) == f }

// held returns a piece that the page holds.
func (f *Fetcher) held(ctx context.Context, d object.Digest) ([]byte, error) {
	content, err := f.o.Store.Piece(ctx, d)
	return bytes.Clone(content), err
}

// keyOf returns the key of the request for a place.
func keyOf(p storage.CloudPlace) blockKey {
	if p.Entry != 0 {
		return blockKey{entry: p.Entry}
	}
	return blockKey{pack: p.Pack, block: p.Block}
}

// maxTurns bounds how often a reader joins a flight whose own piece turned out to be held.
const maxTurns = 16

// fetchAt fetches a piece from a place, together with all concurrent readers of the same block.
func (f *Fetcher) fetchAt(ctx context.Context, d object.Digest, place storage.CloudPlace) ([]byte, error) {
	for range maxTurns {
		got, err := f.blocks.do(ctx, keyOf(place), func(ctx context.Context) (blockContent, error) {
			// An earlier flight may have stored it.
			if state, err := f.o.Store.PieceState(d); err != nil || state.Held {
				return nil, err
			}
			return f.fetchBlock(ctx, place)
		})
		unstored := errors.Is(err, base.ErrReadOnly) || errors.Is(err, base.ErrNoSpace)
		if err != nil && (got == nil || !unstored) {
			return nil, err
		}
		if content, ok := got[d]; ok {
			return bytes.Clone(content), nil // a copy: not shared, and without the rest of the block
		}
		if got != nil {
			return nil, f.source(place).corrupt("piece "+d.String(), "others")
		}
		state, err := f.o.Store.PieceState(d)
		if err != nil {
			return nil, err
		}
		if state.Held {
			return f.held(ctx, d)
		}
	}
	return nil, fmt.Errorf("read a block that is stored and dropped all the time: %w", base.ErrNetwork)
}

// source returns the object that contains a place.
func (f *Fetcher) source(p storage.CloudPlace) *source {
	if p.Entry != 0 {
		return f.entrySource(p.Entry)
	}
	return f.packSource(p.Pack)
}

func (f *Fetcher) packSource(id epoch.ID) *source {
	return packSource(f.o.Bucket, f.o.Names, f.o.Epoch(id), id)
}

// fetchBlock reads and verifies all pieces of the block or log entry of a place, and stores those
// that the page lacks. It returns them although it could not store them.
func (f *Fetcher) fetchBlock(ctx context.Context, place storage.CloudPlace) (blockContent, error) {
	read := f.readPackBlock
	if place.Entry != 0 {
		read = f.readEntry
	}
	release, err := f.take(ctx, f.cost(place))
	if err != nil {
		return nil, err
	}
	defer release()
	got, err := read(ctx, place)
	if err != nil {
		return nil, f.source(place).wrap(err)
	}
	lacking := make([]storage.FetchedPiece, 0, len(got))
	for d, content := range got {
		state, err := f.o.Store.PieceState(d)
		if err != nil {
			return nil, err
		}
		if state.Synced && !state.Held {
			lacking = append(lacking, storage.FetchedPiece{Digest: d, Content: content})
		}
	}
	return got, f.store(ctx, lacking)
}

// take waits for n bytes of memory, or for all if n is more, and returns the function that releases
// them. The error is that of ctx.
func (f *Fetcher) take(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, f.o.MemoryBytes)
	if err := f.memory.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { f.memory.Release(n) }, nil
}

// cost returns the memory that reading a place takes. An entry may be long and is not read by
// range, so it takes the whole budget.
func (f *Fetcher) cost(p storage.CloudPlace) int64 {
	if p.Entry != 0 {
		return f.o.MemoryBytes
	}
	return int64(p.StoredBytes) + 2*seal.FrameBytes + max(int64(p.StoredBytes), wire.BlockBytes)
}

// readPackBlock reads and verifies the block of a place.
func (f *Fetcher) readPackBlock(ctx context.Context, p storage.CloudPlace) (blockContent, error) {
	src := f.packSource(p.Pack)
	var buf []byte
	stream, size, err := f.openPart(ctx, src, p.Pack, p.KeyIndex, p.Offset, int64(p.StoredBytes), &buf)
	if err != nil {
		return nil, err
	}
	b := seal.Block{Offset: p.Offset, StoredBytes: int(p.StoredBytes)}
	plain, err := blockAt(src, stream, b)
	if err != nil {
		return nil, err
	}
	c, err := f.contents(ctx, src, p.Pack, size)
	if err != nil {
		return nil, err
	}
	if int64(p.Block) >= int64(len(c.blocks)) || c.blocks[p.Block] != b {
		return nil, src.corrupt(fmt.Sprintf("block %d of %d bytes at %d", p.Block, p.StoredBytes, p.Offset), "a table with others")
	}
	pieces := c.in(p.Block)
	if err := verify(src, plain, pieces); err != nil {
		return nil, err
	}
	got := make(blockContent, len(pieces))
	for _, piece := range pieces {
		got[piece.Digest] = plain[piece.At : piece.At+piece.Bytes : piece.At+piece.Bytes]
	}
	return got, nil
}

// contents returns the table of a pack of size bytes. It reads the table unless it is cached.
func (f *Fetcher) contents(ctx context.Context, src *source, id epoch.ID, size int64) (*contents, error) {
	if c := f.known.get(id); c != nil {
		return c, nil
	}
	return f.tables.do(ctx, id, func(ctx context.Context) (*contents, error) {
		if c := f.known.get(id); c != nil { // read by a flight that has just ended
			return c, nil
		}
		r := &Reader{src: src, ref: wire.Pack{ID: id, Bytes: uint64(size)}}
		err := r.begin(f.o.Sealer, newFront(ctx, src, size, false))
		if err == nil {
			f.known.add(id, r.c)
		}
		return r.c, err
	})
}
