package pages

import (
	"context"
	"fmt"
	"io"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/ordered/pages"
)

// Rows returns the rows of a page, for idb.New. A writing transaction is one commit; it waits for
// the end of the previous one. When another handle of the page or sync has committed since Begin,
// Commit fails with ledger.ErrConflict, and the next transaction has precedence. So a program makes
// one Rows for a page. Content of blobs is stored with the priority blobs, all else with
// ledger.Eager. The page stays the caller's.
//
// For old versions of a page, use idb.Snapshot and Reader.
func Rows(page *ledger.Page, blobs ledger.Priority) idb.Rows {
	return &rows{page, blobs, make(chan struct{}, 1)}
}

// Reader returns the rows in a snapshot or transaction.
func Reader(r ledger.Reader) ordered.Reader { return pages.Reader(r) }

type rows struct {
	page  *ledger.Page
	blobs ledger.Priority
	turn  chan struct{}
}

// View implements idb.Rows.
func (r *rows) View(ctx context.Context) (ordered.Reader, func() error, error) {
	s, err := r.page.Snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	return pages.Reader(s.Reader), s.Close, nil
}

// Begin implements idb.Rows.
func (r *rows) Begin(ctx context.Context) (idb.RowsTx, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another transaction: %w", ctx.Err())
	}
	tx, err := r.page.Begin(ctx, &ledger.TxOptions{FailOnConflict: true})
	if err != nil {
		<-r.turn
		return nil, err
	}
	return &rowsTx{pages.Writer(tx, ledger.Eager), pages.Writer(tx, r.blobs), tx, r}, nil
}

type rowsTx struct {
	ordered.Writer
	blobs ordered.Writer
	tx    *ledger.Tx
	of    *rows
}

// PutReader implements ordered.Writer. Only the content of blobs is stored in this way.
func (t *rowsTx) PutReader(ctx context.Context, key []byte, r io.Reader, size int64) error {
	return t.blobs.PutReader(ctx, key, r, size)
}

// Commit implements idb.RowsTx.
func (t *rowsTx) Commit(ctx context.Context) error {
	defer func() { <-t.of.turn }()
	_, err := t.tx.Commit(ctx)
	return err
}

// Rollback implements idb.RowsTx.
func (t *rowsTx) Rollback() error {
	defer func() { <-t.of.turn }()
	return t.tx.Rollback()
}
