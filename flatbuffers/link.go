package flatbuffers

import "sync/atomic"

// unlinked is the value of Node.home in a cached node to which no link leads.
var unlinked atomic.Pointer[Node]

// KeepIn copies the view into kept, a Node that is not shared yet, for a cache: only such a node
// can be linked to, until Release. content is Bytes() or a copy, and words is memory close to kept
// with room for Len() words, or nil. kept takes both over, and shares nothing else with the view.
func (nd *Node) KeepIn(kept *Node, content []byte, words []uint64) {
	kept.words, kept.common, kept.prefix, kept.places = append(words, nd.words...), nd.common, nd.prefix, nd.places
	kept.buf = content
	if nd.children > 0 {
		kept.links = make([]atomic.Pointer[Node], nd.n+1)
	}
	kept.home.Store(&unlinked)
}

// Release is called by the cache when it evicts the node: no link leads to it from then on, so that
// links do not keep it in memory.
func (nd *Node) Release() {
	if home := nd.home.Swap(nil); home != nil && home != &unlinked {
		home.CompareAndSwap(nd, nil)
	}
}

// Linked returns the node linked to a gap, or nil: the caller must then look it up by its digest.
func (nd *Node) Linked(gap int) *Node {
	if uint(gap) >= uint(len(nd.links)) {
		return nil
	}
	return nd.links[gap].Load()
}

// Link makes Linked return child for a gap. The caller has verified child against this node: its
// level, and, for a gap between two keys, that its keys lie between them. Link does nothing unless
// caches keep both nodes. Only the last link to a node is kept. It may be called concurrently.
func (nd *Node) Link(gap int, child *Node) {
	if uint(gap) >= uint(len(nd.links)) {
		return
	}
	link := &nd.links[gap]
	for {
		home := child.home.Load()
		if home == nil {
			return
		}
		link.Store(child)
		if child.home.CompareAndSwap(home, link) {
			if home != link && home != &unlinked {
				home.CompareAndSwap(child, nil)
			}
			return
		}
		link.CompareAndSwap(child, nil) // released or linked meanwhile: check again
	}
}

// Use records a use of the node, for the cache that keeps it.
func (nd *Node) Use() {
	if !nd.used.Load() {
		nd.used.Store(true)
	}
}

// TakeUse reports whether Use was called since the last call of TakeUse.
func (nd *Node) TakeUse() bool { return nd.used.Swap(false) }
