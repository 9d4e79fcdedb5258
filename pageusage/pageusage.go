package pageusage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

const (
	fileName = "page_usage.db"
	// maxPending is how many marks wait in memory before they are written.
	maxPending = 64
	// formatVersion is what stands in the format bucket.
	formatVersion = 1
)

// Page names a page. The name of its ledger has 1 to limits.MaxLedgerNameBytes bytes.
type Page = base.Page

// Usage is what is known of the use of a page.
type Usage struct {
	Page Page
	// Open says that the page is open. Closed is then zero.
	Open bool
	// Closed is when the page was last closed.
	Closed time.Time
	// SizeBytes is what NoteSize was told last, 0 when it was told nothing.
	SizeBytes int64
}

// Options are the options of Open.
type Options struct {
	// Now is the time at which pages that a crash left open count as closed. It is required.
	Now time.Time
	// ReadOnly writes nothing: a missing or damaged database counts as empty and stays where it is,
	// pages that a crash left open are listed as open, and marks are ignored.
	ReadOnly bool
}

// Recovery says what Open found and did.
type Recovery struct {
	// Created says that there was no database.
	Created bool
	// Damage is why the database that was there could not be used, nil when it could; it matches
	// base.ErrCorrupt.
	Damage error
	// SavedAs is where the damaged file is now, empty when there is none or Options.ReadOnly is
	// set. A file that was set aside before is replaced.
	SavedAs string
	// Closed is the number of pages that a crash had left open.
	Closed int
}

// DB is the page-usage database of a repository. It is safe for concurrent use.
type DB struct {
	db       index.DB
	readOnly bool

	mu      sync.Mutex
	pending map[Page]uint64 // rows of opened that are not written yet; guarded by mu
	sizes   map[Page]int64  // rows of sizes that are not written yet; guarded by mu
	closed  bool            // guarded by mu
}

// Open opens the database in dir, {repository}/page_usage_db, and makes both when they do not
// exist; "" means one in memory. It reads every row. A damaged database is set aside (U4). It waits
// for the file's lock at most as long as index.OpenFile does.
//
// Errors: base.ErrInvalid without Options.Now; base.ErrLocked; *base.FormatError for a database of
// a newer program, which is left alone; what the file system says.
func Open(dir string, o Options) (*DB, *Recovery, error) {
	if o.Now.IsZero() {
		return nil, nil, fmt.Errorf("open page usage: no time: %w", base.ErrInvalid)
	}
	rec := &Recovery{}
	if dir == "" {
		d, _, err := New(index.NewMemory(), o.Now)
		return d, rec, err
	}
	if o.ReadOnly {
		return openReadOnly(dir, rec)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open page usage: %w", err)
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		rec.Created = true
	}
	d, err := openFile(path, o.Now, rec)
	if errors.Is(err, base.ErrCorrupt) {
		*rec = Recovery{Damage: err, SavedAs: path + ".damaged"}
		if err := os.Rename(path, rec.SavedAs); err != nil {
			return nil, rec, fmt.Errorf("set damaged page usage aside: %w", err)
		}
		d, err = openFile(path, o.Now, rec)
	}
	if err == nil && (rec.Created || rec.SavedAs != "") {
		if err = syncDir(dir); err != nil {
			err = errors.Join(fmt.Errorf("open page usage: %w", err), d.Close())
		}
	}
	if err != nil {
		return nil, rec, err
	}
	return d, rec, nil
}

// syncDir makes the names in dir durable; Windows has no such call and needs none.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openFile opens the file at path for writing and closes what a crash has left open.
func openFile(path string, now time.Time, rec *Recovery) (*DB, error) {
	f, err := index.OpenFile(path, index.Options{})
	if err != nil {
		return nil, fmt.Errorf("open page usage: %w", err)
	}
	d, closed, err := New(f, now)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	rec.Closed = closed
	return d, nil
}

func openReadOnly(dir string, rec *Recovery) (*DB, *Recovery, error) {
	f, err := index.OpenFile(filepath.Join(dir, fileName), index.Options{ReadOnly: true})
	if err == nil {
		if err = f.View(func(tx index.Tx) error { return scan(tx, nil) }); err == nil {
			return newDB(f, true), rec, nil
		}
		err = errors.Join(err, f.Close())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rec.Created = true
	case errors.Is(err, base.ErrCorrupt):
		rec.Damage = err
	default:
		return nil, rec, fmt.Errorf("open page usage: %w", err)
	}
	return newDB(index.NewMemory(), true), rec, nil
}

