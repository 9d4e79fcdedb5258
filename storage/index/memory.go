package index

import (
	"bytes"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Memory is a DB in memory, for tests, for simulation and for reading a page whose index cannot be
// written. It is safe for concurrent use. It does not survive the process.
type Memory struct {
	state atomic.Pointer[memState]
	mu    sync.Mutex // held by Update and Clone
}

// memState is immutable once it is published.
type memState struct {
	buckets map[string]*rows
}

type row struct{ k, v []byte }

type rows = btree.BTreeG[row]

func newRows() *rows {
	return btree.NewBTreeGOptions(func(a, b row) bool { return bytes.Compare(a.k, b.k) < 0 }, btree.Options{NoLocks: true})
}

// NewMemory returns an empty database.
func NewMemory() *Memory {
	m := &Memory{}
	m.state.Store(&memState{buckets: map[string]*rows{}})
	return m
}

// Clone returns a database with the same rows; the two do not see each other's later changes. Its
// time is proportional to the number of buckets, not of rows. It waits for a running Update.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	next := &memState{buckets: map[string]*rows{}}
	for name, r := range m.state.Load().buckets {
		next.buckets[name] = r.Copy()
	}
	c.state.Store(next)
	return c
}

// Clear removes all buckets. It waits for a running Update.
func (m *Memory) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Store(&memState{buckets: map[string]*rows{}})
}

// View runs fn on the present state; see DB.
func (m *Memory) View(fn func(Tx) error) error {
	tx := &memTx{state: m.state.Load()}
	defer tx.finish()
	return fn(tx)
}

// Update runs fn and publishes its changes when it returns nil; see DB.
func (m *Memory) Update(fn func(Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	tx := &memTx{state: &memState{buckets: maps.Clone(m.state.Load().buckets)}, writable: true, open: map[string]*memBucket{}}
	defer tx.finish()
	if err := fn(tx); err != nil {
		return err
	}
	m.state.Store(tx.state)
	return nil
}

// Close does nothing: the rows stay until the last reference is gone.
func (m *Memory) Close() error { return nil }

type memTx struct {
	state    *memState
	writable bool
	done     bool
	open     map[string]*memBucket // of a writable transaction
}

func (tx *memTx) finish() { tx.done = true }

func (tx *memTx) Bucket(name string) Bucket {
	if tx.done {
		return nil
	}
	r := tx.state.buckets[name]
	if !tx.writable {
		if r == nil {
			return nil
		}
		return &memBucket{tx: tx, name: name, rows: r}
	}
	b := tx.open[name]
	if b == nil {
		b = &memBucket{tx: tx, name: name, rows: r}
		if r == nil {
			b.rows, b.own = newRows(), true
			tx.state.buckets[name] = b.rows
		}
		tx.open[name] = b
	}
	return b
}

type memBucket struct {
	tx      *memTx
	name    string
	rows    *rows
	own     bool // rows is this transaction's copy
	changes uint64
}

func (b *memBucket) Get(k []byte) []byte {
	if b.tx.done {
		return nil
	}
	r, ok := b.rows.Get(row{k: k})
	if !ok {
		return nil
	}
	return r.v
}

// change gives the transaction its own copy of the rows.
func (b *memBucket) change(doing string) error {
	switch {
	case b.tx.done:
		return errDone(doing)
	case !b.tx.writable:
		return errView(doing)
	}
	if !b.own {
		b.rows = b.rows.Copy()
		b.tx.state.buckets[b.name] = b.rows
		b.own = true
	}
	b.changes++
	return nil
}

func (b *memBucket) Put(k, v []byte) error {
	if err := checkRow(k, v); err != nil {
		return err
	}
	if err := b.change("put row"); err != nil {
		return err
	}
	// One allocation for both; the caller may change its slices when the transaction is over.
	buf := make([]byte, len(k)+len(v))
	copy(buf, k)
	copy(buf[len(k):], v)
	b.rows.Set(row{k: buf[:len(k):len(k)], v: buf[len(k):]})
	return nil
}

func (b *memBucket) Delete(k []byte) error {
	if err := b.change("delete row"); err != nil {
		return err
	}
	b.rows.Delete(row{k: k})
	return nil
}

func (b *memBucket) Cursor() Cursor {
	c := &cursor{m: &memMover{b: b}}
	if b.tx.writable {
		c.changes = &b.changes
	}
	return c
}

func (b *memBucket) SetFillPercent(float64) {}

// memMover makes a new iterator for each placement, because a write may have replaced the tree.
type memMover struct {
	b  *memBucket
	it btree.IterG[row]
}

func (m *memMover) row(ok bool) (k, v []byte) {
	if !ok {
		return nil, nil
	}
	r := m.it.Item()
	return r.k, r.v
}

func (m *memMover) reset() bool {
	if m.b.tx.done {
		return false
	}
	m.it.Init(m.b.rows, false)
	return true
}

func (m *memMover) next() (k, v []byte) { return m.row(!m.b.tx.done && m.it.Next()) }

func (m *memMover) seek(k []byte) (key, v []byte) { return m.row(m.reset() && m.it.Seek(row{k: k})) }
