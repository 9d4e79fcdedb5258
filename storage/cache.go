package storage

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// DefaultCacheBytes is the size of a node cache when none is asked for.
const DefaultCacheBytes = 64 << 20

const (
	cacheShards = 16
	// nodeOverhead is what a cached node takes beside its bytes, at most for the usual ones: the
	// view with its words, links, its slots in table and queue.
	nodeOverhead = 448
	// roundingShare is the share of its bytes that the memory of a node may be longer than they
	// are.
	roundingShare = 16
)

// NodeCache keeps verified tree nodes in memory, up to a number of bytes. One cache serves any
// number of pages: a node belongs to its page, since its verification does. It is safe for
// concurrent use.
type NodeCache struct {
	misses atomic.Uint64
	shards [cacheShards]cacheShard
}

// cacheShard is a table and a queue with a second chance: who stands first and was used since he
// came to stand last goes there again, and else out. A node that has just come is the last to go:
// sync makes nodes of one commit and needs them for the next, and most of what it has needed before
// is in no tree any more.
type cacheShard struct {
	mu    sync.RWMutex
	nodes nodeTable     // guarded by mu
	queue []*cachedNode // guarded by mu
	bytes int64         // guarded by mu
	max   int64
	_     [32]byte // keeps the locks of two shards off one cache line
}

// cachedNode takes three cache lines.
type cachedNode struct {
	node   fb.Node // by value: a look-up finds it where it found the digest
	owner  *Store
	depth  atomic.Uint64 // see setDepth
	digest object.Digest
}

func (e *cachedNode) slot() uint64 { return slotOf(e.owner, &e.digest) }

func (e *cachedNode) size() int64 { return sizeOf(&e.node) }

// sizeOf returns about how much memory a cached node takes.
func sizeOf(n *fb.Node) int64 {
	bytes := int64(len(n.Bytes()))
	return bytes + bytes/roundingShare + nodeOverhead
}

// Nodes with room for their words behind them: a look-up that has waited for the one finds the
// other on the same page of memory.
type (
	cachedNode8  = withWords[[8]uint64]
	cachedNode16 = withWords[[16]uint64]
	cachedNode24 = withWords[[24]uint64]
	cachedNode32 = withWords[[32]uint64]
	cachedNode40 = withWords[[40]uint64]
)

type withWords[W any] struct {
	cachedNode
	words W
}

// newCachedNode returns an empty one and memory for n words.
func newCachedNode(n int) (*cachedNode, []uint64) {
	switch {
	case n <= 8:
		e := &cachedNode8{}
		return &e.cachedNode, e.words[:n:n]
	case n <= 16:
		e := &cachedNode16{}
		return &e.cachedNode, e.words[:n:n]
	case n <= 24:
		e := &cachedNode24{}
		return &e.cachedNode, e.words[:n:n]
	case n <= 32:
		e := &cachedNode32{}
		return &e.cachedNode, e.words[:n:n]
	case n <= 40:
		e := &cachedNode40{}
		return &e.cachedNode, e.words[:n:n]
	}
	return &cachedNode{}, nil
}

// NewNodeCache returns an empty cache of about the given number of bytes; 0 stands for
// DefaultCacheBytes.
func NewNodeCache(bytes int64) *NodeCache {
	if bytes <= 0 {
		bytes = DefaultCacheBytes
	}
	c := &NodeCache{}
	for i := range c.shards {
		c.shards[i].max = bytes / cacheShards
	}
	return c
}

// slotOf spreads the nodes of different pages. A digest is uniformly random, so that eight of its
// bytes serve as a hash.
func slotOf(s *Store, d *object.Digest) uint64 {
	return binary.LittleEndian.Uint64(d[1:]) ^ s.cacheSalt
}

func (c *NodeCache) find(s *Store, d *object.Digest) *cachedNode {
	slot := slotOf(s, d)
	sh := &c.shards[slot%cacheShards]
	sh.mu.RLock()
	e := sh.nodes.find(slot)
	sh.mu.RUnlock()
	if e == nil || e.owner != s || e.digest != *d {
		return nil
	}
	return e
}

