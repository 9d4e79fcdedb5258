package ledger

import (
	"context"
	"io"

	"github.com/ledgerd/ledger/internal/session"
)

// Tx is a transaction: a base commit and changes on it. Its own reads see the changes; other
// readers see all of them at once after Commit. It is for one goroutine at a time. Changes beyond
// Options.JournalBytes, and long values at once, go to disk, so that a transaction may be of any
// size.
//
// After Commit, Rollback or the end of an Update closure all methods fail with ErrTxDone, and with
// ErrClosed after Close of the page.
type Tx struct {
	Reader
	in *session.Tx
}

func newTx(in *session.Tx) *Tx { return &Tx{Reader{in}, in} }

// Base returns the commit on which the transaction builds.
func (t *Tx) Base() Commit { return newCommit(t.in.Base()) }

// Put stores value under key with priority Eager. key is 0 to 4096 bytes. Neither is retained.
// Errors: ErrTooLarge, ErrTxDone, ErrClosed, ErrNoSpace, those of ctx; the transaction is then
// unchanged.
func (t *Tx) Put(ctx context.Context, key, value []byte) error {
	return t.in.Put(ctx, key, value, Eager)
}

// PutPriority is Put with a priority. A value short enough to be inline is always Eager. Errors: as
// Put, and ErrInvalid.
func (t *Tx) PutPriority(ctx context.Context, key, value []byte, p Priority) error {
	return t.in.Put(ctx, key, value, p)
}

// PutReader stores the bytes of r until io.EOF under key. size is their number, or -1 when unknown;
// a different number is ErrInvalid. The value is streamed. r is not closed. When PutReader fails,
// also because r failed, the transaction is unchanged. ctx does not interrupt a blocking Read of r.
// Errors: as PutPriority, and those of r.
func (t *Tx) PutReader(ctx context.Context, key []byte, r io.Reader, size int64, p Priority) error {
	return t.in.PutReader(ctx, key, r, size, p)
}

// Delete removes key. It is no error when key has no entry. Errors: as Put.
func (t *Tx) Delete(ctx context.Context, key []byte) error { return t.in.Delete(ctx, key) }

// DeleteRange removes all keys k with from <= k < to; nil means no limit on that side. Its cost
// follows the number of removed keys. With both limits nil it removes all keys at once and discards
// the changes made so far, at a cost that does not depend on their number. In a merge it removes
// only keys of the namespace, one by one. Errors: as Put, ErrCorrupt. When it fails, the
// transaction may lack some of the keys.
func (t *Tx) DeleteRange(ctx context.Context, from, to []byte) error {
	return t.in.DeleteRange(ctx, from, to)
}

// SetMessage gives the commit a message of at most 16 KiB of UTF-8. A message alone makes no
// commit. Errors: ErrTooLarge, ErrInvalid, ErrTxDone, ErrClosed.
func (t *Tx) SetMessage(message string) error { return t.in.SetMessage(message) }

// Rollback ends the transaction and discards its changes. After Commit or Rollback it does nothing
// and returns nil, so that it can be deferred. Within Update it fails with ErrInvalid: return an
// error instead.
func (t *Tx) Rollback() error { return t.in.Rollback() }

// Commit ends the transaction and makes its changes durable. It returns the id of the new commit,
// or of the base when nothing has changed. It is for transactions from Begin; within Update it
// fails with ErrInvalid. After an error the transaction has ended and nothing has changed. Only a
// disk error (ErrReadOnly until the page is reopened) leaves open whether the whole commit is
// stored or nothing. Errors: ErrConflict (with FailOnConflict), ErrTxDone, ErrClosed, ErrReadOnly,
// ErrNoSpace, ErrCorrupt, those of ctx.
func (t *Tx) Commit(ctx context.Context) (CommitID, error) { return t.in.Commit(ctx) }
