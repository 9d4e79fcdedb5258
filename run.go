package ledger

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

// A row of a run: the key is the prefix byte runKeyPrefix, since rows may not have empty keys, and
// the key of the page. The value is a tag byte and what belongs to it. Runs never outlive their
// process, so the layout is no format.
//
//	tag          rest
//	runDelete    nothing
//	runInline    the value
//	runEager     33 bytes of digest, size as uvarint
//	runLazy      the same
const (
	runDelete = iota
	runInline
	runEager
	runLazy

	runKeyPrefix = 'k'
	runBucket    = "changes"
	// runUpdateBytes bounds what one update of the run holds in memory.
	runUpdateBytes = 4 << 20
)

var runNumber atomic.Uint64

// run is the part of a transaction's journal that did not fit into memory: sorted rows in a
// temporary file, never synced.
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

// add writes changes that come in ascending order. It may be abandoned half way by an error; what
// was written then says nothing that memory does not say too.
func (r *run) add(changes iter.Seq[btree.Change]) error {
	next, stop := iter.Pull(changes)
	defer stop()
	for more := true; more; {
		err := r.db.Update(func(tx index.Tx) error {
			b, err := tx.CreateBucket(runBucket)
			if err != nil {
				return err
			}
			b.SetFillPercent(0.9)
			for size := 0; size < runUpdateBytes; {
				c, ok := next()
				if !ok {
					more = false
					return nil
				}
				k, v := runKey(c.Entry.Key), runValue(&c)
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

func runKey(key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), runKeyPrefix), key...)
}

func runValue(c *btree.Change) []byte {
	e := &c.Entry
	switch {
	case c.Delete:
		return []byte{runDelete}
	case e.Inline:
		return append(append(make([]byte, 0, 1+len(e.Value)), runInline), e.Value...)
	}
	v := make([]byte, 0, 1+object.DigestSize+binary.MaxVarintLen64)
	if e.Priority == Lazy {
		v = append(v, runLazy)
	} else {
		v = append(v, runEager)
	}
	return binary.AppendUvarint(append(v, e.Digest[:]...), e.Size)
}

// parse returns a copy of the change in a row.
func (r *run) parse(k, v []byte) (btree.Change, error) {
	damaged := &base.CorruptError{Where: "temporary file of a transaction", Got: "a bad row"}
	if len(k) == 0 || k[0] != runKeyPrefix || len(v) == 0 {
		return btree.Change{}, damaged
	}
	key, tag, rest := k[1:], v[0], v[1:]
	switch tag {
	case runInline:
		return btree.Change{Entry: inlineEntry(key, rest)}, nil
	case runDelete:
		c := btree.Change{Delete: true}
		c.Entry.Key = bytes.Clone(key)
		return c, nil
	case runEager, runLazy:
		var c btree.Change
		c.Entry.Key = bytes.Clone(key)
		if tag == runLazy {
			c.Entry.Priority = Lazy
		}
		n := copy(c.Entry.Digest[:], rest)
		size, m := binary.Uvarint(rest[n:])
		if m <= 0 || n+m != len(rest) {
			return btree.Change{}, damaged
		}
		c.Entry.Size = size
		return c, nil
	}
	return btree.Change{}, damaged
}

// get returns the change of key, and whether there is one.
func (r *run) get(key []byte) (c btree.Change, ok bool, err error) {
	err = r.db.View(func(tx index.Tx) error {
		b := tx.Bucket(runBucket)
		if b == nil {
			return nil
		}
		k := runKey(key)
		v := b.Get(k)
		if v == nil {
			return nil
		}
		ok = true
		c, err = r.parse(k, v)
		return err
	})
	return c, ok && err == nil, err
}

// batch returns up to n changes from a position on, in order.
func (r *run) batch(from position, reverse bool, n int) ([]btree.Change, error) {
	var out []btree.Change
	err := r.db.View(func(tx index.Tx) error {
		b := tx.Bucket(runBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := seekRow(c, from, reverse); k != nil && len(out) < n; {
			if len(k) > 0 && from.admits(k[1:], reverse) {
				change, err := r.parse(k, v)
				if err != nil {
					return err
				}
				out = append(out, change)
			}
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

// seekRow moves to the first row that may lie at or behind the position.
func seekRow(c index.Cursor, from position, reverse bool) (k, v []byte) {
	switch {
	case !from.set && reverse:
		return c.Last()
	case !from.set:
		return c.First()
	}
	k, v = c.Seek(runKey(from.key))
	if k == nil && reverse {
		return c.Last()
	}
	return k, v
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
