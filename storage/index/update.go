package index

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"
)

// updateTx works through bbolt. Before bbolt reads a leaf, updateTx verifies it and its neighbours
// (bbolt may merge it with one of them) in the tree as of the beginning of the transaction (I2);
// later changes of the transaction are in bbolt's memory.
type updateTx struct {
	txState
	open map[string]*updateBucket
}

func (tx *updateTx) Bucket(name string) (b Bucket) {
	if tx.done {
		return nil
	}
	defer func() {
		if tx.failed {
			b = &updateBucket{tx: tx} // not nil, which would mean that there is no bucket: it has no rows
		}
	}()
	defer tx.contain()
	if tx.failed {
		return nil
	}
	if b := tx.bucket(name); b != nil {
		return b
	}
	return nil
}

// bucket may return nil, which must not be put into an interface.
func (tx *updateTx) bucket(name string) *updateBucket {
	if b := tx.open[name]; b != nil {
		return b
	}
	bb := tx.bolt.Bucket([]byte(name))
	if bb == nil {
		return nil
	}
	b := &updateBucket{tx: tx, bolt: bb}
	t, err := tx.root.bucket([]byte(name))
	if err != nil {
		_ = tx.fail(err)
		return nil
	}
	if t != nil && t.root != 0 {
		b.base = t
	}
	tx.open[name] = b
	return b
}

func (tx *updateTx) CreateBucket(name string) (_ Bucket, err error) {
	if err := tx.check("create bucket"); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	defer func() { err = tx.outcome(err) }()
	defer tx.contain()
	if b := tx.bucket(name); b != nil {
		return b, nil
	}
	if tx.failed {
		return nil, nil // outcome returns the error
	}
	if _, err := tx.bolt.CreateBucket([]byte(name)); err != nil {
		return nil, fmt.Errorf("create bucket %q: %w", name, err)
	}
	return tx.bucket(name), nil
}

type updateBucket struct {
	tx      *updateTx
	bolt    *bbolt.Bucket
	base    *tree // the bucket when the transaction began; nil when nothing of it needs verification
	lo, hi  []byte
	known   bool // the leaf for keys from lo to hi, and its neighbours, are verified
	changes uint64
}

// ensure verifies what bbolt may read for an operation on k.
func (b *updateBucket) ensure(k []byte) bool {
	if b.base == nil || b.known && (b.lo == nil || bytes.Compare(k, b.lo) >= 0) && (b.hi == nil || bytes.Compare(k, b.hi) < 0) {
		return true
	}
	lo, hi, err := b.base.verifyAround(k)
	if err != nil {
		_ = b.tx.fail(err)
		return false
	}
	b.lo, b.hi, b.known = lo, hi, true
	return true
}

func (b *updateBucket) Get(k []byte) (v []byte) {
	if !b.tx.live() || len(k) == 0 {
		return nil
	}
	defer b.tx.contain()
	if !b.ensure(k) {
		return nil
	}
	return b.bolt.Get(k)
}

func (b *updateBucket) Put(k, v []byte) (err error) {
	if err := checkRow(k, v); err != nil {
		return err
	}
	if err := b.tx.check("put row"); err != nil {
		return err
	}
	if v == nil {
		v = []byte{} // so that Get can tell an empty value from none
	}
	defer b.result("put row", &err)
	if !b.ensure(k) {
		return nil
	}
	b.changes++
	return b.bolt.Put(k, v)
}

func (b *updateBucket) Delete(k []byte) (err error) {
	if err := b.tx.check("delete row"); err != nil {
		return err
	}
	if len(k) == 0 {
		return nil
	}
	defer b.result("delete row", &err)
	if !b.ensure(k) {
		return nil
	}
	b.changes++
	return b.bolt.Delete(k)
}

// result is deferred in changing operations; it is contain, and also returns damage to the caller.
func (b *updateBucket) result(doing string, err *error) {
	if r := recover(); r != nil {
		_ = b.tx.fail(fmt.Errorf("read pages: %v", r))
	}
	switch {
	case b.tx.failed:
		*err = b.tx.f.damage.Load()
	case *err != nil:
		*err = fmt.Errorf("%s: %w", doing, *err)
	}
}

func (b *updateBucket) Cursor() Cursor {
	return &cursor{m: &updateMover{b: b}, changes: &b.changes}
}

func (b *updateBucket) SetFillPercent(p float64) {
	if b.tx.live() && p >= 0.1 && p <= 1 {
		b.bolt.FillPercent = p
	}
}

// updateMover is a bbolt cursor. It may pass leaves that deletions have emptied. The next row then
// lies in a leaf beside the last of them, which was verified before the deletions.
type updateMover struct {
	b *updateBucket
	c *bbolt.Cursor
}

// landed verifies the surroundings of the row that bbolt has moved to, for the next move.
func (m *updateMover) landed(k, v []byte) ([]byte, []byte) {
	if k == nil || !m.b.ensure(k) {
		return nil, nil
	}
	return k, v
}

func (m *updateMover) next() (k, v []byte) {
	defer m.b.tx.contain()
	if !m.b.tx.live() {
		return nil, nil
	}
	return m.landed(m.c.Next())
}

func (m *updateMover) seek(k []byte) (key, v []byte) {
	defer m.b.tx.contain()
	if !m.b.tx.live() || !m.b.ensure(k) {
		return nil, nil
	}
	if m.c == nil {
		m.c = m.b.bolt.Cursor()
	}
	return m.landed(m.c.Seek(k))
}
