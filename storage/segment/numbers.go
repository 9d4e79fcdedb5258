package segment

// numbers hands out the numbers of batches, and knows up to which all are done.
type numbers struct {
	last     uint64 // that was handed out
	complete uint64 // all up to it are done
	done     map[uint64]struct{}
}

// next hands out a number.
func (n *numbers) next() uint64 {
	n.last++
	return n.last
}

// finish notes that a batch is durable, or has failed and will never be there. A number whose sync
// failed is never finished (I6).
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
