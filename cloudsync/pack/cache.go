package pack

import (
	"slices"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// cachedPieces bounds the cached tables, except the newest one: 48 bytes for each piece.
const cachedPieces = 64 << 10

// tableCache caches the tables of recently used packs.
type tableCache struct {
	mu     sync.Mutex
	order  []epoch.ID // least recently used first; guarded by mu
	tables map[epoch.ID]*contents
	pieces int
}

// get returns the table of a pack, or nil.
func (t *tableCache) get(id epoch.ID) *contents {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tables[id]
	if c != nil {
		i := slices.Index(t.order, id)
		t.order = append(slices.Delete(t.order, i, i+1), id)
	}
	return c
}

// add caches a table.
func (t *tableCache) add(id epoch.ID, c *contents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables == nil {
		t.tables = make(map[epoch.ID]*contents)
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

// weight returns the number of pieces that a table counts as: a block takes half as much as a
// piece.
func (c *contents) weight() int { return len(c.pieces) + len(c.blocks)/2 + 1 }
