package pageusage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/storage/index"
)

// FileName is the name of the database in its directory. It is one file.
const FileName = "page_usage.db"

// maxPending is the number of pages whose changes wait in memory before they are written.
const maxPending = 64

// Page names a page. The name of its ledger has 1 to limits.MaxLedgerNameBytes bytes.
type Page = base.Page

// Options are the options of Open.
type Options struct {
	// Now is the time at which pages that a crash left open count as closed. It is required.
	Now time.Time
	// ReadOnly writes nothing: a missing or damaged database counts as empty and is not moved,
	// pages that a crash left open stay open, and marks are ignored.
	ReadOnly bool
	// Exist returns the existing pages, for a new database: they count as closed at Now. It may be
	// nil.
	Exist func() ([]Page, error)
}

// Recovery reports the findings and repairs of Open.
type Recovery struct {
	// Damage is why the existing database was unusable, nil when it was usable; it matches
	// base.ErrCorrupt.
	Damage error
	// SavedAs is the new path of the damaged file, empty when there is none or Options.ReadOnly is
	// set. It replaces a file that was set aside before.
	SavedAs string
}

// DB is the page-usage database of a repository. It is safe for concurrent use.
type DB struct {
	db       index.DB
	readOnly bool

	mu      sync.Mutex    // held while rows are written
	rows    map[Page]row  // guarded by mu
	pending map[Page]bool // the pages whose rows are not written yet; guarded by mu
	closed  bool          // guarded by mu
}

// Open opens the database in dir, {repository}/page_usage_db, and makes both when they do not
// exist; "" means one in memory. It reads every row and keeps
// it in memory. A damaged database is set aside (U4). It waits for the file's lock at most as long
// as index.OpenFile does.
//
// Errors: base.ErrInvalid without Options.Now; base.ErrLocked; *base.FormatError for a database of
// a newer program, which is left alone; those of Options.Exist and of the file system.
func Open(dir string, o Options) (d *DB, rec Recovery, err error) {
	if o.Now.IsZero() {
		return nil, rec, fmt.Errorf("open page usage: no time: %w", base.ErrInvalid)
	}
	d, err = open(dir, o)
	if errors.Is(err, base.ErrCorrupt) {
		rec.Damage = err
	}
	switch {
	case o.ReadOnly && (rec.Damage != nil || errors.Is(err, fs.ErrNotExist)):
		d, err = New(index.NewMemory(), o)
	case rec.Damage != nil:
		path := filepath.Join(dir, FileName)
		rec.SavedAs = path + ".damaged"
		if err = os.Rename(path, rec.SavedAs); err == nil {
			d, err = open(dir, o)
		}
	}
	if err != nil {
		return nil, rec, fmt.Errorf("open page usage: %w", err)
	}
	return d, rec, nil
}