func newDB(db index.DB, readOnly bool) *DB {
	return &DB{db: db, readOnly: readOnly, pending: map[Page]uint64{}, sizes: map[Page]int64{}}
}

// New makes a DB on rows that the caller has opened, and returns how many pages it found open; they
// are closed at now (U3). Close closes db. Errors: *base.CorruptError, *base.FormatError, what db
// says; db is then not closed.
func New(db index.DB, now time.Time) (d *DB, closed int, err error) {
	var left []Page
	fresh := false
	if err := db.View(func(tx index.Tx) error {
		fresh = len(tx.Buckets()) == 0
		return scan(tx, func(p Page) { left = append(left, p) })
	}); err != nil {
		return nil, 0, fmt.Errorf("read page usage: %w", err)
	}
	if !fresh && len(left) == 0 { // a bucket of sizes that is missing comes with the first size
		return newDB(db, false), 0, nil
	}
	if err := db.Update(func(tx index.Tx) error { return prepare(tx, left, now) }); err != nil {
		return nil, 0, fmt.Errorf("write page usage: %w", err)
	}
	return newDB(db, false), len(left), nil
}

// prepare makes the buckets and closes pages.
func prepare(tx index.Tx, left []Page, now time.Time) error {
	for _, name := range []string{pagesBucket, sizesBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucket(formatBucket)
	if err != nil {
		return err
	}
	if err := b.Put([]byte(versionKey), []byte{formatVersion}); err != nil {
		return err
	}
	b, err = tx.CreateBucket(openedBucket)
	if err != nil {
		return err
	}
	for _, p := range left {
		if err := b.Put(rowKey(p), encodeTime(stamp(now))); err != nil {
			return err
		}
	}
	return nil
}

// scan checks every row and calls open for each page that is open.
func scan(tx index.Tx, open func(Page)) error {
	if len(tx.Buckets()) == 0 {
		return nil
	}
	if err := checkFormat(tx); err != nil {
		return err
	}
	for _, name := range []string{openedBucket, pagesBucket, sizesBucket} {
		b := tx.Bucket(name)
		if b == nil && name == sizesBucket {
			continue // older programs made none
		}
		if b == nil {
			return damage(name, "bucket", "the bucket", "none")
		}
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if err := scanRow(name, k, v, open); err != nil {
				return err
			}
		}
	}
	return nil
}

func scanRow(bucket string, k, v []byte, open func(Page)) error {
	switch bucket {
	case sizesBucket:
		_, _, err := decodeSize(k, v)
		return err
	case openedBucket:
		u, err := decodeUsage(k, v)
		if err == nil && u.Open && open != nil {
			open(u.Page)
		}
		return err
	}
	_, err := decodeName(k, v)
	return err
}

// MarkOpened notes that p is open. It costs no write when p is open already, and otherwise none of
// its own (U1). Errors: base.ErrInvalid, base.ErrTooLarge for the ledger's name; base.ErrClosed;
// those of Flush.
func (d *DB) MarkOpened(p Page) error { return d.mark(p, 0) }

// MarkClosed notes that p was closed at t. Errors and durability are those of MarkOpened.
func (d *DB) MarkClosed(p Page, t time.Time) error { return d.mark(p, stamp(t)) }

func (d *DB) mark(p Page, t uint64) error {
	if err := check(p); err != nil {
		return err
	}
	now, known, err := d.get(p)
	if err != nil || known && now == t || d.readOnly {
		return err
	}
	d.mu.Lock()
	d.pending[p] = t
	full := len(d.pending) >= maxPending
	d.mu.Unlock()
	if full {
		return d.Flush()
	}
	return nil
}

// NoteSize notes what the copy of p takes on disk, in bytes, 0 or more. Errors and durability are
// those of MarkOpened.
func (d *DB) NoteSize(p Page, sizeBytes int64) error {
	if err := check(p); err != nil {
		return err
	}
	if sizeBytes < 0 {
		return fmt.Errorf("note size: %d bytes: %w", sizeBytes, base.ErrInvalid)
	}
	now, err := d.Size(p)
	if err != nil || now == sizeBytes || d.readOnly {
		return err
	}
	d.mu.Lock()
	d.sizes[p] = sizeBytes
	full := len(d.sizes) >= maxPending
	d.mu.Unlock()
	if full {
		return d.Flush()
	}
	return nil
}

