package storage

import (
	"encoding/binary"
	"testing"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// cacheNode returns a node of one entry, and a digest that is given to it, in shard 0.
func cacheNode(t *testing.T, i int) (object.Digest, *fb.Node) {
	t.Helper()
	key := binary.BigEndian.AppendUint32(nil, uint32(i))
	content, err := fb.EncodeNode(0, []fb.Entry{{Key: key, Inline: true, Size: 100, Value: make([]byte, 100)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := fb.ParseNode(content)
	if err != nil {
		t.Fatal(err)
	}
	d := object.Digest{}
	binary.LittleEndian.PutUint64(d[1:], uint64(i)*cacheShards)
	return d, n
}

// TestCacheKeepsWhatComesLast: while nodes come and go, the last ones are there, and those that are
// used all along; what has not been used for long makes room, although it was used once.
func TestCacheKeepsWhatComesLast(t *testing.T) {
	s := &Store{}
	_, one := cacheNode(t, 0)
	size := sizeOf(one)
	const room, rounds = 40, 1000
	c := NewNodeCache(room * size * cacheShards)
	has := func(i int) bool {
		d, _ := cacheNode(t, i)
		return c.find(s, &d) != nil
	}
	use := func(i int) bool {
		d, _ := cacheNode(t, i)
		return c.get(s, &d) != nil
	}
	for i := range rounds {
		d, n := cacheNode(t, i)
		c.add(s, &d, n, n.Bytes(), 0, unknownDepth)
		if i < room && i%2 > 0 { // half of the first are used once
			use(i)
		}
		if !use(0) {
			t.Fatalf("the node that is used all along is gone when %d have come", i)
		}
	}
	for i := rounds - room/2; i < rounds; i++ {
		if !has(i) {
			t.Errorf("node %d of %d is gone, with room for %d", i, rounds, room)
		}
	}
	for i := 1; i < room; i++ {
		if has(i) {
			t.Errorf("node %d of %d is still there, with room for %d", i, rounds, room)
		}
	}
	sh := &c.shards[0]
	if want := sh.nodes.n; len(sh.queue) != want || sh.bytes != int64(want)*size || sh.bytes > sh.max {
		t.Errorf("a queue of %d and %d bytes for %d nodes of %d, at most %d", len(sh.queue), sh.bytes, want, size, sh.max)
	}
	c.drop(s)
	if sh.nodes.n != 0 || sh.bytes != 0 || len(sh.queue) != 0 || has(rounds-1) {
		t.Errorf("%d nodes are left of a page that has closed", sh.nodes.n)
	}
}
