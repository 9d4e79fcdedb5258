package storage_test

import (
	"testing"

	"github.com/ledgerd/ledger/storage"
)

// TestReadOfAMovedNode reads a node that compaction stores whole, deleting the base of its
// difference, between the two look-ups of the reader.
func TestReadOfAMovedNode(t *testing.T) {
	w := newWorld(t, 1, storage.Options{Cache: storage.NewNodeCache(1)})
	w.open()
	c := w.commit(many(0, 20))
	w.must(storage.LoadMoved(t.Context(), w.s, c.Root))
	w.close()
}
