package session

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Put stores value under key with a priority. A value short enough to be inline is always Eager.
// key is 0 to 4096 bytes. Neither is retained. After an error the transaction is unchanged. Errors:
// base.ErrTooLarge, base.ErrInvalid, base.ErrTxDone, base.ErrClosed, base.ErrNoSpace, those of ctx.
func (t *Tx) Put(ctx context.Context, key, value []byte, p object.Priority) error {
	if err := t.enterPut(ctx, key, p); err != nil {
		return err
	}
	defer t.leave()
	if len(value) <= btree.InlineLimit {
		return t.change(ctx, &btree.Change{Entry: fb.Entry{Key: key, Value: value, Inline: true}})
	}
	e, err := btree.PutValue(ctx, t.sink, t.page.env.Table(), value, p)
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return t.Record(ctx, key, &e, true)
}

// enterPut begins a change that must then leave.
func (t *Tx) enterPut(ctx context.Context, key []byte, p object.Priority) error {
	if err := ValidateKey(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if p > object.Lazy {
		return fmt.Errorf("put: %s: %w", p, base.ErrInvalid)
	}
	if err := t.enter(); err != nil {
		return err
	}
	err := ctx.Err()
	if err == nil && !t.holds(key) {
		err = fmt.Errorf("the key is outside of the namespace that is merged: %w", base.ErrInvalid)
	}
	if err != nil {
		t.leave()
		return fmt.Errorf("put: %w", err)
	}
	return nil
}

// PutReader stores the bytes of r until io.EOF under key. size is their number, or -1 when unknown;
// a different number is ErrInvalid. The value is streamed. r is not closed. When PutReader fails,
// also because r failed, the transaction is unchanged. ctx does not interrupt a blocking Read of r.
// Errors: as PutPriority, and those of r.
func (t *Tx) PutReader(ctx context.Context, key []byte, r io.Reader, size int64, p object.Priority) error {
	if r == nil {
		return fmt.Errorf("put reader: there is none: %w", base.ErrInvalid)
	}
	if size < -1 {
		return fmt.Errorf("put reader of %d bytes: %w", size, base.ErrInvalid)
	}
	if err := t.enterPut(ctx, key, p); err != nil {
		return err
	}
	defer t.leave()
	call := t.page.gate.Call(ctx)
	defer call.Release()
	e, err := btree.PutReader(call, t.sink, t.page.env.Table(), NewSizedReader(r, size), p)
	if err != nil {
		return call.Explain(fmt.Errorf("put: %w", err))
	}
	return call.Explain(t.Record(call, key, &e, true))
}

// SizedReader fails if r does not have the declared length; -1 allows any length.
type SizedReader struct {
	r    io.Reader
	left int64 // -1: no length was declared
	want int64
}

// NewSizedReader returns a reader of r that expects size bytes; -1 allows any number.
func NewSizedReader(r io.Reader, size int64) *SizedReader {
	return &SizedReader{r: r, left: size, want: size}
}

// Read implements io.Reader.
func (s *SizedReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if n < 0 || n > len(b) {
		return 0, fmt.Errorf("reader says that it read %d bytes into %d: %w", n, len(b), base.ErrInvalid)
	}
	if s.left < 0 {
		return n, err
	}
	if int64(n) > s.left {
		return 0, fmt.Errorf("reader gives more than the declared %d bytes: %w", s.want, base.ErrInvalid)
	}
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 {
		return n, fmt.Errorf("reader ends after %d of the declared %d bytes: %w", s.want-s.left, s.want, base.ErrInvalid)
	}
	return n, err
}

// Delete removes key. It is no error when key has no entry. Errors: as Put.
func (t *Tx) Delete(ctx context.Context, key []byte) error {
	if err := t.enterPut(ctx, key, object.Eager); err != nil {
		return err
	}
	defer t.leave()
	return t.delete(ctx, key)
}

// delete records a deletion.
func (t *Tx) delete(ctx context.Context, key []byte) error {
	return t.change(ctx, &btree.Change{Delete: true, Entry: fb.Entry{Key: key}})
}

// deleteBatch is how many keys DeleteRange collects before it deletes them.
const deleteBatch = 512

// DeleteRange removes all keys k with from <= k < to; nil means no limit on that side. Its cost
// follows the number of removed keys; with both limits nil it removes all keys at once and discards
// the changes made so far, and its cost does not depend on their number. In a merge it removes only
// keys of the namespace, one by one. Errors: as Put, ErrCorrupt. When it fails, the transaction may
// lack some of the keys.
func (t *Tx) DeleteRange(ctx context.Context, from, to []byte) error {
	o := ScanOptions{Start: from, End: to, KeysOnly: true, Limit: deleteBatch}
	switch {
	case t.within != nil:
		o.Prefix = t.within.Prefix
	case from == nil && to == nil:
		return t.clear(ctx)
	}
	for {
		it := t.Iter(o)
		var keys [][]byte
		for it.Next(ctx) {
			keys = append(keys, bytes.Clone(it.Key()))
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("delete range: %w", err)
		}
		if err := t.deleteAll(ctx, keys); err != nil {
			return fmt.Errorf("delete range: %w", err)
		}
		if len(keys) < deleteBatch {
			return nil
		}
		o.Start = append(keys[len(keys)-1], 0) // the first key after the batch
	}
}

func (t *Tx) deleteAll(ctx context.Context, keys [][]byte) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	for _, k := range keys {
		if !t.holds(k) {
			continue
		}
		if err := t.delete(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// clear removes all keys at once.
func (t *Tx) clear(ctx context.Context) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	// The sink stays: its pieces go to the log with the commit and are collected later. A new sink
	// could not detect that a disk failure has rolled the base back meanwhile.
	t.journal.Clear()
	t.root, t.moved = btree.EmptyRoot, 0
	return nil
}

// SetMessage gives the commit a message of at most 16 KiB of UTF-8. A message alone makes no
// commit. Errors: ErrTooLarge, ErrInvalid, ErrTxDone, ErrClosed.
func (t *Tx) SetMessage(message string) error {
	if t.within != nil {
		return fmt.Errorf("set the message of a merge: %w", base.ErrInvalid)
	}
	if err := ValidateMessage(message); err != nil {
		return err
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	t.message = message
	return nil
}
