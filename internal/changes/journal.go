package changes

import (
	"bytes"
	"iter"
	"unsafe"

	mapbtree "github.com/tidwall/btree"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// changeOverhead is the approximate memory of a change beside its key and value.
const changeOverhead = 80

// journalArena is the greatest size of one allocation for rows of changes.
const journalArena = 64 << 10

// Journal holds the changes of one transaction as rows, sorted by key. The newest are in memory;
// once they take more than limit bytes, they move to a run on disk. For a key in both, memory
// counts. A Journal belongs to one goroutine.
//
// Millions of rows may be in memory. They are packed into large blocks without pointers, since a
// heap object for each would dominate the cost of recording it.
type Journal struct {
	mem     mapbtree.Map[string, []byte] // rows: each is the key, as in the map, and the value
	arena   []byte                       // the last rows, with spare room
	bytes   int64                        // approximate size of the rows, replaced ones included
	limit   int64
	dir     string // of the run; "" is memory
	run     *run   // nil until the first spill
	version uint64
	count   int // changes recorded, a key counted again after a spill
}

// Init sets up a zero journal that holds up to about limit bytes in memory, and the rest in a file
// in dir. With dir "" everything is in memory. The caller must end it with Clear.
func (j *Journal) Init(limit int64, dir string) { j.limit, j.dir = limit, dir }

// Set records a copy of a change. When it fails, the journal is unchanged. Errors: those of the
// file system.
func (j *Journal) Set(c *btree.Change) error {
	if j.bytes >= j.limit {
		if err := j.spill(); err != nil {
			return err
		}
	}
	n := len(c.Entry.Key)
	if room := n + maxRowHead + len(c.Entry.Value); cap(j.arena)-len(j.arena) < room {
		j.arena = make([]byte, 0, max(room, min(journalArena, int(j.bytes/2))))
	}
	at := len(j.arena)
	j.arena = appendRowValue(append(j.arena, c.Entry.Key...), c)
	row := j.arena[at:len(j.arena):len(j.arena)]
	key := unsafe.String(unsafe.SliceData(row), n)      // this part of the arena is never changed again
	if _, replaced := j.mem.Load(key, row); !replaced { // like Set, but quick for the greatest key
		j.count++
	}
	j.bytes += int64(changeOverhead + len(row))
	j.version++
	return nil
}

// Put records an inline value, which is copied. Errors: as Set.
func (j *Journal) Put(key, value []byte) error {
	return j.Set(&btree.Change{Entry: fb.Entry{Key: key, Value: value, Inline: true}})
}

// SetTo records a change that gives a key an entry, or none. Errors: as Set.
func (j *Journal) SetTo(key []byte, e *fb.Entry, has bool) error {
	c := btree.Change{Delete: !has, Entry: *e}
	c.Entry.Key = key
	return j.Set(&c)
}

// change decodes a row in memory, borrowed.
func (j *Journal) change(key string, row []byte) btree.Change {
	c, _ := parseRow(row[:len(key):len(key)], row[len(key):]) // set has made it
	return c
}

// Get returns the change of key, borrowed, and whether there is one. Errors: base.ErrCorrupt, those
// of the file system.
func (j *Journal) Get(key []byte) (btree.Change, bool, error) {
	if row, ok := j.mem.Get(string(key)); ok {
		return j.change(string(key), row), true, nil
	}
	if j.run == nil {
		return btree.Change{}, false, nil
	}
	cs, err := j.run.batch(key, false, 1)
	if err != nil || len(cs) == 0 || !bytes.Equal(cs[0].Entry.Key, key) {
		return btree.Change{}, false, err
	}
	return cs[0], true, nil
}

// spill moves the rows in memory to the run.
func (j *Journal) spill() error {
	if j.run == nil {
		r, err := newRun(j.dir)
		if err != nil {
			return err
		}
		j.run = r
	}
	if err := j.run.add(j.rows()); err != nil {
		return err
	}
	j.forget()
	return nil
}

// forget drops the rows in memory.
func (j *Journal) forget() {
	j.mem.Clear()
	j.arena, j.bytes = nil, 0
}

// rows returns keys and values of the rows in memory.
func (j *Journal) rows() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		j.mem.Scan(func(key string, row []byte) bool { return yield(key, row[len(key):]) })
	}
}

// Empty reports whether no change was recorded.
func (j *Journal) Empty() bool { return j.mem.Len() == 0 && j.run == nil }

// Count returns the number of changes recorded since Clear. A key counts again after a spill.
func (j *Journal) Count() int { return j.count }

// Version returns a number that grows with each change.
func (j *Journal) Version() uint64 { return j.version }

// Clear drops all changes and removes the file. Errors: those of the file system; the changes are
// dropped in any case.
func (j *Journal) Clear() error {
	j.forget()
	j.count = 0
	j.version++
	r := j.run
	j.run = nil
	if r == nil {
		return nil
	}
	return r.remove()
}

// Batch returns up to n changes in order, in the memory of dst: those from the key at, or in
// reverse those before it, from the greatest; nil is the end from which the direction starts.
// Entries are shared with the journal. Errors: as Get.
func (j *Journal) Batch(dst []btree.Change, at []byte, reverse bool, n int) ([]btree.Change, error) {
	dst = dst[:0]
	visit := func(key string, row []byte) bool {
		if !reverse || at == nil || key != string(at) {
			dst = append(dst, j.change(key, row))
		}
		return len(dst) < n
	}
	switch {
	case !reverse:
		j.mem.Ascend(string(at), visit)
	case at == nil:
		j.mem.Reverse(visit)
	default:
		j.mem.Descend(string(at), visit)
	}
	if j.run == nil {
		return dst, nil
	}
	older, err := j.run.batch(at, reverse, n)
	if err != nil || len(older) == 0 {
		return dst, err
	}
	return mergeChanges(dst, older, reverse, n), nil
}

// After returns the first key after key, for an ascending Batch.
func After(key []byte) []byte { return append(bytes.Clone(key), 0) }

// mergeChanges merges two sorted batches into one of up to n changes; for a key in both, newer
// counts.
func mergeChanges(newer, older []btree.Change, reverse bool, n int) []btree.Change {
	out := make([]btree.Change, 0, n)
	for len(out) < n && len(newer)+len(older) > 0 {
		var c int
		switch {
		case len(older) == 0:
			c = -1
		case len(newer) == 0:
			c = 1
		default:
			c = bytes.Compare(newer[0].Entry.Key, older[0].Entry.Key)
			if reverse {
				c = -c
			}
		}
		if c > 0 {
			out, older = append(out, older[0]), older[1:]
			continue
		}
		if c == 0 {
			older = older[1:]
		}
		out, newer = append(out, newer[0]), newer[1:]
	}
	return out
}

// applyBatch is how many changes of a spilled journal are read at a time.
const applyBatch = 1024

// All returns the changes in ascending order, for btree.Tree.Apply. The journal must not change
// meanwhile. Errors, as the last element: as Get.
func (j *Journal) All() iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		if j.run == nil {
			j.mem.Scan(func(key string, row []byte) bool { return yield(j.change(key, row), nil) })
			return
		}
		for from, more := []byte(nil), true; more; {
			cs, err := j.Batch(nil, from, false, applyBatch)
			if err != nil {
				yield(btree.Change{}, err)
				return
			}
			for _, c := range cs {
				if !yield(c, nil) {
					return
				}
			}
			if more = len(cs) == applyBatch; more {
				from = After(cs[len(cs)-1].Entry.Key)
			}
		}
	}
}
