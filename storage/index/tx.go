package index

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger/internal/boltpage"
)

// fileTx is a transaction of a File. A view reads the mapping itself, which is faster than bbolt,
// and verifies every page before its use. An update works through bbolt. Before bbolt reads a leaf,
// fileTx verifies it and its neighbours (bbolt may merge it with one of them) in the tree as of the
// beginning of the transaction (I2); later changes of the transaction are in bbolt's memory.
type fileTx struct {
	f        *File
	bolt     *bbolt.Tx
	im       boltpage.Image
	root     tree
	writable bool
	done     bool
	failed   bool          // this transaction found the damage
	open     []*fileBucket // so far
}

// fail records damage. The operation that found it returns nothing; View or Update returns the
// error.
func (tx *fileTx) fail(err error) error {
	tx.failed = true
	return tx.f.damaged(err)
}

// contain is deferred in every operation: a panic of bbolt or a fault is damage (I1).
func (tx *fileTx) contain() {
	if r := recover(); r != nil {
		_ = tx.fail(fmt.Errorf("read pages: %v", r)) // returned by outcome
	}
}

// outcome is the result of a transaction whose function returned err.
func (tx *fileTx) outcome(err error) error {
	if tx.failed {
		return tx.f.damage.Load()
	}
	return err
}

// live reports whether operations are still possible.
func (tx *fileTx) live() bool { return !tx.done && !tx.failed }

// check returns an error unless changes are possible.
func (tx *fileTx) check(doing string) error {
	switch {
	case !tx.writable:
		return errView(doing)
	case tx.done:
		return errDone(doing)
	}
	return tx.outcome(nil)
}

// Bucket implements Tx.
func (tx *fileTx) Bucket(name string) (b Bucket) {
	if tx.done {
		return nil
	}
	defer func() {
		if tx.failed {
			b = &fileBucket{tx: tx} // not nil, which would mean that there is no bucket: it has no rows
		}
	}()
	defer tx.contain()
	for _, b := range tx.open {
		if b.name == name {
			return b
		}
	}
	if tx.failed {
		return nil
	}
	t, err := tx.root.bucket([]byte(name))
	if err != nil {
		_ = tx.fail(err)
		return nil
	}
	if t == nil && !tx.writable {
		return nil
	}
	made := &fileBucket{tx: tx, name: name, tree: t}
	if tx.writable {
		if made.bolt, err = tx.bolt.CreateBucketIfNotExists([]byte(name)); err != nil {
			_ = tx.fail(err)
			return nil
		}
	}
	tx.open = append(tx.open, made)
	return made
}

type fileBucket struct {
	tx      *fileTx
	name    string
	tree    *tree         // the bucket when the transaction began; nil when there was none
	bolt    *bbolt.Bucket // nil in a view
	lo, hi  []byte
	known   bool // the leaf for keys from lo to hi, and its neighbours, are verified
	changes uint64
}

// ensure verifies what bbolt may read for an operation on k.
func (b *fileBucket) ensure(k []byte) bool {
	if b.tree == nil || b.tree.root == 0 ||
		b.known && (b.lo == nil || bytes.Compare(k, b.lo) >= 0) && (b.hi == nil || bytes.Compare(k, b.hi) < 0) {
		return true
	}
	lo, hi, err := b.tree.verifyAround(k)
	if err != nil {
		_ = b.tx.fail(err)
		return false
	}
	b.lo, b.hi, b.known = lo, hi, true
	return true
}

// Get implements Bucket.
func (b *fileBucket) Get(k []byte) (v []byte) {
	if !b.tx.live() || len(k) == 0 {
		return nil
	}
	defer b.tx.contain()
	if b.tx.writable {
		if !b.ensure(k) {
			return nil
		}
		return b.bolt.Get(k)
	}
	p, i, found, err := b.tree.find(k)
	if err != nil {
		_ = b.tx.fail(err)
		return nil
	}
	if !found {
		return nil
	}
	return p.Value(i)
}

// Put implements Bucket.
func (b *fileBucket) Put(k, v []byte) error {
	if err := checkRow(k, v); err != nil {
		return err
	}
	if v == nil {
		v = []byte{} // so that Get can tell an empty value from none
	}
	return b.change("put row", k, func() error { return b.bolt.Put(k, v) })
}

// Delete implements Bucket.
func (b *fileBucket) Delete(k []byte) error {
	return b.change("delete row", k, func() error { return b.bolt.Delete(k) })
}

// change makes bbolt change the row of k.
func (b *fileBucket) change(doing string, k []byte, apply func() error) (err error) {
	if err := b.tx.check(doing); err != nil || len(k) == 0 {
		return err
	}
	defer func() { err = b.tx.outcome(err) }()
	defer b.tx.contain()
	if !b.ensure(k) {
		return nil // outcome returns the error
	}
	b.changes++
	if err := apply(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Cursor implements Bucket.
func (b *fileBucket) Cursor() Cursor {
	if b.tx.writable {
		return &cursor{m: &updateMover{b: b}, changes: &b.changes}
	}
	return &cursor{m: &viewMover{b: b, s: stack{t: b.tree}}}
}

// SetFillPercent implements Bucket.
func (b *fileBucket) SetFillPercent(p float64) {
	if b.tx.writable && b.tx.live() && p >= 0.1 && p <= 1 {
		b.bolt.FillPercent = p
	}
}

// viewMover moves through the pages of a tree.
type viewMover struct {
	b *fileBucket
	s stack
}

// row returns the row at which a move of the stack has arrived.
func (m *viewMover) row(ok bool, err error) (k, v []byte) {
	if err != nil {
		_ = m.b.tx.fail(err)
		return nil, nil
	}
	if !ok {
		return nil, nil
	}
	return m.s.row()
}

func (m *viewMover) next() (k, v []byte) {
	if !m.b.tx.live() {
		return nil, nil
	}
	defer m.b.tx.contain()
	return m.row(m.s.next())
}

func (m *viewMover) seek(k []byte) (key, v []byte) {
	if !m.b.tx.live() {
		return nil, nil
	}
	defer m.b.tx.contain()
	return m.row(m.s.seek(k))
}

// updateMover is a bbolt cursor. It may pass leaves that deletions have emptied. The next row then
// lies in a leaf beside the last of them, which was verified before the deletions.
type updateMover struct {
	b *fileBucket
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
	if !m.b.tx.live() {
		return nil, nil
	}
	defer m.b.tx.contain()
	return m.landed(m.c.Next())
}

func (m *updateMover) seek(k []byte) (key, v []byte) {
	if !m.b.tx.live() {
		return nil, nil
	}
	defer m.b.tx.contain()
	if !m.b.ensure(k) {
		return nil, nil
	}
	if m.c == nil {
		m.c = m.b.bolt.Cursor()
	}
	return m.landed(m.c.Seek(k))
}
