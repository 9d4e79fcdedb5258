package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// The rows of page_usage_db. A page's key is the ledger's name and the 16 bytes of the page's id behind it.
//
//	opened    page's key               time of the last close, nanoseconds since 1970 as 64-bit big-endian; 0 while open
//	names     page's key               the human name from which the id was derived
//
// They are no truth: when they are lost, so are the names of pages until these are opened by name again.
const (
	usageOpened = "opened"
	usageNames  = "names"
	usageFile   = "usage.db"
)

// usageDB remembers when pages were closed, and names. It is safe for concurrent use.
type usageDB struct {
	db       index.DB
	readOnly bool
}

// openUsage opens the database in dir, a directory of the machine; "" means memory. A damaged one is set aside and begun anew.
func openUsage(dir string, readOnly bool, log *slog.Logger) (*usageDB, error) {
	if dir == "" {
		return &usageDB{db: index.NewMemory()}, nil
	}
	path := filepath.Join(dir, usageFile)
	if readOnly {
		db, err := index.OpenFile(path, index.Options{ReadOnly: true})
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, base.ErrCorrupt) {
			return &usageDB{db: index.NewMemory(), readOnly: true}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open page usage: %w", err)
		}
		return &usageDB{db: db, readOnly: true}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open page usage: %w", err)
	}
	db, err := index.OpenFile(path, index.Options{})
	if errors.Is(err, base.ErrCorrupt) {
		log.Warn("page usage is damaged and is begun anew", "error", err, "savedAs", path+".damaged")
		if err = os.Rename(path, path+".damaged"); err == nil {
			db, err = index.OpenFile(path, index.Options{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open page usage: %w", err)
	}
	return &usageDB{db: db}, nil
}

func usageKey(ledger string, id PageID) []byte {
	return append([]byte(ledger), id[:]...)
}

// opened records that a page is being opened, and its name unless that is "".
func (u *usageDB) opened(ledger string, id PageID, name string) error {
	if u.readOnly {
		return nil
	}
	err := u.db.Update(func(tx index.Tx) error {
		if err := putRow(tx, usageOpened, usageKey(ledger, id), make([]byte, 8)); err != nil {
			return err
		}
		if name == "" {
			return nil
		}
		return putRow(tx, usageNames, usageKey(ledger, id), []byte(name))
	})
	if err != nil {
		return fmt.Errorf("record page usage: %w", err)
	}
	return nil
}

// closed records that a page has been closed.
func (u *usageDB) closed(ledger string, id PageID, at time.Time) error {
	if u.readOnly {
		return nil
	}
	err := u.db.Update(func(tx index.Tx) error {
		return putRow(tx, usageOpened, usageKey(ledger, id), binary.BigEndian.AppendUint64(nil, uint64(max(at.UnixNano(), 1))))
	})
	if err != nil {
		return fmt.Errorf("record page usage: %w", err)
	}
	return nil
}

// putRow puts a row unless it is there already.
func putRow(tx index.Tx, bucket string, k, v []byte) error {
	b, err := tx.CreateBucket(bucket)
	if err != nil {
		return err
	}
	if old := b.Get(k); old != nil && bytes.Equal(old, v) {
		return nil
	}
	return b.Put(k, v)
}

// page returns what is known of a page; name is "" and lastClosed zero where nothing is.
func (u *usageDB) page(ledger string, id PageID) (name string, lastClosed time.Time, err error) {
	err = u.db.View(func(tx index.Tx) error {
		k := usageKey(ledger, id)
		if b := tx.Bucket(usageNames); b != nil {
			name = string(b.Get(k))
		}
		if b := tx.Bucket(usageOpened); b != nil {
			if v := b.Get(k); len(v) == 8 {
				if ns := binary.BigEndian.Uint64(v); ns != 0 {
					lastClosed = time.Unix(0, int64(ns)).UTC()
				}
			}
		}
		return nil
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read page usage: %w", err)
	}
	return name, lastClosed, nil
}

func (u *usageDB) close() error { return u.db.Close() }
