package storage

import (
	"testing"

	"github.com/ledgerd/ledger/object"
)

// TestNumberCache remembers the numbers of digests, of which some begin with the same bytes.
func TestNumberCache(t *testing.T) {
	var c numberCache
	digests := make([]object.Digest, 30)
	for i := range digests {
		digests[i][1], digests[i][20] = byte(i%10), byte(i)
	}
	want := func(from uint64) {
		t.Helper()
		for i := range digests {
			n := uint64(i) + 1
			if n < from {
				n = 0
			}
			if got := c.get(&digests[i]); got != n {
				t.Fatalf("number %d of digest %d, want %d", got, i, n)
			}
		}
	}
	for i := range digests {
		c.put(&digests[i], uint64(i)+1)
	}
	want(1)
	for i := range 15 {
		c.forget(&digests[i])
	}
	want(16)
	for i := range digests {
		c.put(&digests[i], uint64(i)+1)
	}
	want(1)
	c.trim()
	want(1)
	c.clear()
	want(31)
}
