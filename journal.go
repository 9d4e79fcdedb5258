package ledger

import (
	"bytes"
	"iter"
	"unsafe"

	mapbtree "github.com/tidwall/btree"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// changeOverhead is about what a change takes in memory beside its key and value.
const changeOverhead = 80

// journalArena is the greatest room that is made at once for the rows of changes.
const journalArena = 64 << 10

// txJournal holds the changes of one transaction as rows, sorted by key: the newest in memory, and
// once they take more than limit bytes, the older ones in a run on disk. Where both know a key,
// memory counts. It belongs to one goroutine.
//
// Millions of rows may be in memory. They lie beside each other in large pieces without pointers,
// since an object of the heap for each would take most of the time to record it.
type txJournal struct {
	mem     mapbtree.Map[string, []byte] // rows: each is the key, as in the map, and the value
	arena   []byte                       // of the last rows, with room for more
	bytes   int64                        // that rows have taken, about; those that were replaced count
	limit   int64
	newRun  func() (*run, error)
	run     *run // nil until the first spill
	version uint64
	count   int // changes recorded, a key counted again after a spill
}

// set records a change, of which it copies everything. When it fails, the journal is as it was.
func (j *txJournal) set(c *btree.Change) error {
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
	key := unsafe.String(unsafe.SliceData(row), n)      // nobody changes the arena up to here again
	if _, replaced := j.mem.Load(key, row); !replaced { // Set, but quick for a key behind all others
		j.count++
	}
	j.bytes += int64(changeOverhead + len(row))
	j.version++
	return nil
}

// put records an inline value.
func (j *txJournal) put(key, value []byte) error {
	return j.set(&btree.Change{Entry: fb.Entry{Key: key, Value: value, Inline: true}})
}

// setTo records the change that makes a key have an entry, or none.
func (j *txJournal) setTo(key []byte, e *fb.Entry, has bool) error {
	c := btree.Change{Delete: !has, Entry: *e}
	c.Entry.Key = key
	return j.set(&c)
}

// change returns what a row in memory says, borrowed.
func (j *txJournal) change(key string, row []byte) btree.Change {
	c, _ := parseRow(row[:len(key):len(key)], row[len(key):]) // it is as set has made it
	return c
}

// get returns the change of key, and whether there is one.
func (j *txJournal) get(key []byte) (btree.Change, bool, error) {
	if row, ok := j.mem.Get(string(key)); ok {
		return j.change(string(key), row), true, nil
	}
	if j.run == nil {
		return btree.Change{}, false, nil
	}
	return j.run.get(key)
}

// spill moves what is in memory to the run.
func (j *txJournal) spill() error {
	if j.run == nil {
		r, err := j.newRun()
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

// forget forgets what is in memory.
func (j *txJournal) forget() {
	j.mem.Clear()
	j.arena, j.bytes = nil, 0
}

// rows returns keys and values of the rows in memory.
func (j *txJournal) rows() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		j.mem.Scan(func(key string, row []byte) bool { return yield(key, row[len(key):]) })
	}
}

// empty reports whether no change was recorded.
func (j *txJournal) empty() bool { return j.mem.Len() == 0 && j.run == nil }

// clear forgets all changes. The run is removed.
func (j *txJournal) clear() error {
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

// position is where a batch of changes begins: behind the key, or with it when inclusive. Without a
// key it begins at the end that the direction starts from.
type position struct {
	key       []byte
	set       bool
	inclusive bool
}

// admits reports whether a key lies at or behind the position.
func (p *position) admits(key []byte, reverse bool) bool {
	if !p.set {
		return true
	}
	c := bytes.Compare(key, p.key)
	if reverse {
		c = -c
	}
	return c > 0 || c == 0 && p.inclusive
}

// batch appends up to n changes from a position on to dst, in order. Entries are shared with the
// journal.
func (j *txJournal) batch(dst []btree.Change, from position, reverse bool, n int) ([]btree.Change, error) {
	dst = dst[:0]
	visit := func(key string, row []byte) bool {
		if from.admits(row[:len(key)], reverse) {
			dst = append(dst, j.change(key, row))
		}
		return len(dst) < n
	}
	switch {
	case !from.set && reverse:
		j.mem.Reverse(visit)
	case !from.set:
		j.mem.Scan(visit)
	case reverse:
		j.mem.Descend(string(from.key), visit)
	default:
		j.mem.Ascend(string(from.key), visit)
	}
	if j.run == nil {
		return dst, nil
	}
	older, err := j.run.batch(from, reverse, n)
	if err != nil || len(older) == 0 {
		return dst, err
	}
	return mergeChanges(dst, older, reverse, n), nil
}

// mergeChanges merges two sorted batches of up to n changes into one; of two changes of a key that
// in newer counts.
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

// all returns the changes in ascending order, for btree.Tree.Apply. The journal must not change
// meanwhile.
func (j *txJournal) all() iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		if j.run == nil {
			j.mem.Scan(func(key string, row []byte) bool { return yield(j.change(key, row), nil) })
			return
		}
		var from position
		for {
			cs, err := j.batch(nil, from, false, applyBatch)
			if err != nil {
				yield(btree.Change{}, err)
				return
			}
			for _, c := range cs {
				if !yield(c, nil) {
					return
				}
			}
			if len(cs) < applyBatch {
				return
			}
			from = position{key: cs[len(cs)-1].Entry.Key, set: true}
		}
	}
}
