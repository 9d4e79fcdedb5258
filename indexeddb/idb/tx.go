package idb

import (
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

type reader = ordered.Reader

// Tx is a transaction. A Tx and the objects that it returns are for one goroutine at a time.
//
// Some requests fail for reasons in the database: ErrConstraint of Put or Add, ErrUnknown,
// ErrQuotaExceeded. The next request and Commit then abort the transaction, unless the caller calls
// PreventDefault before. Other errors are mistakes of the caller, and leave the transaction as it
// is.
type Tx struct {
	db      *DB
	mode    Mode
	r       reader
	w       RowsTx       // nil when mode is ReadOnly
	end     func() error // ends a view
	schema  *indexeddb.Schema
	meta    *indexeddb.Database
	stores  []*ObjectStore
	before  *indexeddb.Database // the metadata at the beginning of an upgrade
	counts  bool                // the counters of the database have changed
	state   state
	failure error // the unprevented error of a request
	broken  bool  // a request failed after a partial change
	err     error // the reason of an abort
	refused bool  // another writer had committed
}

type state uint8

const (
	active state = iota
	committed
	aborted
)

// newTx returns a transaction on the named object stores, or on all in an upgrade.
func newTx(db *DB, mode Mode, schema *indexeddb.Schema, r reader, w RowsTx, end func() error, names ...string) *Tx {
	tx := &Tx{db: db, mode: mode, r: r, w: w, end: end, schema: schema, meta: schema.Databases[0]}
	for _, s := range tx.meta.Stores {
		if mode == VersionChange || slices.Contains(names, s.Name) {
			tx.stores = append(tx.stores, newObjectStore(tx, s))
		}
	}
	if mode == VersionChange {
		tx.before = cloneMeta(tx.meta)
	}
	return tx
}

// cloneMeta copies the names and lists in the metadata of a database.
func cloneMeta(d *indexeddb.Database) *indexeddb.Database {
	out := *d
	out.Stores = nil
	for _, s := range d.Stores {
		store := *s
		store.Indexes = nil
		for _, x := range s.Indexes {
			index := *x
			store.Indexes = append(store.Indexes, &index)
		}
		out.Stores = append(out.Stores, &store)
	}
	return &out
}

// DB returns the connection.
func (tx *Tx) DB() *DB { return tx.db }

// Mode returns the mode.
func (tx *Tx) Mode() Mode { return tx.mode }

// Err returns the reason of an abort. It is nil without an abort, and after Abort without a failed
// request.
func (tx *Tx) Err() error { return tx.err }

// ObjectStoreNames returns the names of the object stores of the transaction, sorted.
func (tx *Tx) ObjectStoreNames() []string {
	names := []string{}
	for _, s := range tx.stores {
		if !s.deleted {
			names = append(names, s.meta.Name)
		}
	}
	sortNames(names)
	return names
}

// ObjectStore returns an object store of the transaction, always the same object. Errors:
// ErrNotFound, ErrInvalidState when the transaction has ended.
func (tx *Tx) ObjectStore(name string) (*ObjectStore, error) {
	const op = "get an object store"
	if tx.state != active {
		return nil, newError(ErrInvalidState, op, "the transaction is over")
	}
	if s := tx.named(name); s != nil {
		return s, nil
	}
	return nil, newError(ErrNotFound, op, "the transaction has no object store %.100q", name)
}

func (tx *Tx) named(name string) *ObjectStore {
	for _, s := range tx.stores {
		if !s.deleted && s.meta.Name == name {
			return s
		}
	}
	return nil
}

// PreventDefault clears the error of a failed request, so that it does not abort the transaction.
// It has no effect without such an error, or when the request had changed rows in part.
func (tx *Tx) PreventDefault() {
	if !tx.broken {
		tx.failure = nil
	}
}

// enter begins a request. Errors: ErrTransactionInactive, ErrAbort.
func (tx *Tx) enter(op string) error {
	switch {
	case tx.state == aborted && tx.err != nil:
		return newError(ErrTransactionInactive, op, "the transaction was aborted: %w", tx.err)
	case tx.state != active:
		return newError(ErrTransactionInactive, op, "the transaction is over")
	case tx.failure != nil:
		return errors.Join(newError(ErrAbort, op, "a request has failed: %w", tx.failure), tx.abort(tx.failure))
	}
	return nil
}

// fail records the error of a request, and returns it as an Error. broken is set when the request
// has changed something.
func (tx *Tx) fail(op string, err error, broken bool) error {
	err = failed(op, err)
	if tx.failure == nil {
		tx.failure = err
	}
	tx.broken = tx.broken || broken
	return err
}

// failRead records the error of a request that reads, if err is not nil.
func (tx *Tx) failRead(op string, err error) error {
	if err == nil {
		return nil
	}
	return tx.fail(op, err, false)
}

// Commit ends the transaction. When it returns nil, the changes are visible and durable; else
// nothing has changed. Errors: ErrAbort when a request failed without PreventDefault, or when
// another writer has committed since Begin (base.ErrConflict: the caller may try again);
// ErrInvalidState when the transaction has ended, ErrUnknown, ErrQuotaExceeded.
func (tx *Tx) Commit(ctx context.Context) error {
	const op = "commit"
	if tx.state != active {
		return newError(ErrInvalidState, op, "the transaction is over")
	}
	if err := tx.enter(op); err != nil {
		return err
	}
	if tx.w == nil {
		tx.state = committed
		return failed(op, tx.end())
	}
	if err := tx.writeMeta(ctx); err != nil {
		return errors.Join(failed(op, err), tx.abort(err))
	}
	err := tx.w.Commit(ctx)
	if err == nil {
		tx.state = committed
		return nil
	}
	if tx.refused = errors.Is(err, base.ErrConflict); tx.refused {
		err = newError(ErrAbort, op, "%w", err)
	}
	tx.over(failed(op, err))
	return tx.err
}

// Abort ends the transaction and discards its changes. Errors: ErrInvalidState when the transaction
// has ended, ErrUnknown.
func (tx *Tx) Abort() error {
	if tx.state != active {
		return newError(ErrInvalidState, "abort", "the transaction is over")
	}
	err := tx.failure
	if err != nil {
		err = newError(ErrAbort, "abort", "a request has failed: %w", err)
	}
	return tx.abort(err)
}

// abort ends the transaction for the reason why, which may be nil. It returns errors of the
// rollback.
func (tx *Tx) abort(why error) error {
	tx.over(why)
	if tx.w != nil {
		return failed("abort", tx.w.Rollback())
	}
	return failed("abort", tx.end())
}

// over marks the transaction as aborted, and restores the metadata that an upgrade has changed.
func (tx *Tx) over(why error) {
	tx.state, tx.err = aborted, why
	if tx.before == nil {
		return
	}
	for _, s := range tx.stores {
		s.revert(tx.before.Store(s.meta.ID))
	}
}

// writeMeta writes the changed metadata.
func (tx *Tx) writeMeta(ctx context.Context) error {
	if tx.mode == VersionChange {
		prefix := indexeddb.PageFamily(indexeddb.Row{Kind: indexeddb.KindDatabase, Database: tx.meta.ID})
		if err := tx.w.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix)); err != nil {
			return err
		}
		for row, value := range tx.schema.Rows() {
			if err := tx.putRow(ctx, row, value); err != nil {
				return err
			}
		}
		return nil
	}
	if tx.counts {
		row := indexeddb.Row{Kind: indexeddb.KindDatabase, Database: tx.meta.ID, Property: indexeddb.DatabaseBlobNumber}
		if err := tx.putRow(ctx, row, indexeddb.AppendVarInt(nil, tx.meta.NextBlob)); err != nil {
			return err
		}
	}
	written := false
	for _, s := range tx.stores {
		if !s.counts {
			continue
		}
		written = true
		row := indexeddb.Row{Kind: indexeddb.KindStore, Database: tx.meta.ID, Store: s.meta.ID, Property: indexeddb.StoreLastVersion}
		if err := tx.putRow(ctx, row, indexeddb.AppendInt(nil, s.meta.LastVersion)); err != nil {
			return err
		}
		row.Property = indexeddb.StoreKeyGenerator
		if err := tx.putRow(ctx, row, indexeddb.AppendInt(nil, s.meta.KeyGenerator)); err != nil {
			return err
		}
	}
	if old := tx.schema.DataVersion; written {
		if create(tx.schema, "", ""); old != tx.schema.DataVersion { // values written here are newer than those of a profile
			row := indexeddb.Row{Kind: indexeddb.KindGlobal, Property: indexeddb.GlobalDataVersion}
			return tx.putRow(ctx, row, indexeddb.AppendInt(nil, tx.schema.DataVersion))
		}
	}
	return nil
}

func (tx *Tx) putRow(ctx context.Context, r indexeddb.Row, value []byte) error {
	key, pageValue := indexeddb.PageRow(r, value)
	return tx.w.Put(ctx, key, pageValue)
}
