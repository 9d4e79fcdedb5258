package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage/index"
)

// usageDB remembers when pages were closed, and names. It is no truth: when it is lost, so are the names of pages until these
// are opened by name again. It is safe for concurrent use.
type usageDB struct {
	db       *pageusage.DB
	readOnly bool
}

// openUsage opens the database in dir, a directory of the machine; "" means memory. fresh reports that nothing was known before,
// so that the pages that exist must be told with reconcile.
func openUsage(dir string, readOnly bool, now time.Time, log *slog.Logger) (u *usageDB, fresh bool, err error) {
	if dir == "" {
		db, _, err := pageusage.New(index.NewMemory(), now)
		if err != nil {
			return nil, false, err
		}
		return &usageDB{db: db}, false, nil
	}
	db, rec, err := pageusage.Open(dir, pageusage.Options{Now: now, ReadOnly: readOnly})
	if err != nil {
		return nil, false, err
	}
	if rec.Damage != nil {
		log.Warn("page usage is damaged and is begun anew", "error", rec.Damage, "savedAs", rec.SavedAs)
	}
	return &usageDB{db: db, readOnly: readOnly}, (rec.Damage != nil || rec.Created) && !readOnly, nil
}

// reconcile makes exactly the pages known that exist.
func (u *usageDB) reconcile(exist []pageKey, now time.Time) error {
	pages := make([]pageusage.Page, len(exist))
	for i, k := range exist {
		pages[i] = pageusage.Page{Ledger: k.ledger, ID: k.id}
	}
	_, _, err := u.db.Reconcile(pages, now)
	return err
}

// opened records that a page is being opened, and its name unless that is "".
func (u *usageDB) opened(ledger string, id PageID, name string) error {
	if u.readOnly {
		return nil
	}
	if err := u.db.SetLedgerName(ledgerDirName(ledger), ledger); err != nil {
		return err
	}
	p := pageusage.Page{Ledger: ledger, ID: id}
	if name != "" {
		if err := u.db.SetPageName(p, name); err != nil {
			return err
		}
	}
	return u.db.MarkOpened(p)
}

// closed records that a page has been closed.
func (u *usageDB) closed(ledger string, id PageID, at time.Time) error {
	if u.readOnly {
		return nil
	}
	return u.db.MarkClosed(pageusage.Page{Ledger: ledger, ID: id}, at)
}

// page returns what is known of a page; name is "" and lastClosed zero where nothing is.
func (u *usageDB) page(ledger string, id PageID) (name string, lastClosed time.Time, err error) {
	p := pageusage.Page{Ledger: ledger, ID: id}
	name, err = u.db.PageName(p)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", time.Time{}, fmt.Errorf("read page usage: %w", err)
	}
	usage, err := u.db.Get(p)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", time.Time{}, fmt.Errorf("read page usage: %w", err)
	}
	return name, usage.Closed, nil
}

func (u *usageDB) close() error { return u.db.Close() }
