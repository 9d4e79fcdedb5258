package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// fetchWorkers is how many requests of one FetchAll are in flight at once.
	fetchWorkers = 4
	// storeBytes is the length of content, and storePieces the number of pieces, at which fetched
	// pieces are stored.
	storeBytes, storePieces = 4 << 20, 4 << 10
)

// FetchAll fetches many pieces with as few requests as it can: neighbouring blocks in one range of
// up to 4 MiB, several ranges at a time. It stores the pieces and returns how many bytes of content
// it fetched, also after an error: fetched pieces stay. It skips pieces that are held. It
// stores only the requested pieces of a block, and all of an entry. It never calls Gone.
//
// The first error ends it. Errors are as for Fetch, with two differences: storing can fail with
// base.ErrReadOnly and base.ErrNoSpace, and a piece without a place, or whose place the bucket
// lacks, gives base.ErrGone.
func (f *Fetcher) FetchAll(ctx context.Context, pieces []object.Digest) (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.wg.Done()
	inPacks, inEntries, err := f.lookUp(pieces)
	if err != nil {
		return 0, fmt.Errorf("fetch %d pieces: %w", len(pieces), err)
	}
	var came atomic.Int64
	var tasks []func(context.Context) error
	for _, s := range planSpans(inPacks) {
		tasks = append(tasks, func(ctx context.Context) error {
			return f.packSource(s.pack).located(f.fetchSpan(ctx, &s, &came))
		})
	}
	for number, wanted := range inEntries {
		tasks = append(tasks, func(ctx context.Context) error {
			return f.fetchEntry(ctx, number, wanted, &came)
		})
	}
	err = bucket.InParallel(ctx, fetchWorkers, len(tasks), func(ctx context.Context, i int) error { return tasks[i](ctx) })
	if err != nil {
		if errors.Is(err, base.ErrNotFound) {
			err = fmt.Errorf("%w: %w", base.ErrGone, err)
		}
		return came.Load(), tell(fmt.Errorf("fetch %d pieces: %w", len(pieces), err))
	}
	return came.Load(), nil
}

// lookUp returns the places of the pieces that are not held.
func (f *Fetcher) lookUp(pieces []object.Digest) (inPacks []storage.PlacedPiece, inEntries map[uint64][]object.Digest, err error) {
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, object.Digest.Compare)
	inEntries = make(map[uint64][]object.Digest)
	for _, d := range slices.Compact(pieces) {
		state, err := f.o.Store.PieceState(d)
		switch {
		case err != nil:
			return nil, nil, err
		case state.Held:
		case !state.Synced:
			return nil, nil, fmt.Errorf("piece %s has no place in the bucket: %w", d.Short(), base.ErrGone)
		case state.Place.Entry != 0:
			inEntries[state.Place.Entry] = append(inEntries[state.Place.Entry], d)
		default:
			inPacks = append(inPacks, storage.PlacedPiece{Digest: d, Place: state.Place})
		}
	}
	return inPacks, inEntries, nil
}

// fetchEntry fetches the wanted pieces of a log entry, and stores them with its others.
func (f *Fetcher) fetchEntry(ctx context.Context, number uint64, wanted []object.Digest, came *atomic.Int64) error {
	got, err := f.fetchBlock(ctx, storage.CloudPlace{Entry: number})
	if err != nil {
		return err
	}
	for _, d := range wanted {
		content, ok := got[d]
		if !ok {
			return f.entrySource(number).corrupt("piece "+d.String(), "others")
		}
		came.Add(int64(len(content)))
	}
	return nil
}

// fetchSpan fetches the wanted pieces of a span, block by block, and stores them in bounded
// batches.
func (f *Fetcher) fetchSpan(ctx context.Context, s *span, came *atomic.Int64) (err error) {
	src := f.packSource(s.pack)
	release, err := f.take(ctx, s.size+min(s.bytes, storeBytes)+2*seal.FrameBytes)
	if err != nil {
		return err
	}
	defer release()
	defer func() { err = src.wrap(err) }()
	buf := wholePool.Get().(*[]byte)
	defer wholePool.Put(buf) // storing does not retain content
	stream, _, err := f.openPart(ctx, src, s.pack, s.blocks[0].place.KeyIndex, s.off, s.size, buf)
	if err != nil {
		return err
	}
	b := batch{f: f, came: came}
	for i := range s.blocks {
		if err := f.openWanted(src, &s.blocks[i], stream, &b); err != nil {
			return err
		}
		if b.bytes >= storeBytes || len(b.pieces) >= storePieces {
			if err := b.store(ctx); err != nil {
				return err
			}
		}
	}
	return b.store(ctx)
}

// openPart opens the blocks of a pack that fill n bytes of its stream from off on, with one
// request, into buf. It also returns the length of the pack.
func (f *Fetcher) openPart(ctx context.Context, src *source, pack epoch.ID, keyIndex uint32, off, n int64, buf *[]byte) (*seal.Stream, int64, error) {
	if off < 0 || n < 1 || n > maxSpanBytes || off > wire.MaxPackBytes {
		return nil, 0, src.corrupt("a block", fmt.Sprintf("a place of %d bytes at %d", n, off))
	}
	first, at, length := seal.Cover(off, n)
	sealed, size, err := src.read(ctx, at, length, wire.MaxPackBytes, *buf)
	if err != nil {
		return nil, 0, err
	}
	*buf = sealed
	ref := seal.Ref{ID: seal.ID(pack), KeyIndex: keyIndex}
	stream, err := f.o.Sealer.NewPart(bytes.NewReader(sealed), size, src.label, ref, first, off, n)
	return stream, size, err
}

// openWanted opens a block and adds its wanted pieces to a batch. The store of the batch verifies
// the digests of many pieces at once (I1, I2).
func (f *Fetcher) openWanted(src *source, w *wantedBlock, stream *seal.Stream, b *batch) error {
	plain, err := blockAt(src, stream, w.block())
	if err != nil {
		return err
	}
	plain = bytes.Clone(plain)
	for i := range w.pieces {
		p := &w.pieces[i]
		end := uint64(p.Place.At) + uint64(p.Place.Bytes)
		if end > uint64(len(plain)) {
			return src.corrupt(fmt.Sprintf("a block of %d bytes", end), fmt.Sprint(len(plain)))
		}
		b.pieces = append(b.pieces, storage.FetchedPiece{Digest: p.Digest, Content: plain[p.Place.At:end:end]})
		b.bytes += int64(p.Place.Bytes)
	}
	return nil
}

// batch collects pieces that are stored together.
type batch struct {
	f      *Fetcher
	came   *atomic.Int64 // bytes stored
	pieces []storage.FetchedPiece
	bytes  int64
}

// store stores the collected pieces.
func (b *batch) store(ctx context.Context) error {
	if err := b.f.store(ctx, b.pieces); err != nil {
		return err
	}
	b.came.Add(b.bytes)
	b.pieces, b.bytes = nil, 0
	return nil
}

// store stores pieces in batches of the size that storage accepts.
func (f *Fetcher) store(ctx context.Context, pieces []storage.FetchedPiece) error {
	for some := range slices.Chunk(pieces, storePieces) {
		if err := f.o.Store.AddFetched(ctx, some); err != nil {
			return fmt.Errorf("store fetched pieces: %w", err)
		}
	}
	return nil
}
