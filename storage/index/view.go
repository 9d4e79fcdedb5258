package index

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// txState is the part common to both kinds of transaction of a File.
type txState struct {
	f      *File
	bolt   *bbolt.Tx
	im     image
	root   tree
	done   bool
	failed bool // this transaction found the damage
}

// fail records damage. The operation that found it returns nothing; View or Update returns the
// error.
func (tx *txState) fail(err error) error {
	tx.failed = true
	return tx.f.damaged(err)
}

// contain is deferred in every operation: a panic of bbolt or a fault is damage (I1).
func (tx *txState) contain() {
	if r := recover(); r != nil {
		_ = tx.fail(fmt.Errorf("read pages: %v", r)) // returned by outcome
	}
}

// outcome is the result of a transaction whose function returned err.
func (tx *txState) outcome(err error) error {
	if tx.failed {
		return tx.f.damage.Load()
	}
	return err
}

// live reports whether operations are still possible.
func (tx *txState) live() bool { return !tx.done && !tx.failed }

func (tx *txState) check(doing string) error {
	switch {
	case tx.done:
		return errDone(doing)
	case tx.failed:
		return tx.f.damage.Load()
	}
	return nil
}

// viewTx reads the mapping itself, which is faster than bbolt. Every page is verified before its
// use.
type viewTx struct {
	txState
	name string // of bucket
	// The bucket of the last call: callers that look many rows up ask for the same one again and
	// again.
	bucket *viewBucket
}

func (tx *viewTx) Bucket(name string) (b Bucket) {
	if tx.done {
		return nil
	}
	defer func() {
		if tx.failed {
			b = &viewBucket{tx: tx} // not nil, which would mean that there is no bucket: it has no rows
		}
	}()
	defer tx.contain()
	if tx.failed {
		return nil
	}
	if tx.bucket != nil && tx.name == name {
		return tx.bucket
	}
	t, err := tx.root.bucket([]byte(name))
	if err != nil {
		_ = tx.fail(err)
		return nil
	}
	if t == nil {
		return nil
	}
	tx.name, tx.bucket = name, &viewBucket{tx: tx, t: *t}
	return tx.bucket
}

func (tx *viewTx) CreateBucket(string) (Bucket, error) { return nil, errView("create bucket") }

type viewBucket struct {
	tx *viewTx
	t  tree
}

func (b *viewBucket) Get(k []byte) (v []byte) {
	if !b.tx.live() {
		return nil
	}
	defer b.tx.contain()
	p, i, found, err := b.t.find(k)
	if err != nil {
		_ = b.tx.fail(err)
		return nil
	}
	if !found {
		return nil
	}
	return p.Value(i)
}

func (b *viewBucket) Put(_, _ []byte) error { return errView("put row") }

func (b *viewBucket) Delete([]byte) error { return errView("delete row") }

func (b *viewBucket) Cursor() Cursor { return &cursor{m: &viewMover{b: b, s: stack{t: &b.t}}} }

func (b *viewBucket) SetFillPercent(float64) {}

type viewMover struct {
	b *viewBucket
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
