package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage/index"
)

// usageDB remembers when pages were closed, and names. It is no truth: when it is lost, so are the
// names of pages until these are opened by name again. It is safe for concurrent use.
type usageDB struct {
	db       *pageusage.DB
	readOnly bool
}

// openUsage opens the database in dir, a directory of the machine; "" means memory. fresh reports
// that nothing was known before, so that the pages that exist must be told with reconcile.
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
		pages[i] = pageusage.Page{Ledger: k.Ledger, ID: k.ID}
	}
	_, _, err := u.db.Reconcile(pages, now)
	return err
}

// named records the name of a page, unless that is "".
func (u *usageDB) named(ledger string, id PageID, name string) error {
	if u.readOnly || name == "" {
		return nil
	}
	return u.db.SetPageName(pageusage.Page{Ledger: ledger, ID: id}, name)
}

// opened records that a page is open.
func (u *usageDB) opened(ledger string, id PageID) error {
	if u.readOnly {
		return nil
	}
	return u.db.MarkOpened(pageusage.Page{Ledger: ledger, ID: id})
}

// noteSize records what a page takes on disk.
func (u *usageDB) noteSize(ledger string, id PageID, sizeBytes int64) error {
	if u.readOnly {
		return nil
	}
	return u.db.NoteSize(pageusage.Page{Ledger: ledger, ID: id}, sizeBytes)
}

// size returns what was recorded last, 0 when nothing was.
func (u *usageDB) size(ledger string, id PageID) (int64, error) {
	usage, err := u.db.Get(pageusage.Page{Ledger: ledger, ID: id})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("read page usage: %w", err)
	}
	return usage.SizeBytes, nil
}

// removed forgets the use of a page that is here no more, and with forget its name.
func (u *usageDB) removed(ledger string, id PageID, forget bool) error {
	p := pageusage.Page{Ledger: ledger, ID: id}
	if forget {
		return u.db.Forget(p)
	}
	return u.db.Remove(p)
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

// pageText names a page for people, with its human name when that is known.
func (r *Repository) pageText(ref PageRef) string {
	name, _, err := r.usage.page(ref.Ledger, ref.ID)
	if err != nil {
		name = "" // the id does as well
	}
	return pageKey{Ledger: ref.Ledger, ID: ref.ID}.Text(name)
}

// pageError says that err is about a page.
func (r *Repository) pageError(ref PageRef, err error) error {
	name, _, usageErr := r.usage.page(ref.Ledger, ref.ID)
	if usageErr != nil {
		name = "" // the id does as well
	}
	return &PageError{ref, name, err}
}

func (u *usageDB) close() error { return u.db.Close() }