// Size returns what NoteSize was told last of p, 0 when it was told nothing. Errors:
// base.ErrClosed, *base.CorruptError.
func (d *DB) Size(p Page) (n int64, err error) {
	d.mu.Lock()
	n, known := d.sizes[p]
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return 0, errClosed("read page usage")
	}
	if known {
		return n, nil
	}
	err = d.db.View(func(tx index.Tx) error {
		n, err = sizeIn(tx, rowKey(p))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read page usage: %w", err)
	}
	return n, nil
}

// sizeIn reads the row of sizes with the key k; 0 when there is none.
func sizeIn(tx index.Tx, k []byte) (int64, error) {
	b := tx.Bucket(sizesBucket)
	if b == nil {
		return 0, nil
	}
	v := b.Get(k)
	if v == nil {
		return 0, nil
	}
	_, n, err := decodeSize(k, v)
	return n, err
}

// get returns the present time of p, whether it is written or not.
func (d *DB) get(p Page) (t uint64, known bool, err error) {
	d.mu.Lock()
	t, known = d.pending[p]
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return 0, false, errClosed("read page usage")
	}
	if known {
		return t, true, nil
	}
	err = d.db.View(func(tx index.Tx) error {
		b := tx.Bucket(openedBucket)
		if b == nil {
			return nil
		}
		k := rowKey(p)
		v := b.Get(k)
		if v == nil {
			return nil
		}
		u, err := decodeUsage(k, v)
		if err != nil {
			return err
		}
		known = true
		if !u.Open {
			t = uint64(u.Closed.UnixNano())
		}
		return nil
	})
	if err != nil {
		return 0, false, fmt.Errorf("read page usage: %w", err)
	}
	return t, known, nil
}

// Get returns the usage of p. Errors: base.ErrNotFound when p was never marked or was removed,
// base.ErrClosed, *base.CorruptError.
func (d *DB) Get(p Page) (Usage, error) {
	t, known, err := d.get(p)
	if err != nil {
		return Usage{}, err
	}
	if !known {
		return Usage{}, fmt.Errorf("read page usage: %w", base.ErrNotFound)
	}
	u := usage(p, t)
	if u.SizeBytes, err = d.Size(p); err != nil {
		return Usage{}, err
	}
	return u, nil
}

// Page returns the name of p and when it was last closed: "" and the zero time where nothing is
// known, the zero time also while p is open. Errors: base.ErrClosed, *base.CorruptError.
func (d *DB) Page(p Page) (name string, closed time.Time, err error) {
	if name, err = d.name(p); err != nil {
		return "", time.Time{}, err
	}
	t, known, err := d.get(p)
	if err != nil || !known {
		return name, time.Time{}, err
	}
	return name, usage(p, t).Closed, nil
}

// Text names p for people, with its human name when that is known.
func (d *DB) Text(p Page) string {
	name, err := d.name(p)
	if err != nil {
		name = "" // the id does as well
	}
	return p.Text(name)
}

// Flush makes all marks durable. Errors: base.ErrClosed, base.ErrNoSpace, base.ErrReadOnly after a
// sync has failed, *base.CorruptError; the marks then stay in memory.
func (d *DB) Flush() error { return d.update("write page usage", nil) }

