package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// SetFoldTxRows makes folds write so many rows in one transaction.
func SetFoldTxRows(s *Store, n int) {
	s.foldTurn.Wait()
	s.foldTxRows = n
	s.foldTurn.Give()
}

// HookIndex calls before ahead of every transaction that changes the index, which fails with the
// error that before returns, and after behind each that was done. Either may be nil.
func HookIndex(s *Store, before func() error, after func()) {
	s.foldTurn.Wait()
	s.indexMu.Lock()
	s.index = hookedIndex{s.index, before, after}
	s.indexMu.Unlock()
	s.foldTurn.Give()
}

type hookedIndex struct {
	index.DB
	before func() error
	after  func()
}

func (h hookedIndex) Update(fn func(index.Tx) error) error {
	if h.before != nil {
		if err := h.before(); err != nil {
			return err
		}
	}
	err := h.DB.Update(fn)
	if err == nil && h.after != nil {
		h.after()
	}
	return err
}

// ErrTestIndex is an error for before of HookIndex.
var ErrTestIndex = errors.New("injected failure of the index")

// Numbers returns the rows of bucket numbers, by number, and the next number that is to be given.
func Numbers(db index.DB) (numbers map[uint64]string, next uint64, err error) {
	numbers = map[uint64]string{}
	err = db.View(func(tx index.Tx) error {
		c := tx.Bucket(bucketNumbers).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			numbers[readNumber(k)] = string(v)
		}
		st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
		next = st.next
		return err
	})
	return numbers, next, err
}

// SetIndexVersion makes an index one of another version, as far as what Open looks at goes, but for
// buckets that the version did not have.
func SetIndexVersion(db index.DB, version byte) error {
	return db.Update(func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		v := bytes.Clone(b.Get(stateKey))
		st, err := parseState(v)
		if err != nil {
			return err
		}
		v[0] = version
		if version < 6 { // these had no checkpoint, which is three zeros before the position
			at := len(v) - 4 - len(st.position.Encode()) - 3
			v = slices.Delete(v, at, at+3)
		}
		if at := len(numberBytes(st.next)) + 17; version < 7 { // these had the greatest journal
			v = slices.Insert(v, at, 0)
		}
		n := len(v) - 4
		return b.Put(stateKey, binary.BigEndian.AppendUint32(v[:n], crc32.Checksum(v[:n], crcTable)))
	})
}

// BoundReads ends the test process with a panic when the index is asked for more rows than that, by
// whatever goes on for ever.
func BoundReads(s *Store, most int) {
	s.foldTurn.Wait()
	s.indexMu.Lock()
	s.index = countedIndex{s.index, &atomic.Int64{}, int64(most)}
	s.indexMu.Unlock()
	s.foldTurn.Give()
}

type countedIndex struct {
	index.DB
	n    *atomic.Int64
	most int64
}

func (c countedIndex) count() {
	if c.n.Add(1) > c.most {
		panic("reads without end")
	}
}

func (c countedIndex) View(fn func(index.Tx) error) error {
	return c.DB.View(func(tx index.Tx) error { return fn(countedTx{tx, c}) })
}

func (c countedIndex) Update(fn func(index.Tx) error) error {
	return c.DB.Update(func(tx index.Tx) error { return fn(countedTx{tx, c}) })
}

type countedTx struct {
	index.Tx
	c countedIndex
}

func (t countedTx) Bucket(name string) index.Bucket {
	if b := t.Tx.Bucket(name); b != nil {
		return countedBucket{b, t.c}
	}
	return nil
}

type countedBucket struct {
	index.Bucket
	c countedIndex
}

func (b countedBucket) Get(k []byte) []byte {
	b.c.count()
	return b.Bucket.Get(k)
}

func (b countedBucket) Cursor() index.Cursor { return countedCursor{b.Bucket.Cursor(), b.c} }

type countedCursor struct {
	index.Cursor
	c countedIndex
}

func (r countedCursor) Seek(k []byte) (key, v []byte) {
	r.c.count()
	return r.Cursor.Seek(k)
}

func (r countedCursor) Next() (k, v []byte) {
	r.c.count()
	return r.Cursor.Next()
}

func numberBytes(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// ChangeState changes numbers in the state row, with a right checksum.
func ChangeState(db index.DB, change func(next, heads *uint64)) error {
	return db.Update(func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		st, err := parseState(bytes.Clone(b.Get(stateKey)))
		if err != nil {
			return err
		}
		change(&st.next, &st.nHeads)
		return b.Put(stateKey, st.encode())
	})
}

// Families are the names of all families of rows.
var Families = allBuckets

// staleLocator finds the first piece as a difference to one that the page does not have.
type staleLocator struct {
	*Store
	asked bool
}

func (l *staleLocator) locate(d *object.Digest, dead bool) (located, bool, error) {
	if l.asked {
		return l.Store.locate(d, dead)
	}
	l.asked = true
	base := *d
	base[len(base)-1] ^= 1
	return located{kind: recDelta, base: base, content: []byte{0}}, true, nil
}

// LoadMoved loads a node whose place changes during the read: from a difference to a base that goes
// to the present one.
func LoadMoved(ctx context.Context, s *Store, d object.Digest) error {
	_, _, err := s.loadLocated(ctx, d, &staleLocator{Store: s}, 0, nil)
	return err
}
