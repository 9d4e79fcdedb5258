package session

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// The values that are fetched together: at most so many, and so many bytes.
const (
	prefetchValues = 1024
	prefetchBytes  = 16 << 20
)

// PrefetchResult counts what a Prefetch downloaded.
type PrefetchResult struct {
	// Values is the number of values examined, without inline ones.
	Values int64
	// Pieces and Bytes were downloaded from the cloud.
	Pieces, Bytes int64
}

// Prefetch downloads all values below a prefix. Adjacent pieces in the bucket take one request.
// After an error the downloaded values stay. progress, when not nil, is called with the result so
// far; it must not block. Errors: those of Env.FetchPieces and of an Iter.
func (s *Snapshot) Prefetch(ctx context.Context, prefix []byte, progress func(PrefetchResult)) (PrefetchResult, error) {
	f := &prefetcher{Pieces: Pieces{s.page}, page: s.page, progress: progress}
	it := s.Iter(ScanOptions{Prefix: prefix})
	err := error(nil)
	for err == nil && it.Next(ctx) {
		if e := it.Current(); !e.Inline {
			err = f.value(ctx, e.Digest, e.Size)
		}
	}
	if err = cmp.Or(err, it.Err()); err == nil {
		err = f.flush(ctx)
	}
	if err != nil {
		return f.result, fmt.Errorf("prefetch: %w", err)
	}
	return f.result, nil
}

// prefetcher collects values and fetches their missing pieces together. It is a split.Far.
type prefetcher struct {
	Pieces
	page     *Page
	progress func(PrefetchResult)
	result   PrefetchResult
	parts    []split.Part
	bytes    uint64 // of the parts
}

func (f *prefetcher) value(ctx context.Context, root object.Digest, size uint64) error {
	f.result.Values++
	for at, more := uint64(0), true; more; more = at < size {
		to := min(size, at+prefetchBytes-f.bytes)
		f.parts, f.bytes = append(f.parts, split.Part{Root: root, Size: size, From: at, To: to}), f.bytes+to-at
		if at = to; f.bytes == prefetchBytes || len(f.parts) == prefetchValues {
			if err := f.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush fetches the missing pieces of the collected values.
func (f *prefetcher) flush(ctx context.Context) error {
	err := split.Bring(ctx, f, f.parts...)
	f.parts, f.bytes = f.parts[:0], 0
	return err
}

// Bring implements split.Far: it fetches the pieces that this device does not store.
func (f *prefetcher) Bring(ctx context.Context, ds []object.Digest) error {
	var missing []object.Digest
	err := f.page.Call(ctx, func(ctx context.Context) error {
		for _, d := range ds {
			st, err := f.page.env.Store.PieceState(d)
			if err != nil {
				return err
			}
			if !st.Held {
				missing = append(missing, d)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		n, err := f.page.env.FetchPieces(ctx, missing)
		f.result.Bytes += n
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	f.result.Pieces += int64(len(missing))
	if f.progress != nil {
		f.progress(f.result)
	}
	return nil
}
