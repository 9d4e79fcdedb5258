package flatbuffers

import "sync/atomic"

// unlinked stands in for a link to a node that a cache keeps and to which none leads.
var unlinked atomic.Pointer[Node]

// KeepIn copies the view into kept, a Node that nobody has seen yet, for a cache that keeps it:
// only such a node can be linked to, until Release. words is memory of Len() words that lies close
// to kept and goes to it, or nil.
func (nd *Node) KeepIn(kept *Node, words []uint64) {
	if words == nil {
		words = nd.words
	} else {
		copy(words, nd.words)
	}
	kept.words, kept.common, kept.prefix, kept.places = words, nd.common, nd.prefix, nd.places
	if nd.children > 0 {
		kept.links = make([]atomic.Pointer[Node], nd.n+1)
	}
	kept.home.Store(&unlinked)
}

// Release is for the cache that gives the node up: no link leads to it from then on, so that links
// keep nothing in memory.
func (nd *Node) Release() {
	if home := nd.home.Swap(nil); home != nil && home != &unlinked {
		home.CompareAndSwap(nd, nil)
	}
}

// Linked returns the node to which a gap was linked, and nil when there is none: then it must be
// looked for by its digest.
func (nd *Node) Linked(gap int) *Node {
	if uint(gap) >= uint(len(nd.links)) {
		return nil
	}
	return nd.links[gap].Load()
}

// Link lets Linked give the child that fills a gap. The caller has verified it against this node:
// that its keys lie between those of the gap if that lies between two keys, and its level. It does
// nothing unless caches keep both. One link leads to a node, the last one. It may be called
// concurrently.
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
		link.CompareAndSwap(child, nil) // it was released or linked meanwhile: look again
	}
}

// Use notes that the node was used, for the cache that keeps it.
func (nd *Node) Use() {
	if !nd.used.Load() {
		nd.used.Store(true)
	}
}

// TakeUse reports whether Use was called since the last call of TakeUse.
func (nd *Node) TakeUse() bool { return nd.used.Swap(false) }
