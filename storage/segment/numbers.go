package segment

// numbers assigns the numbers of batches, and tracks up to which all are done.
type numbers struct {
	last     uint64 // assigned last
	complete uint64 // all up to it are done
	done     map[uint64]struct{}
}

// next assigns a number.
func (n *numbers) next() uint64 {
	n.last++
	return n.last
}

// finish records that a batch is durable, or has failed for good. A number whose sync failed is
// never finished (I6).
func (n *numbers) finish(number uint64) {
	if n.done == nil {
		n.done = map[uint64]struct{}{}
	}
	n.done[number] = struct{}{}
	for {
		if _, ok := n.done[n.complete+1]; !ok {
			return
		}
		n.complete++
		delete(n.done, n.complete)
	}
}
