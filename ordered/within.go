package ordered

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// ReaderWithin returns the rows of r whose keys begin with prefix, without it.
func ReaderWithin(r Reader, prefix []byte) Reader { return readerWithin{r, bytes.Clone(prefix)} }

// Within returns the rows of w whose keys begin with prefix, without it, to be read and written.
func Within(w Writer, prefix []byte) Writer {
	prefix = bytes.Clone(prefix)
	return writerWithin{readerWithin{w, prefix}, w}
}

type readerWithin struct {
	from   Reader
	prefix []byte
}

func (r readerWithin) key(k []byte) []byte {
	return append(append(make([]byte, 0, len(r.prefix)+len(k)), r.prefix...), k...)
}

// end returns the end bound k of a range with the prefix added.
func (r readerWithin) end(k []byte) []byte {
	if k == nil {
		return PrefixEnd(r.prefix)
	}
	return r.key(k)
}

func (r readerWithin) Get(ctx context.Context, key []byte) ([]byte, error) {
	return r.from.Get(ctx, r.key(key))
}

func (r readerWithin) Open(ctx context.Context, key []byte) (Value, error) {
	return r.from.Open(ctx, r.key(key))
}

func (r readerWithin) Seek(ctx context.Context, key []byte) ([]byte, error) {
	found, err := r.from.Seek(ctx, r.key(key))
	if err != nil {
		return nil, err
	}
	found, ok := bytes.CutPrefix(found, r.prefix)
	if !ok {
		return nil, fmt.Errorf("seek: %w", base.ErrNotFound)
	}
	return found, nil
}

func (r readerWithin) Iter(rg Range) Iter {
	rg.Start, rg.End = r.key(rg.Start), r.end(rg.End)
	return iterWithin{r.from.Iter(rg), len(r.prefix)}
}

type iterWithin struct {
	Iter
	prefix int
}

func (it iterWithin) Key() []byte { return it.Iter.Key()[it.prefix:] }

type writerWithin struct {
	readerWithin
	to Writer
}

func (w writerWithin) Put(ctx context.Context, key, value []byte) error {
	return w.to.Put(ctx, w.key(key), value)
}

func (w writerWithin) PutReader(ctx context.Context, key []byte, r io.Reader, size int64) error {
	return w.to.PutReader(ctx, w.key(key), r, size)
}

func (w writerWithin) Delete(ctx context.Context, key []byte) error {
	return w.to.Delete(ctx, w.key(key))
}

func (w writerWithin) DeleteRange(ctx context.Context, from, to []byte) error {
	return w.to.DeleteRange(ctx, w.key(from), w.end(to))
}
