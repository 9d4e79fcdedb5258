package changes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// The value of a row of a transaction's journal is a tag byte and its data. In a run, the key is
// the byte runKeyPrefix and the key of the page, since keys must not be empty there. Runs never
// outlive their process, so the layout is not a format.
//
//	tag          rest
//	rowDelete    nothing
//	rowInline    the value
//	rowEager     33 bytes of digest, size as uvarint
//	rowLazy      the same
const (
	rowDelete = iota
	rowInline
	rowEager
	rowLazy

	// maxRowHead bounds the length of a row's value without an inline value.
	maxRowHead = 1 + object.DigestSize + binary.MaxVarintLen64

	runKeyPrefix = 'k'
	runBucket    = "changes"
	// runUpdateBytes bounds what one update of the run holds in memory.
	runUpdateBytes = 4 << 20
)

var runNumber atomic.Uint64

// run is the spilled part of a transaction's journal: sorted rows in a temporary file, never
// synced.
type run struct {
	db   index.DB
	path string // "" in memory
}

// newRun makes an empty run in dir, or in memory when dir is "".
func newRun(dir string) (*run, error) {
	if dir == "" {
		return &run{db: index.NewMemory()}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spill transaction: %w", err)
	}
	path := filepath.Join(dir, "tx-"+strconv.FormatUint(runNumber.Add(1), 10)+".db")
	db, err := index.OpenFile(path, index.Options{NoSync: true})
	if err != nil {
		return nil, fmt.Errorf("spill transaction: %w", err)
	}
	return &run{db: db, path: path}, nil
}

// add writes rows, by ascending page keys. After an error some rows are written; all of them are
// still in memory, too.
func (r *run) add(rows iter.Seq2[string, []byte]) error {
	next, stop := iter.Pull2(rows)
	defer stop()
	for more := true; more; {
		err := r.db.Update(func(tx index.Tx) error {
			b, err := tx.CreateBucket(runBucket)
			if err != nil {
				return err
			}
			b.SetFillPercent(0.9)
			for size := 0; size < runUpdateBytes; {
				key, v, ok := next()
				if !ok {
					more = false
					return nil
				}
				k := runKey(key)
				if err := b.Put(k, v); err != nil {
					return err
				}
				size += len(k) + len(v)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("spill transaction: %w", err)
		}
	}
	return nil
}

func runKey[K string | []byte](key K) []byte {
	return append(append(make([]byte, 0, 1+len(key)), runKeyPrefix), key...)
}

// appendRowValue appends the value of the row of a change.
func appendRowValue(b []byte, c *btree.Change) []byte {
	e := &c.Entry
	switch {
	case c.Delete:
		return append(b, rowDelete)
	case e.Inline:
		return append(append(b, rowInline), e.Value...)
	case e.Priority == object.Lazy:
		b = append(b, rowLazy)
	default:
		b = append(b, rowEager)
	}
	return binary.AppendUvarint(append(b, e.Digest[:]...), e.Size)
}

// parseRow returns the change in the row of a page key, borrowed from the arguments, and false for
// an invalid row.
func parseRow(key, v []byte) (c btree.Change, ok bool) {
	if len(v) == 0 {
		return c, false
	}
	e, rest := &c.Entry, v[1:]
	e.Key = key
	switch v[0] {
	case rowDelete:
		c.Delete = true
		return c, len(rest) == 0
	case rowInline:
		e.Value, e.Inline, e.Size = rest, true, uint64(len(rest))
		return c, true
	case rowLazy:
		e.Priority = object.Lazy
	case rowEager:
	default:
		return c, false
	}
	n := copy(e.Digest[:], rest)
	size, m := binary.Uvarint(rest[n:])
	e.Size = size
	return c, m > 0 && n+m == len(rest)
}

// parse returns a copy of the change in a row of a run.
func (r *run) parse(k, v []byte) (btree.Change, error) {
	if len(k) > 0 && k[0] == runKeyPrefix {
		if c, ok := parseRow(bytes.Clone(k[1:]), bytes.Clone(v)); ok {
			return c, nil
		}
	}
	return btree.Change{}, &base.CorruptError{Where: "temporary file of a transaction", Got: "a bad row"}
}

// batch is Journal.Batch for the rows of the run, which are copied.
func (r *run) batch(at []byte, reverse bool, n int) ([]btree.Change, error) {
	var out []btree.Change
	err := r.db.View(func(tx index.Tx) error {
		b := tx.Bucket(runBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		k, v := c.Seek(runKey(at))
		switch {
		case reverse && (at == nil || k == nil):
			k, v = c.Last()
		case reverse:
			k, v = c.Prev()
		}
		for k != nil && len(out) < n {
			change, err := r.parse(k, v)
			if err != nil {
				return err
			}
			out = append(out, change)
			if reverse {
				k, v = c.Prev()
			} else {
				k, v = c.Next()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read spilled transaction: %w", err)
	}
	return out, nil
}

// remove closes the run and removes its file.
func (r *run) remove() error {
	err := r.db.Close()
	if r.path != "" {
		if e := os.Remove(r.path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("remove temporary file of a transaction: %w", err)
	}
	return nil
}
