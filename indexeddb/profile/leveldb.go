package profile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// order is the comparator of IndexedDB. It does not shorten keys, because that would break the
// order.
type order struct{}

func (order) Name() string                    { return indexeddb.ComparatorName }
func (order) Compare(a, b []byte) int         { return indexeddb.CompareRows(a, b) }
func (order) Separator(_, _, _ []byte) []byte { return nil }
func (order) Successor(_, _ []byte) []byte    { return nil }

// options are the options of goleveldb, with bounds on memory. Compaction is off.
func options() *opt.Options {
	return &opt.Options{
		Comparer:               order{},
		ErrorIfMissing:         true,
		Strict:                 opt.StrictAll,
		DisableBufferPool:      true,
		BlockCacheCapacity:     4 << 20,
		OpenFilesCacheCapacity: 64,
		WriteBuffer:            4 << 20,
		CompactionL0Trigger:    math.MaxInt32,
		CompactionTotalSize:    math.MaxInt32,
		WriteL0PauseTrigger:    math.MaxInt32,
		WriteL0SlowdownTrigger: math.MaxInt32,
	}
}

// levelDB reads the rows of a directory.
type levelDB struct {
	db     *leveldb.DB
	above  string // a temporary directory
	unlock func() error
}

// openLevelDB opens a directory in the state that a browser has after recovery.
func openLevelDB(dir string) (l *levelDB, err error) {
	l = &levelDB{}
	defer func() {
		if err != nil {
			err, l = errors.Join(err, l.close()), nil
		}
	}()
	if l.unlock, err = lock(filepath.Join(dir, "LOCK")); err != nil {
		return l, err
	}
	m, err := checkManifest(dir)
	if err != nil {
		return l, err
	}
	if l.above, err = os.MkdirTemp("", "ledger-indexeddb-"); err != nil {
		return l, err
	}
	files := newOverlay(dir, l.above)
	if err := m.rewind(files); err != nil {
		return l, err
	}
	if err := recoverFiles(files); err != nil {
		return l, err
	}
	readOnly := options()
	readOnly.ReadOnly = true // keeps goroutines of goleveldb away from damaged data
	err = guarded(func() string { return "open" }, func() (err error) {
		l.db, err = leveldb.Open(files, readOnly)
		return err
	})
	return l, err
}

// recoverFiles writes the rows of the journals into tables, and undoes uncommitted transactions.
func recoverFiles(files *overlay) error {
	return guarded(func() string { return "recover" }, func() error {
		db, err := leveldb.Open(files, options())
		if err != nil {
			return err
		}
		return errors.Join(applyScopes(db), db.Close())
	})
}

// guarded calls fn, which reads a directory through goleveldb. It converts errors of goleveldb, and
// panics, which goleveldb raises for some impossible lengths, into errors of this module.
func guarded(what func() string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged("LevelDB", "%s: %v", what(), p)
		}
	}()
	if err = fn(); err != nil {
		return classify(what(), err)
	}
	return nil
}

// classify converts an error of goleveldb into one of this module.
func classify(what string, err error) error {
	switch {
	case errors.Is(err, base.ErrCorrupt), errors.Is(err, base.ErrUnsupported):
		return err
	case errors.Is(err, leveldb.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w", what, err)
	case isCorrupted(err):
		return &base.CorruptError{Where: "LevelDB", Got: what, Err: err}
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (l *levelDB) close() error {
	var errs []error
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	if l.above != "" {
		errs = append(errs, os.RemoveAll(l.above))
	}
	if l.unlock != nil {
		errs = append(errs, l.unlock())
	}
	return errors.Join(errs...)
}

// get returns the value of a row, or nil when there is none.
func (l *levelDB) get(r indexeddb.Row) (value []byte, err error) {
	key := r.Append(nil)
	err = guarded(func() string { return "read " + r.Describe() }, func() (err error) {
		value, err = l.db.Get(key, nil)
		if errors.Is(err, leveldb.ErrNotFound) {
			err = nil
		}
		return err
	})
	return value, err
}

// rows iterates over the rows with a prefix, in order. Its owner closes it.
type rows struct {
	it     iterator.Iterator
	family indexeddb.Row
	err    error

	row   indexeddb.Row // the last one read
	value []byte        // borrowed until next
}

// all returns all rows.
func (l *levelDB) all() *rows { return &rows{it: l.db.NewIterator(nil, nil)} }

// family iterates over the family of r.
func (l *levelDB) family(r indexeddb.Row) *rows { return l.between(indexeddb.AppendPrefix(nil, r), r) }

// from iterates over the family of r, from r on.
func (l *levelDB) from(r indexeddb.Row) *rows { return l.between(r.Append(nil), r) }

// between iterates over the rows from start to the end of the family of r. The end is a byte after
// the ids that no row has there.
func (l *levelDB) between(start []byte, r indexeddb.Row) *rows {
	end := append(indexeddb.AppendPrefix(nil, r), 0xff)
	return &rows{it: l.db.NewIterator(&util.Range{Start: start, Limit: end}, nil), family: r}
}

// next moves to the next valid row. It calls report with damage; an error from report ends the
// iteration.
func (s *rows) next(report func(error) error) bool {
	for s.err == nil {
		more := false
		s.err = guarded(func() string { return "read rows behind " + s.place() }, func() error {
			more = s.it.Next()
			return s.it.Error()
		})
		if s.err != nil || !more {
			return false
		}
		row, err := indexeddb.DecodeRow(s.it.Key())
		if err == nil {
			s.row, s.value = row, s.it.Value()
			return true
		}
		s.err = report(fmt.Errorf("row %s behind %s: %w", shortHex(s.it.Key()), s.place(), err))
	}
	return false
}

// place describes the current position.
func (s *rows) place() string {
	switch {
	case s.row.Kind != 0:
		return s.row.Describe()
	case s.family.Kind == 0:
		return "the beginning"
	}
	return "the beginning of " + s.family.Describe()
}

func (s *rows) close() { s.it.Release() }

func shortHex(b []byte) string {
	if len(b) > 32 {
		return fmt.Sprintf("%x...", b[:32])
	}
	return fmt.Sprintf("%x", b)
}
