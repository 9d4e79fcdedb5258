package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/commit"
)

// History is what a reader of a checkpoint keeps in memory of its commits, which may be many: some
// 50 bytes for each. Commits go by the order in which they stand there. It knows them by the first
// 8 bytes of their ids: two that share these count as one commit that is there twice.
type History struct {
	names       []uint64    // the first bytes of the ids
	parents     [][2]uint32 // 1 + the number of a parent that is there, 0 for none
	generations []uint64
	timestamps  []int64
	slots       []uint32            // a table of 1 + numbers, at most half full, by names
	absent      map[uint64]struct{} // first bytes of the ids of parents that are not there: given up
}

// Len returns how many commits there are.
func (h *History) Len() int { return len(h.names) }

// Find returns the number of a commit.
func (h *History) Find(id commit.ID) (i int, ok bool) {
	if len(h.slots) == 0 {
		return 0, false
	}
	slot := h.slot(nameOf(id))
	return int(h.slots[slot]) - 1, h.slots[slot] != 0
}

// Parents returns the numbers of those parents of a commit that are there.
func (h *History) Parents(i int) []uint32 {
	var out []uint32
	for _, p := range h.parents[i] {
		if p != 0 {
			out = append(out, p-1)
		}
	}
	return out
}

// Generation returns the generation of a commit.
func (h *History) Generation(i int) uint64 { return h.generations[i] }

// Oldest returns the least timestamp, math.MaxInt64 when there are no commits.
func (h *History) Oldest() int64 {
	oldest := int64(math.MaxInt64)
	for _, t := range h.timestamps {
		oldest = min(oldest, t)
	}
	return oldest
}

func nameOf(id commit.ID) uint64 { return binary.BigEndian.Uint64(id[:8]) }

// slot returns where a name stands in the table, or would.
func (h *History) slot(name uint64) int {
	mask := len(h.slots) - 1
	at := int(name) & mask
	for h.slots[at] != 0 && h.names[h.slots[at]-1] != name {
		at = (at + 1) & mask
	}
	return at
}

// leastSlots is how long the table is at first.
const leastSlots = 64

// add adds the next commit. Parents stand before it if they are there.
func (h *History) add(c *commit.Commit) error {
	if c.IsFirst() {
		return errors.New("the first commit of a page is implied")
	}
	if 2*len(h.names) >= len(h.slots) {
		h.slots = make([]uint32, max(leastSlots, 2*len(h.slots)))
		for i, name := range h.names {
			h.slots[h.slot(name)] = uint32(i) + 1
		}
	}
	name := nameOf(c.ID)
	if _, ok := h.absent[name]; ok {
		return fmt.Errorf("commit %s stands behind its child", c.ID.Short())
	}
	slot := h.slot(name)
	if h.slots[slot] != 0 {
		return fmt.Errorf("commit %s is there twice", c.ID.Short())
	}
	var parents [2]uint32
	for k, p := range c.Parents {
		if i, ok := h.Find(p); ok {
			parents[k] = uint32(i) + 1
		} else if p != commit.First().ID {
			if h.absent == nil {
				h.absent = map[uint64]struct{}{}
			}
			h.absent[nameOf(p)] = struct{}{}
		}
	}
	h.names, h.parents = append(h.names, name), append(h.parents, parents)
	h.generations, h.timestamps = append(h.generations, c.Generation), append(h.timestamps, c.Timestamp)
	h.slots[slot] = uint32(len(h.names))
	return nil
}

// IsParent returns which commits are parents of others.
func (h *History) IsParent() []bool {
	is := make([]bool, h.Len())
	for i := range h.parents {
		for _, p := range h.parents[i] {
			if p != 0 {
				is[p-1] = true
			}
		}
	}
	return is
}
