package outgoing

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/storage"
)

const (
	// wasteShare says how much of what a new device reads of packs may be dead: one part in so many
	// of all that it reads of the checkpoint, and wasteBytes more.
	wasteShare = 12
	wasteBytes = 128 << 10
	// spanGap is how many bytes are read with those around them rather than with another request.
	spanGap = 256 << 10
	// requestBytes and spareRequests say how many requests a new device may make for packs: one for
	// each requestBytes that it reads, and some more.
	requestBytes, spareRequests = 4 << 20, 32
	// pieceTable is about what a piece takes in the table of its pack.
	pieceTable = 37
	// seenShift is by how much the offset of a piece in its block is shifted to tell it from
	// others: those of values that are objects are longer.
	seenShift = 8
)

// Waste returns how much that is dead a new device may read for so many bytes that are live:
// checkpoints see to it that it is not much more.
func Waste(live uint64) uint64 { return live / wasteShare }

// livePack says what of a pack is live. It takes 96 bytes for each block.
type livePack struct {
	blocks map[uint32]*liveBlock // those with live pieces of EAGER values
	whole  bool                  // all is, as the pack is new, and of EAGER values
}

type liveBlock struct {
	offset int64
	stored uint32
	bytes  uint32   // of live pieces
	seen   []uint64 // bits for the beginnings of pieces that are counted
}

func (k *livePack) eager() bool { return k.whole || len(k.blocks) > 0 }

// add counts a piece, once.
func (k *livePack) add(c *storage.CloudPlace) {
	f := k.blocks[c.Block]
	if f == nil {
		if k.blocks == nil {
			k.blocks = map[uint32]*liveBlock{}
		}
		f = &liveBlock{offset: c.Offset, stored: c.StoredBytes}
		k.blocks[c.Block] = f
	}
	bit := c.At >> seenShift
	for int(bit/64) >= len(f.seen) {
		f.seen = append(f.seen, 0)
	}
	if f.seen[bit/64]>>(bit%64)&1 == 0 {
		f.seen[bit/64] |= 1 << (bit % 64)
		f.bytes += c.Bytes
	}
}

// packRead is how a new device reads a pack.
type packRead struct {
	id       format.ID
	spans    []format.BlockSpan // nil: the whole pack
	live     int64              // bytes of live pieces
	bytes    int64              // that are read
	requests int
	fixed    bool // it is new
}

// reads returns how the packs with pieces of EAGER values are to be read.
func (l *live) reads(refs []format.PackRef) []packRead {
	var rs []packRead
	for i := range refs {
		ref := &refs[i]
		if ref.Eager {
			rs = append(rs, readOf(ref, l.packs[ref.ID]))
		}
	}
	return rs
}

// readOf returns how a pack is to be read: whole, unless parts of it are much less.
func readOf(ref *format.PackRef, k *livePack) packRead {
	r := packRead{id: ref.ID, bytes: int64(ref.Bytes), requests: 1, fixed: k.whole}
	if k.whole {
		r.live = r.bytes
		return r
	}
	var end int64
	parts := packRead{id: ref.ID, bytes: pieceTable * int64(ref.Pieces), requests: 1}
	for _, number := range slices.Sorted(maps.Keys(k.blocks)) {
		f := k.blocks[number]
		parts.live += int64(f.bytes)
		n := len(parts.spans)
		if n > 0 && (f.offset-end <= spanGap || parts.spans[n-1].First+parts.spans[n-1].Count == number) {
			parts.spans[n-1].Count = number + 1 - parts.spans[n-1].First
			parts.bytes += f.offset - end + int64(f.stored)
		} else {
			parts.spans = append(parts.spans, format.BlockSpan{First: number, Count: 1})
			parts.bytes += int64(f.stored)
		}
		end = f.offset + int64(f.stored)
	}
	parts.requests += len(parts.spans)
	r.live = parts.live
	if r.bytes-parts.bytes < spanGap*int64(parts.requests-1) {
		return r
	}
	return parts
}

// leave returns the packs whose live pieces are to go to new ones, so that what a new device reads
// is little more than what is live, with few requests. other is what it reads beside packs.
func leave(rs []packRead, other uint64) map[format.ID]struct{} {
	left := map[format.ID]struct{}{}
	var read, live int64
	requests := 0
	for i := range rs {
		read, live, requests = read+rs[i].bytes, live+rs[i].live, requests+rs[i].requests
	}
	rest := slices.DeleteFunc(slices.Clone(rs), func(r packRead) bool { return r.fixed })
	give := func(r packRead) {
		left[r.id] = struct{}{}
		read -= r.bytes - r.live
		requests -= r.requests
	}
	slices.SortFunc(rest, func(a, b packRead) int {
		return cmp.Compare(float64(a.live)/float64(a.bytes), float64(b.live)/float64(b.bytes))
	})
	all := int64(other) + live
	for len(rest) > 0 && read-live > all/wasteShare+wasteBytes && rest[0].live < rest[0].bytes {
		give(rest[0])
		rest = rest[1:]
	}
	slices.SortFunc(rest, func(a, b packRead) int { return cmp.Compare(a.live, b.live) })
	moved := int64(0)
	for len(rest) > 1 && rest[0].live < requestBytes && requests+int(moved/format.PackBytes) > int(all/requestBytes)+spareRequests {
		give(rest[0])
		moved += rest[0].live
		rest = rest[1:]
	}
	return left
}

// partsOf returns the packs of which only parts are read.
func partsOf(rs []packRead) (parts []format.PartialPack) {
	for i := range rs {
		if rs[i].spans != nil {
			parts = append(parts, format.PartialPack{ID: rs[i].id, Spans: rs[i].spans})
		}
	}
	return parts
}
