package pack

import (
	"sync"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// cachedPieces bounds the cached tables, except the newest one: 48 bytes for each piece.
const cachedPieces = 64 << 10

// tableCache caches the tables of packs that were read lately. A full cache is emptied.
type tableCache struct {
	mu     sync.Mutex
	tables map[epoch.ID]*contents // guarded by mu, as pieces
	pieces int
}

// get returns the table of a pack, or nil.
func (t *tableCache) get(id epoch.ID) *contents {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tables[id]
}

// add caches a table.
func (t *tableCache) add(id epoch.ID, c *contents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pieces += c.weight(); t.tables == nil || t.pieces > cachedPieces {
		t.tables, t.pieces = make(map[epoch.ID]*contents), c.weight()
	}
	t.tables[id] = c
}

// weight returns the number of pieces that a table counts as: a block takes half as much as a
// piece.
func (c *contents) weight() int { return len(c.pieces) + len(c.blocks)/2 + 1 }