func open(dir string, o Options) (*DB, error) {
	if dir == "" {
		return New(index.NewMemory(), o)
	}
	path := filepath.Join(dir, FileName)
	_, err := os.Stat(path)
	fresh := errors.Is(err, fs.ErrNotExist) && !o.ReadOnly
	if fresh {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := index.OpenFile(path, index.Options{ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	d, err := New(f, o)
	if err == nil && fresh {
		err = vfs.OS.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// New makes a DB on rows that the caller has opened; Close closes db. Errors: *base.CorruptError,
// *base.FormatError, those of Options.Exist and of db; after an error db is not closed.
func New(db index.DB, o Options) (*DB, error) {
	d := &DB{db: db, readOnly: o.ReadOnly, rows: map[Page]row{}, pending: map[Page]bool{}}
	fresh := false
	err := db.View(func(tx index.Tx) error {
		if fresh = tx.Bucket(formatBucket) == nil && tx.Bucket(pagesBucket) == nil; fresh {
			return nil
		}
		return scan(tx, func(p Page, r row) {
			if r.closed == 0 && !o.ReadOnly { // U3
				r.closed, d.pending[p] = stamp(o.Now), true
			}
			d.rows[p] = r
		})
	})
	if err != nil || !fresh || o.ReadOnly {
		return d, err
	}
	if o.Exist != nil {
		pages, err := o.Exist()
		if err != nil {
			return nil, err
		}
		for _, p := range pages {
			d.rows[p], d.pending[p] = row{closed: stamp(o.Now)}, true
		}
	}
	return d, d.writeLocked("begin page usage", func(tx index.Tx) error {
		return tx.Bucket(formatBucket).Put([]byte(versionKey), []byte{formatVersion})
	})
}

// get returns the row of p.
func (d *DB) get(p Page) (row, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return blank, errClosed("read page usage")
	}
	return d.rowLocked(p), nil
}

func (d *DB) rowLocked(p Page) row {
	if r, ok := d.rows[p]; ok {
		return r
	}
	return blank
}

// change changes the row of p: durably, or in memory until enough changes are pending (U1). It
// costs no write when nothing changes. A failed durable change has no effect.
func (d *DB) change(doing string, p Page, durable bool, fn func(*row)) error {
	if err := check("ledger", p.Ledger, limits.MaxLedgerNameBytes); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.rowLocked(p)
	r := old
	fn(&r)
	switch {
	case d.closed:
		return errClosed(doing)
	case durable && d.readOnly:
		return fmt.Errorf("%s: %w", doing, base.ErrReadOnly)
	case old == r || d.readOnly:
		return nil
	}
	d.rows[p], d.pending[p] = r, true
	if !durable && len(d.pending) < maxPending {
		return nil
	}
	err := d.writeLocked(doing, nil)
	if err != nil && durable {
		d.rows[p] = old
	}
	return err
}

// writeLocked writes the pending rows, and calls fn, which may be nil, in the same transaction.
func (d *DB) writeLocked(doing string, fn func(index.Tx) error) error {
	if len(d.pending) == 0 && fn == nil {
		return nil
	}
	err := d.db.Update(func(tx index.Tx) error {
		b := tx.Bucket(pagesBucket)
		for p := range d.pending {
			k := rowKey(p)
			var err error
			if r := d.rowLocked(p); r == blank {
				err = b.Delete(k)
			} else {
				err = b.Put(k, r.encode(k))
			}
			if err != nil {
				return err
			}
		}
		if fn == nil {
			return nil
		}
		return fn(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	clear(d.pending)
	return nil
}

// MarkOpened records that p is open. It costs no write when p is open already, and otherwise none
// of its own (U1). Errors: base.ErrInvalid, base.ErrTooLarge for the ledger's name; base.ErrClosed;
// those of Flush.
func (d *DB) MarkOpened(p Page) error {
	return d.change("mark page open", p, false, func(r *row) { r.closed = 0 })
}

// MarkClosed records that p was closed at t. Errors and durability are those of MarkOpened.
func (d *DB) MarkClosed(p Page, t time.Time) error {
	return d.change("mark page closed", p, false, func(r *row) { r.closed = stamp(t) })
}

// NoteSize records the size of p's copy on disk, in bytes, 0 or more. Errors and durability are
// those of MarkOpened.
func (d *DB) NoteSize(p Page, sizeBytes int64) error {
	if sizeBytes < 0 {
		return fmt.Errorf("note size: %d bytes: %w", sizeBytes, base.ErrInvalid)
	}
	return d.change("note size", p, false, func(r *row) { r.sizeBytes = sizeBytes })
}

// SetPageName records the human name of p, which is 1 to limits.MaxPageNameBytes bytes long. It
// is durable when it returns nil, and costs no write when p has that name already. Errors:
// base.ErrInvalid, base.ErrTooLarge, base.ErrReadOnly, those of Flush.
func (d *DB) SetPageName(p Page, name string) error {
	if err := check("page", name, limits.MaxPageNameBytes); err != nil {
		return err
	}
	return d.change("set name", p, true, func(r *row) { r.name = name })
}

// Remove forgets the usage of p, for a page whose local copy is gone, and keeps its name. Errors
// and durability are those of MarkOpened.
func (d *DB) Remove(p Page) error {
	return d.change("remove page usage", p, false, func(r *row) { r.closed, r.sizeBytes = never, 0 })
}

// Forget durably forgets the usage of p and its name, for a deleted page. Errors: those of
// SetPageName.
func (d *DB) Forget(p Page) error {
	return d.change("forget page usage", p, true, func(r *row) { *r = blank })
}

// Size returns the last size that NoteSize recorded for p, or 0. Errors: base.ErrClosed.
func (d *DB) Size(p Page) (int64, error) {
	r, err := d.get(p)
	return r.sizeBytes, err
}

// Page returns the name of p and when it was last closed: "" and the zero time where nothing is
// recorded, the zero time also while p is open. Errors: base.ErrClosed.
func (d *DB) Page(p Page) (name string, closed time.Time, err error) {
	r, err := d.get(p)
	if r.closed != 0 && r.closed != never {
		closed = time.Unix(0, int64(r.closed)).UTC()
	}
	return r.name, closed, err
}

// Text names p for people, with its human name when one is recorded.
func (d *DB) Text(p Page) string {
	r, _ := d.get(p) // without a row the id suffices
	return p.Text(r.name)
}

// Flush makes all marks durable. Errors: base.ErrClosed, base.ErrNoSpace, base.ErrReadOnly after a
// sync has failed, *base.CorruptError; the marks then stay in memory.
func (d *DB) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed("write page usage")
	}
	return d.writeLocked("write page usage", nil)
}

// Close writes the pending rows and closes the database. It is idempotent. Errors: those of Flush;
// the database is closed all the same.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if err := errors.Join(d.writeLocked("write page usage", nil), d.db.Close()); err != nil {
		return fmt.Errorf("close page usage: %w", err)
	}
	return nil
}

func errClosed(doing string) error { return fmt.Errorf("%s: %w", doing, base.ErrClosed) }

// check verifies the name of what, a ledger or page, which has at most so many bytes.
func check(what, name string, most int) error {
	switch n := len(name); {
	case n == 0:
		return fmt.Errorf("check %s name: empty: %w", what, base.ErrInvalid)
	case n > most:
		return fmt.Errorf("check %s name: %d bytes: %w", what, n, base.ErrTooLarge)
	}
	return nil
}
