package session

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// fetchWindow is how many pieces are requested at once: enough for ranges over many blocks, few
// enough to hold their names in memory.
const fetchWindow = 1024

// expandWindow is how many index pieces are opened at once.
const expandWindow = 64

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
	f := &prefetcher{page: s.page, progress: progress}
	it := s.Iter(ScanOptions{Prefix: prefix})
	defer it.Close()
	err := error(nil)
	for err == nil && it.Next(ctx) {
		if e := it.Current(); !e.Inline {
			err = f.value(ctx, e.Digest)
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

// prefetcher collects values with missing pieces and fetches them together, level by level.
type prefetcher struct {
	page     *Page
	progress func(PrefetchResult)
	result   PrefetchResult
	roots    []object.Digest
}

func (f *prefetcher) value(ctx context.Context, root object.Digest) error {
	f.result.Values++
	f.roots = append(f.roots, root)
	if len(f.roots) < fetchWindow {
		return nil
	}
	return f.flush(ctx)
}

// flush fetches the missing pieces of the collected values. It opens index pieces depth first, in
// bounded parts, so that memory does not follow the size of a value.
func (f *prefetcher) flush(ctx context.Context) error {
	roots := f.roots
	f.roots = f.roots[:0]
	stack := [][]object.Digest{roots}
	for len(stack) > 0 {
		top := len(stack) - 1
		part := fetchPart(stack[top])
		if stack[top] = stack[top][len(part):]; len(stack[top]) == 0 {
			stack = stack[:top]
		}
		if err := f.fetch(ctx, part); err != nil {
			return err
		}
		children, err := f.children(ctx, part)
		if err != nil {
			return err
		}
		if len(children) > 0 {
			stack = append(stack, children)
		}
	}
	return nil
}

// fetchPart returns the beginning of a list: at most fetchWindow pieces, of which few are index
// pieces.
func fetchPart(list []object.Digest) []object.Digest {
	indexes := 0
	for i, d := range list[:min(fetchWindow, len(list))] {
		if d.Kind().IsIndex() {
			if indexes++; indexes > expandWindow {
				return list[:i]
			}
		}
	}
	return list[:min(fetchWindow, len(list))]
}

// fetch fetches the pieces that this device does not store.
func (f *prefetcher) fetch(ctx context.Context, part []object.Digest) error {
	var missing []object.Digest
	err := f.page.Call(ctx, func(ctx context.Context) error {
		for _, d := range part {
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

// children returns the pieces listed by index pieces, which this device stores.
func (f *prefetcher) children(ctx context.Context, part []object.Digest) ([]object.Digest, error) {
	var all []object.Digest
	for _, d := range part {
		if !d.Kind().IsIndex() {
			continue
		}
		content, err := Pieces{f.page}.Piece(ctx, d)
		if err != nil {
			return nil, err
		}
		cs, err := split.Children(d, content)
		if err != nil {
			return nil, err
		}
		all = append(all, cs...)
	}
	return all, nil
}
