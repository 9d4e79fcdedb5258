package changes

import (
	"encoding/binary"
	"iter"
	"unsafe"

	mapbtree "github.com/tidwall/btree"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// changeOverhead is the approximate memory of a change beside its key and value.
const changeOverhead = 80

// blockBytes is the greatest size of a block of rows.
const blockBytes = 64 << 10

// A row is the key, as in the map, a tag byte and its data:
//
//	tag          rest
//	rowDelete    nothing
//	rowInline    the value
//	rowEager     33 bytes of digest, size as uvarint
//	rowLazy      the same
const (
	rowDelete = iota
	rowInline
	rowEager
	rowLazy

	// maxRowHead bounds the length of a row without its key and an inline value.
	maxRowHead = 1 + object.DigestSize + binary.MaxVarintLen64
)

// place is where a row is: the number of its block, where it begins there, and its length.
type place struct {
	block    uint32
	at, size uint16
}

const _ = uint16(limits.MaxKeyBytes + maxRowHead + btree.InlineLimit) // the greatest length of a row

// Journal holds changes as rows in memory, sorted by key. The zero Journal is empty. It belongs to
// one goroutine.
//
// Millions of rows may be in memory. They are packed into large blocks without pointers, since a
// heap object for each would dominate the cost of recording it. So would moving slices of them
// within the map.
type Journal struct {
	rows    mapbtree.Map[string, place]
	blocks  [][]byte // of rows; the last one has spare room
	bytes   int64
	version uint64
}

// Set records a copy of a change, in place of one of the same key. Key and value are as a tree
// takes them.
func (j *Journal) Set(c *btree.Change) {
	last, n := len(j.blocks)-1, len(c.Entry.Key)
	if room := n + maxRowHead + len(c.Entry.Value); last < 0 || cap(j.blocks[last])-len(j.blocks[last]) < room {
		j.blocks = append(j.blocks, make([]byte, 0, max(room, min(blockBytes, int(j.bytes/2)))))
		last++
	}
	b := j.blocks[last]
	at := len(b)
	b = appendRow(append(b, c.Entry.Key...), c)
	j.blocks[last] = b
	key := unsafe.String(&b[at], n)                                        // this part of the block is never changed again
	j.rows.Load(key, place{uint32(last), uint16(at), uint16(len(b) - at)}) // like Set, but quick for the greatest key
	j.bytes += int64(changeOverhead + len(b) - at)
	j.version++
}

// change returns a change with a key of n bytes, borrowed.
func (j *Journal) change(n int, p place) btree.Change {
	return change(n, j.blocks[p.block][p.at:][:p.size:p.size])
}

// appendRow appends the rest of the row of a change to its key.
func appendRow(b []byte, c *btree.Change) []byte {
	e := &c.Entry
	switch {
	case c.Delete:
		return append(b, rowDelete)
	case e.Inline:
		return append(append(b, rowInline), e.Value...)
	case e.Priority == object.Lazy:
		b = append(b, rowLazy)
	default:
		b = append(b, rowEager)
	}
	return binary.AppendUvarint(append(b, e.Digest[:]...), e.Size)
}

// change returns the change in a row with a key of n bytes, borrowed.
func change(n int, row []byte) (c btree.Change) {
	e, tag, rest := &c.Entry, row[n], row[n+1:]
	e.Key = row[:n:n]
	switch tag {
	case rowDelete:
		c.Delete = true
	case rowInline:
		e.Value, e.Inline, e.Size = rest, true, uint64(len(rest))
	default:
		e.Digest = object.Digest(rest[:object.DigestSize])
		e.Size, _ = binary.Uvarint(rest[object.DigestSize:])
		if tag == rowLazy {
			e.Priority = object.Lazy
		}
	}
	return c
}

// Get returns the change of key, borrowed, and whether there is one.
func (j *Journal) Get(key []byte) (c btree.Change, ok bool) {
	p, ok := j.rows.Get(string(key))
	if ok {
		c = j.change(len(key), p)
	}
	return c, ok
}

// Seek returns the first change whose key is not below key, borrowed, and whether there is one.
func (j *Journal) Seek(key []byte) (c btree.Change, ok bool) {
	j.rows.Ascend(string(key), func(key string, p place) bool {
		c, ok = j.change(len(key), p), true
		return false
	})
	return c, ok
}

// Bytes returns the approximate memory of the changes, replaced ones included.
func (j *Journal) Bytes() int64 { return j.bytes }

// Empty reports whether there is no change.
func (j *Journal) Empty() bool { return j.rows.Len() == 0 }

// Count returns the number of changes.
func (j *Journal) Count() int { return j.rows.Len() }

// Version returns a number that grows with each change.
func (j *Journal) Version() uint64 { return j.version }

// Clear drops all changes.
func (j *Journal) Clear() { *j = Journal{version: j.version + 1} }

// Batch returns up to n changes in order, in the memory of dst: those from the key at, or in
// reverse those before it, from the greatest; nil is the end from which the direction starts.
// Entries are shared with the journal.
func (j *Journal) Batch(dst []btree.Change, at []byte, reverse bool, n int) []btree.Change {
	dst = dst[:0]
	visit := func(key string, p place) bool {
		if !reverse || at == nil || key != string(at) {
			dst = append(dst, j.change(len(key), p))
		}
		return len(dst) < n
	}
	switch {
	case !reverse:
		j.rows.Ascend(string(at), visit)
	case at == nil:
		j.rows.Reverse(visit)
	default:
		j.rows.Descend(string(at), visit)
	}
	return dst
}

// All returns the changes in ascending order, for btree.Tree.Apply. The journal must not change
// meanwhile. The errors are nil.
func (j *Journal) All() iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		j.rows.Scan(func(key string, p place) bool { return yield(j.change(len(key), p), nil) })
	}
}
