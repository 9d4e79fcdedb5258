package storage

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// DefaultCacheBytes is the default size of a node cache.
const DefaultCacheBytes = 64 << 20

const (
	cacheShards = 16
	// nodeOverhead is the memory of a cached node beside its bytes, at most for usual nodes: the
	// view with its words, links, and the slots in table and queue.
	nodeOverhead = 448
	// roundingShare: the memory of a node may exceed its bytes by one such share.
	roundingShare = 16
)

// NodeCache keeps verified tree nodes in memory, up to a number of bytes. One cache serves any
// number of pages: a node belongs to its page, since its verification does. It is safe for
// concurrent use.
type NodeCache struct {
	misses atomic.Uint64
	shards [cacheShards]cacheShard
}

// cacheShard is a table and a second-chance queue: the first node goes to the end if it was used
// since it was last put there, and is evicted otherwise. A new node is the last to be evicted: sync
// makes nodes of one commit and needs them for the next, while most older nodes are in no tree any
// more.
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
	node   fb.Node // by value: a look-up finds it beside the digest
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

// Nodes with room for their words after them: a look-up that has loaded the node finds the words on
// the same page of memory.
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

// newCachedNode returns an empty node and room for n words.
func newCachedNode(n int) (*cachedNode, []uint64) {
	switch {
	case n <= 8:
		e := &cachedNode8{}
		return &e.cachedNode, e.words[:0:n]
	case n <= 16:
		e := &cachedNode16{}
		return &e.cachedNode, e.words[:0:n]
	case n <= 24:
		e := &cachedNode24{}
		return &e.cachedNode, e.words[:0:n]
	case n <= 32:
		e := &cachedNode32{}
		return &e.cachedNode, e.words[:0:n]
	case n <= 40:
		e := &cachedNode40{}
		return &e.cachedNode, e.words[:0:n]
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

// unknownDepth is the depth of a node made by a journal: only the log records how it is stored, if
// at all.
const unknownDepth = -1

// heldOnly, in place of a depth, says that the page holds the node.
const heldOnly = 0xff

// setDepth records the number of differences between the stored node and a whole one. made is the
// count of deletions at that time: a later deletion may remove the node.
func (e *cachedNode) setDepth(made uint64, depth int32) {
	if depth == unknownDepth {
		e.depth.Store(0)
	} else {
		e.depth.Store(made<<8 | uint64(depth+1))
	}
}

// knownDepth returns the depth from setDepth, if nothing was deleted since.
func (e *cachedNode) knownDepth(made uint64) (uint8, bool) {
	v := e.depth.Load()
	return uint8(v&0xff) - 1, v&0xff != 0 && v&0xff != heldOnly && v>>8 == made
}

// setHeld records that the page held the node when the count of deletions was made.
func (e *cachedNode) setHeld(made uint64) {
	if v := e.depth.Load(); v&0xff == 0 || v>>8 != made {
		e.depth.CompareAndSwap(v, made<<8|heldOnly)
	}
}

// isHeld reports whether the page is known to hold the node: nothing was deleted since the node was
// found.
func (e *cachedNode) isHeld(made uint64) bool {
	v := e.depth.Load()
	return v&0xff != 0 && v>>8 == made
}

// add caches a node and returns the cached one, or n where it is not cached. content, the bytes of
// the node, belongs to the cache from then on. made is for setDepth. depth is that of its record in
// the log, or unknownDepth.
func (c *NodeCache) add(s *Store, d *object.Digest, n *fb.Node, content []byte, made uint64, depth int32) *fb.Node {
	slot := slotOf(s, d)
	e, words := newCachedNode(n.Len())
	e.owner, e.digest = s, *d
	n.KeepIn(&e.node, content, words)
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

// removeLocked removes a node that has left the queue.
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
