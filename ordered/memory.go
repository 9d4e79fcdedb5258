package ordered

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/tidwall/btree"

	"github.com/ledgerd/ledger/internal/base"
)

// Memory is a Writer that holds its rows in memory. Its methods fail only with base.ErrNotFound and
// the errors of ctx and of readers. It is for one goroutine at a time.
type Memory struct {
	rows *btree.BTreeG[Row]
}

var _ Writer = (*Memory)(nil)

// NewMemory returns a store without rows.
func NewMemory() *Memory {
	less := func(a, b Row) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return &Memory{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// Clone returns a store with the same rows; changes of one do not affect the other.
func (m *Memory) Clone() *Memory { return &Memory{m.rows.Copy()} }

// Len returns the number of rows.
func (m *Memory) Len() int { return m.rows.Len() }

// Get implements Reader.
func (m *Memory) Get(ctx context.Context, key []byte) ([]byte, error) {
	row, err := m.row(ctx, key)
	if err != nil {
		return nil, err
	}
	return append([]byte{}, row.Value...), nil
}

func (m *Memory) row(ctx context.Context, key []byte) (Row, error) {
	if err := ctx.Err(); err != nil {
		return Row{}, fmt.Errorf("get: %w", err)
	}
	row, ok := m.rows.Get(Row{Key: key})
	if !ok {
		return Row{}, fmt.Errorf("get: %w", base.ErrNotFound)
	}
	return row, nil
}

// Seek implements Reader.
func (m *Memory) Seek(ctx context.Context, key []byte) (found []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	err = fmt.Errorf("seek: %w", base.ErrNotFound)
	m.rows.Ascend(Row{Key: key}, func(row Row) bool {
		found, err = append([]byte{}, row.Key...), nil
		return false
	})
	return found, err
}

// Open implements Reader.
func (m *Memory) Open(ctx context.Context, key []byte) (Value, error) {
	row, err := m.row(ctx, key)
	if err != nil {
		return nil, err
	}
	return memoryValue{bytes.NewReader(row.Value)}, nil
}

type memoryValue struct{ *bytes.Reader }

func (v memoryValue) Size() int64  { return v.Reader.Size() }
func (v memoryValue) Close() error { return nil }

// Put implements Writer.
func (m *Memory) Put(ctx context.Context, key, value []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	m.rows.Set(Row{append([]byte{}, key...), append([]byte{}, value...)})
	return nil
}

// PutReader implements Writer.
func (m *Memory) PutReader(ctx context.Context, key []byte, r io.Reader, size int64) error {
	value, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if size >= 0 && int64(len(value)) != size {
		return fmt.Errorf("put %d bytes of which %d came: %w", size, len(value), base.ErrInvalid)
	}
	return m.Put(ctx, key, value)
}

// Delete implements Writer.
func (m *Memory) Delete(ctx context.Context, key []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	m.rows.Delete(Row{Key: key})
	return nil
}

// DeleteRange implements Writer.
func (m *Memory) DeleteRange(ctx context.Context, from, to []byte) error {
	it := m.Iter(Range{Start: from, End: to})
	defer it.Close()
	for it.Next(ctx) {
		m.rows.Delete(Row{Key: it.Key()})
	}
	return it.Err()
}

// Iter implements Reader.
func (m *Memory) Iter(r Range) Iter {
	return &memoryIter{rows: m.rows, r: Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End), Reverse: r.Reverse}}
}

// memoryIter seeks each row in the rest of its range, so that the rows may change meanwhile.
type memoryIter struct {
	rows *btree.BTreeG[Row]
	r    Range // the rest
	row  Row
	done bool
	err  error
}

func (it *memoryIter) Next(ctx context.Context) bool {
	if it.done {
		return false
	}
	if err := ctx.Err(); err != nil {
		it.done, it.err = true, fmt.Errorf("scan: %w", err)
		return false
	}
	it.done = true
	first := func(row Row) bool {
		beforeEnd := it.r.End == nil || bytes.Compare(row.Key, it.r.End) < 0
		if it.r.Reverse && !beforeEnd {
			return true // the bound itself
		}
		it.row, it.done = row, !beforeEnd || bytes.Compare(row.Key, it.r.Start) < 0
		return false
	}
	switch {
	case !it.r.Reverse:
		it.rows.Ascend(Row{Key: it.r.Start}, first)
		it.r.Start = append(append(it.r.Start[:0], it.row.Key...), 0)
	case it.r.End == nil:
		it.rows.Reverse(first)
		it.r.End = it.row.Key
	default:
		it.rows.Descend(Row{Key: it.r.End}, first)
		it.r.End = it.row.Key
	}
	return !it.done
}

func (it *memoryIter) Key() []byte                           { return it.row.Key }
func (it *memoryIter) Value(context.Context) ([]byte, error) { return it.row.Value, nil }
func (it *memoryIter) Size() int64                           { return int64(len(it.row.Value)) }
func (it *memoryIter) Err() error                            { return it.err }

func (it *memoryIter) Close() error {
	it.done = true
	return nil
}
