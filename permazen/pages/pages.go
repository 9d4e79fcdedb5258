package pages

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/ordered/pages"
	"github.com/ledgerd/ledger/permazen"
)

// DB is a database on a page. It is safe for concurrent use, as the page is.
type DB struct {
	page   *ledger.Page
	prefix []byte
	db     *permazen.DB
}

// Open returns the database whose keys on the page begin with prefix. It writes nothing. The page
// remains the caller's.
func Open(page *ledger.Page, prefix []byte, db *permazen.DB) *DB {
	return &DB{page, bytes.Clone(prefix), db}
}

// Reader returns the rows of a database in a snapshot or transaction.
func Reader(r ledger.Reader, prefix []byte) ordered.Reader {
	return ordered.ReaderWithin(pages.Reader(r), prefix)
}

// Writer returns the rows of a database in a transaction.
func Writer(tx *ledger.Tx, prefix []byte) ordered.Writer {
	return ordered.Within(pages.Writer(tx, ledger.Eager), prefix)
}

// Update calls f with a transaction and commits when f returns nil. It has the guarantees of
// ledger.Page.Update. Errors: those of f, of permazen.DB.Begin and of the page.
func (d *DB) Update(ctx context.Context, f func(*permazen.Tx) error) (ledger.CommitID, error) {
	return d.page.Update(ctx, func(tx *ledger.Tx) error {
		t, err := d.db.Begin(ctx, Writer(tx, d.prefix))
		if err != nil {
			return err
		}
		return f(t)
	})
}

// View calls f with a transaction that reads the handle's head. Errors: those of f, of
// permazen.DB.View and of the page.
func (d *DB) View(ctx context.Context, f func(*permazen.Tx) error) error {
	return d.page.View(ctx, func(s *ledger.Snapshot) error {
		t, err := d.At(ctx, s)
		if err != nil {
			return err
		}
		return f(t)
	})
}

// At returns a transaction that reads a snapshot and is valid until the snapshot is closed. Errors:
// those of permazen.DB.View.
func (d *DB) At(ctx context.Context, s *ledger.Snapshot) (*permazen.Tx, error) {
	t, err := d.db.View(ctx, Reader(s.Reader, d.prefix))
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", s.Commit().ID.Short(), err)
	}
	return t, nil
}
