package segment

import "slices"

// maxPending bounds the batches between the last Position and the newest that are remembered one by
// one. Beyond, a Position for one of the oldest is a lower one.
const maxPending = 1 << 17

// numbers hands out the numbers of batches, and knows which are done.
type numbers struct {
	origin   Position // what Open began with
	base     Position // reflects every batch up to upTo
	upTo     uint64
	complete uint64
	pending  []entry // of the numbers behind upTo, ascending without gaps
}

// entry is the state of one number.
type entry struct {
	state state
	info  BatchInfo // when durable
}

type state uint8

const (
	underway state = iota
	durable
	failed
)

// next hands out a number.
func (n *numbers) next() uint64 {
	n.pending = append(n.pending, entry{})
	return n.upTo + uint64(len(n.pending))
}

// done sets the state of a number. A number whose sync failed stays underway (I6).
func (n *numbers) done(number uint64, s state, info BatchInfo) {
	n.pending[number-n.upTo-1] = entry{s, info}
	for n.complete < n.upTo+uint64(len(n.pending)) && n.pending[n.complete-n.upTo].state != underway {
		n.complete++
	}
	if len(n.pending) >= 2*maxPending {
		n.fold(n.complete - min(n.complete, maxPending))
	}
}

// forget takes back the batches that lie in a segment from start on, as if they had failed. No
// position reflects them. It returns where they began, the last one first.
func (n *numbers) forget(segment uint32, start uint64) (begun []End) {
	for i, e := range slices.Backward(n.pending) {
		if e.state == durable && e.info.Segment == segment && e.info.Start >= start {
			n.pending[i] = entry{state: failed}
			begun = append(begun, End{segment, e.info.Start})
		}
	}
	return begun
}

// fold moves what is complete up to a number into base.
func (n *numbers) fold(upTo uint64) {
	upTo = min(upTo, n.complete)
	if upTo <= n.upTo {
		return
	}
	count := int(upTo - n.upTo)
	for _, e := range n.pending[:count] {
		if e.state == durable {
			n.base.Add(e.info)
		}
	}
	n.pending = append([]entry(nil), n.pending[count:]...)
	n.upTo = upTo
}

// position returns a position up to a number, or a lower one.
func (n *numbers) position(upTo uint64) Position {
	if upTo < n.upTo {
		return n.origin.Clone()
	}
	n.fold(upTo)
	return n.base.Clone()
}
