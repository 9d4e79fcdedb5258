package changes

import (
	"encoding/binary"
	"iter"
	"unsafe"

	mapbtree "github.com/tidwall/btree"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/object"
)

// changeOverhead is the approximate memory of a change beside its key and value.
const changeOverhead = 80

// journalArena is the greatest size of one allocation for rows of changes.
const journalArena = 64 << 10

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

// Journal holds changes as rows in memory, sorted by key. The zero Journal is empty. It belongs to
// one goroutine.
//
// Millions of rows may be in memory. They are packed into large blocks without pointers, since a
// heap object for each would dominate the cost of recording it.
type Journal struct {
	rows    mapbtree.Map[string, []byte]
	arena   []byte // the last rows, with spare room
	bytes   int64
	version uint64
}

// Set records a copy of a change, in place of one of the same key.
func (j *Journal) Set(c *btree.Change) {
	n := len(c.Entry.Key)
	if room := n + maxRowHead + len(c.Entry.Value); cap(j.arena)-len(j.arena) < room {
		j.arena = make([]byte, 0, max(room, min(journalArena, int(j.bytes/2))))
	}
	at := len(j.arena)
	j.arena = appendRow(append(j.arena, c.Entry.Key...), c)
	row := j.arena[at:len(j.arena):len(j.arena)]
	key := unsafe.String(unsafe.SliceData(row), n) // this part of the arena is never changed again
	j.rows.Load(key, row)                          // like Set, but quick for the greatest key
	j.bytes += int64(changeOverhead + len(row))
	j.version++
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
	row, ok := j.rows.Get(string(key))
	if ok {
		c = change(len(key), row)
	}
	return c, ok
}

// Seek returns the first change whose key is not below key, borrowed, and whether there is one.
func (j *Journal) Seek(key []byte) (c btree.Change, ok bool) {
	j.rows.Ascend(string(key), func(key string, row []byte) bool {
		c, ok = change(len(key), row), true
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
	visit := func(key string, row []byte) bool {
		if !reverse || at == nil || key != string(at) {
			dst = append(dst, change(len(key), row))
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
		j.rows.Scan(func(key string, row []byte) bool { return yield(change(len(key), row), nil) })
	}
}
