package pages

import (
	"context"
	"errors"
	"io"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ordered"
)

// Reader returns r as an ordered.Reader. It is safe for concurrent use when r is.
func Reader(r ledger.Reader) ordered.Reader { return reader{r} }

// Writer returns tx as an ordered.Writer, for one goroutine at a time. Values are stored with
// priority p; short, inline values always with ledger.Eager. Keys have at most 4096 bytes.
func Writer(tx *ledger.Tx, p ledger.Priority) ordered.Writer { return writer{reader{tx.Reader}, tx, p} }

type reader struct{ from ledger.Reader }

func (r reader) Get(ctx context.Context, key []byte) ([]byte, error) { return r.from.Get(ctx, key) }

func (r reader) Open(ctx context.Context, key []byte) (ordered.Value, error) {
	return r.from.Open(ctx, key)
}

func (r reader) Seek(ctx context.Context, key []byte) ([]byte, error) { return r.from.Seek(ctx, key) }

func (r reader) Iter(rg ordered.Range) ordered.Iter {
	it := r.from.Iter(ledger.ScanOptions{Start: rg.Start, End: rg.End, Reverse: rg.Reverse, KeysOnly: rg.KeysOnly})
	return iterator{it}
}

type iterator struct{ *ledger.Iter }

func (it iterator) Value(ctx context.Context) ([]byte, error) {
	if v, ok := it.InlineValue(); ok {
		return v, nil
	}
	return it.Iter.Value(ctx)
}

// Close does nothing: an iterator of a page holds nothing.
func (iterator) Close() error { return nil }

type writer struct {
	reader
	tx       *ledger.Tx
	priority ledger.Priority
}

func (w writer) Put(ctx context.Context, key, value []byte) error {
	return w.tx.PutPriority(ctx, key, value, w.priority)
}

func (w writer) PutReader(ctx context.Context, key []byte, r io.Reader, size int64) error {
	return w.tx.PutReader(ctx, key, r, size, w.priority)
}

// Delete implements ordered.Writer. A page has no key that is too long.
func (w writer) Delete(ctx context.Context, key []byte) error {
	if err := w.tx.Delete(ctx, key); !errors.Is(err, ledger.ErrTooLarge) {
		return err
	}
	return nil
}

func (w writer) DeleteRange(ctx context.Context, from, to []byte) error {
	return w.tx.DeleteRange(ctx, from, to)
}