func (c *NodeCache) get(s *Store, d *object.Digest) *fb.Node {
	e := c.find(s, d)
	if e == nil {
		return nil
	}
	e.node.Use()
	return &e.node
}

// unknownDepth is the depth of a node that a journal has made: only the log says how it is stored,
// if at all.
const unknownDepth = -1

// heldOnly says in the place of a depth that the page holds the node.
const heldOnly = 0xff

// setDepth notes how many differences lie between the stored node and one that is stored whole, as
// was found when so many deletions had been made: with the next one it may be gone.
func (e *cachedNode) setDepth(made uint64, depth int32) {
	if depth == unknownDepth {
		e.depth.Store(0)
	} else {
		e.depth.Store(made<<8 | uint64(depth+1))
	}
}

// knownDepth returns what setDepth has noted, if nothing was deleted since.
func (e *cachedNode) knownDepth(made uint64) (uint8, bool) {
	v := e.depth.Load()
	return uint8(v&0xff) - 1, v&0xff != 0 && v&0xff != heldOnly && v>>8 == made
}

// setHeld notes that the page held the node when so many deletions had been made.
func (e *cachedNode) setHeld(made uint64) {
	if v := e.depth.Load(); v&0xff == 0 || v>>8 != made {
		e.depth.CompareAndSwap(v, made<<8|heldOnly)
	}
}

// isHeld reports whether it is known that the page holds the node, since nothing was deleted after
// it was found there.
func (e *cachedNode) isHeld(made uint64) bool {
	v := e.depth.Load()
	return v&0xff != 0 && v>>8 == made
}

// add keeps a node and returns it as it is kept, or n where it is not. made is for setDepth. depth
// is that of its record in the log, or unknownDepth.
func (c *NodeCache) add(s *Store, d *object.Digest, n *fb.Node, made uint64, depth int32) *fb.Node {
	slot := slotOf(s, d)
	e, words := newCachedNode(n.Len())
	e.owner, e.digest = s, *d
	n.KeepIn(&e.node, words)
	e.setDepth(made, depth)
	sh := &c.shards[slot%cacheShards]
	size := e.size()
	if size > sh.max {
		return n
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if old := sh.nodes.find(slot); old != nil {
		if old.owner != s || old.digest != *d {
			return n
		}
		if depth != unknownDepth {
			old.setDepth(made, depth)
		}
		return &old.node
	}
	for sh.bytes+size > sh.max && len(sh.queue) > 0 {
		v := sh.queue[0]
		sh.queue[0] = nil
		sh.queue = sh.queue[1:]
		if v.node.TakeUse() {
			sh.queue = append(sh.queue, v)
		} else {
			sh.removeLocked(v)
		}
	}
	sh.nodes.add(e)
	sh.queue = append(sh.queue, e)
	sh.bytes += size
	return &e.node
}

// removeLocked removes a node that is not in the queue any more.
func (sh *cacheShard) removeLocked(v *cachedNode) {
	sh.nodes.remove(v)
	v.node.Release()
	sh.bytes -= v.size()
}

// remove forgets a node.
func (c *NodeCache) remove(s *Store, d *object.Digest) {
	e := c.find(s, d)
	if e == nil {
		return
	}
	sh := &c.shards[e.slot()%cacheShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i := slices.Index(sh.queue, e); i >= 0 {
		sh.queue = slices.Delete(sh.queue, i, i+1)
		sh.removeLocked(e)
	}
}

// drop forgets the nodes of a page that closes.
func (c *NodeCache) drop(s *Store) {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		sh.queue = slices.DeleteFunc(sh.queue, func(v *cachedNode) bool {
			if v.owner == s {
				sh.removeLocked(v)
			}
			return v.owner == s
		})
		sh.mu.Unlock()
	}
}