// update writes what is pending and then calls fn, in one transaction. Updates of db run one after
// another and each takes the newest marks, so an older mark never replaces a newer one.
func (d *DB) update(doing string, fn func(tx index.Tx) error) error {
	d.mu.Lock()
	closed, idle := d.closed, len(d.pending)+len(d.sizes) == 0 && fn == nil
	d.mu.Unlock()
	switch {
	case closed:
		return errClosed(doing)
	case d.readOnly && fn != nil:
		return fmt.Errorf("%s: %w", doing, base.ErrReadOnly)
	case d.readOnly, idle:
		return nil
	}
	var marks map[Page]uint64
	var sizes map[Page]int64
	err := d.db.Update(func(tx index.Tx) error {
		d.mu.Lock()
		marks, sizes = maps.Clone(d.pending), maps.Clone(d.sizes)
		d.mu.Unlock()
		if err := putMarks(tx, marks, sizes); err != nil {
			return err
		}
		if fn == nil {
			return nil
		}
		return fn(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, t := range marks {
		if now, ok := d.pending[p]; ok && now == t {
			delete(d.pending, p)
		}
	}
	for p, n := range sizes {
		if now, ok := d.sizes[p]; ok && now == n {
			delete(d.sizes, p)
		}
	}
	return nil
}

func putMarks(tx index.Tx, marks map[Page]uint64, sizes map[Page]int64) error {
	b, err := tx.CreateBucket(openedBucket)
	if err != nil {
		return err
	}
	for p, t := range marks {
		if err := b.Put(rowKey(p), encodeTime(t)); err != nil {
			return err
		}
	}
	if b, err = tx.CreateBucket(sizesBucket); err != nil {
		return err
	}
	for p, n := range sizes {
		if err := b.Put(rowKey(p), encodeSize(n)); err != nil {
			return err
		}
	}
	return nil
}

// Remove forgets the usage of p, for a page whose local copy is gone, and keeps its name. That
// there is none is no error. Errors: those of Flush, and base.ErrReadOnly.
func (d *DB) Remove(p Page) error { return d.remove(p, false) }

// RemoveClosed is Remove for several pages in one transaction, each only if it was last closed when
// its Usage says: a page that was opened since is there again. Errors: those of Remove.
func (d *DB) RemoveClosed(gone []Usage) error {
	for i := range gone {
		if err := check(gone[i].Page); err != nil {
			return err
		}
	}
	return d.update("remove page usage", func(tx index.Tx) error {
		b := tx.Bucket(openedBucket)
		if b == nil {
			return nil
		}
		for i := range gone {
			key := rowKey(gone[i].Page)
			if gone[i].Open || !bytes.Equal(b.Get(key), encodeTime(uint64(gone[i].Closed.UnixNano()))) {
				continue
			}
			if err := errors.Join(deleteRow(tx, openedBucket, key), deleteRow(tx, sizesBucket, key)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Forget forgets the usage of p and its name, for a page that was deleted. Errors: those of Remove.
func (d *DB) Forget(p Page) error { return d.remove(p, true) }

func (d *DB) remove(p Page, name bool) error {
	if err := check(p); err != nil {
		return err
	}
	return d.update("remove page usage", func(tx index.Tx) error {
		if err := errors.Join(deleteRow(tx, openedBucket, rowKey(p)), deleteRow(tx, sizesBucket, rowKey(p))); err != nil || !name {
			return err
		}
		return deleteRow(tx, pagesBucket, rowKey(p))
	})
}

// Reconcile makes the rows those of the pages that exist: a page without a row counts as closed at
// now, a row without a page is removed, names stay. Errors: those of Remove, and base.ErrInvalid
// for a name.
func (d *DB) Reconcile(exist []Page, now time.Time) (added, removed int, err error) {
	missing := make(map[Page]bool, len(exist))
	for _, p := range exist {
		if err := check(p); err != nil {
			return 0, 0, err
		}
		missing[p] = true
	}
	err = d.update("reconcile page usage", func(tx index.Tx) error {
		b, err := tx.CreateBucket(openedBucket)
		if err != nil {
			return err
		}
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			u, err := decodeUsage(k, v)
			if err != nil {
				return err
			}
			if missing[u.Page] {
				delete(missing, u.Page)
				continue
			}
			if err := errors.Join(b.Delete(k), deleteRow(tx, sizesBucket, rowKey(u.Page))); err != nil {
				return err
			}
			removed++
		}
		for p := range missing {
			if err := b.Put(rowKey(p), encodeTime(stamp(now))); err != nil {
				return err
			}
			added++
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return added, removed, nil
}

// Close writes what is pending and closes the database. It is idempotent. Errors: those of Flush;
// the database is closed all the same.
func (d *DB) Close() error {
	flushed := d.Flush()
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	if err := errors.Join(flushed, d.db.Close()); err != nil {
		return fmt.Errorf("close page usage: %w", err)
	}
	return nil
}

func errClosed(doing string) error { return fmt.Errorf("%s: %w", doing, base.ErrClosed) }

func deleteRow(tx index.Tx, bucket string, k []byte) error {
	if b := tx.Bucket(bucket); b != nil {
		return b.Delete(k)
	}
	return nil
}

func check(p Page) error {
	switch n := len(p.Ledger); {
	case n == 0:
		return fmt.Errorf("check ledger name: empty: %w", base.ErrInvalid)
	case n > limits.MaxLedgerNameBytes:
		return fmt.Errorf("check ledger name: %d bytes: %w", n, base.ErrTooLarge)
	}
	return nil
}
