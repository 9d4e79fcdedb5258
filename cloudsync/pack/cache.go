package pack

import (
	"slices"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/format"
)

// cachedPieces bounds the tables that are remembered, but for the newest one: 48 bytes for each
// piece.
const cachedPieces = 64 << 10

// tableCache remembers the tables of the packs that were used last.
type tableCache struct {
	mu     sync.Mutex
	order  []format.ID // least recently used first; guarded by mu
	tables map[format.ID]*contents
	pieces int
}

// get returns the table of a pack, or nil.
func (t *tableCache) get(id format.ID) *contents {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tables[id]
	if c != nil {
		i := slices.Index(t.order, id)
		t.order = append(slices.Delete(t.order, i, i+1), id)
	}
	return c
}

// add remembers a table.
func (t *tableCache) add(id format.ID, c *contents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables == nil {
		t.tables = make(map[format.ID]*contents)
	}
	if t.tables[id] != nil {
		return
	}
	t.tables[id], t.order, t.pieces = c, append(t.order, id), t.pieces+c.weight()
	for t.pieces > cachedPieces && len(t.order) > 1 {
		old := t.order[0]
		t.pieces -= t.tables[old].weight()
		t.order = slices.Delete(t.order, 0, 1)
		delete(t.tables, old)
	}
}

// weight is how many pieces a table counts for: a block takes half as much as a piece.
func (c *contents) weight() int { return len(c.pieces) + len(c.blocks)/2 + 1 }

// entryCache remembers log entries, as they are stored, that came with ranges.
type entryCache struct {
	limit int64 // of bytes

	mu      sync.Mutex
	order   []uint64 // oldest first; guarded by mu
	entries map[uint64][]byte
	bytes   int64
}

// get returns an entry, or nil.
func (e *entryCache) get(number uint64) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.entries[number]
}

// add remembers an entry, which must not share memory with others, and forgets the oldest ones
// beyond the limit.
func (e *entryCache) add(number uint64, stored []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entries == nil {
		e.entries = make(map[uint64][]byte)
	}
	if e.entries[number] != nil || int64(len(stored)) > e.limit {
		return
	}
	e.entries[number], e.order, e.bytes = stored, append(e.order, number), e.bytes+int64(len(stored))
	for e.bytes > e.limit {
		old := e.order[0]
		e.bytes -= int64(len(e.entries[old]))
		e.order = slices.Delete(e.order, 0, 1)
		delete(e.entries, old)
	}
}
