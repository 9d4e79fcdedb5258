package ledger

import (
	"bytes"
	"iter"

	mapbtree "github.com/tidwall/btree"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// changeOverhead is about what a change takes in memory beside its key and value.
const changeOverhead = 208

// txJournal holds the changes of one transaction, sorted by key: the newest in memory, and once
// they take more than limit bytes, the older ones in a run on disk. Where both know a key, memory
// counts. It belongs to one goroutine.
type txJournal struct {
	mem     mapbtree.Map[string, btree.Change]
	bytes   int64 // of mem, about
	limit   int64
	newRun  func() (*run, error)
	run     *run // nil until the first spill
	version uint64
	count   int // changes recorded, a key counted again after a spill
}

// set records a change; c.Entry.Key and c.Entry.Value must be the journal's own. When it fails, the
// journal is as it was.
func (j *txJournal) set(c btree.Change) error {
	if j.bytes >= j.limit {
		if err := j.spill(); err != nil {
			return err
		}
	}
	old, replaced := j.mem.Load(string(c.Entry.Key), c) // Set, but quick for a key behind all others
	if replaced {
		j.bytes -= sizeOf(&old)
	} else {
		j.count++
	}
	j.bytes += sizeOf(&c)
	j.version++
	return nil
}

func sizeOf(c *btree.Change) int64 {
	return int64(changeOverhead + 2*len(c.Entry.Key) + len(c.Entry.Value))
}

// get returns the change of key, and whether there is one.
func (j *txJournal) get(key []byte) (btree.Change, bool, error) {
	if c, ok := j.mem.Get(string(key)); ok {
		return c, true, nil
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
	if err := j.run.add(j.inMemory()); err != nil {
		return err
	}
	j.mem.Clear()
	j.bytes = 0
	return nil
}

func (j *txJournal) inMemory() iter.Seq[btree.Change] {
	return func(yield func(btree.Change) bool) {
		j.mem.Scan(func(_ string, c btree.Change) bool { return yield(c) })
	}
}

// empty reports whether no change was recorded.
func (j *txJournal) empty() bool { return j.mem.Len() == 0 && j.run == nil }

// clear forgets all changes. The run is removed.
func (j *txJournal) clear() error {
	j.mem.Clear()
	j.bytes, j.count = 0, 0
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
	visit := func(_ string, c btree.Change) bool {
		if from.admits(c.Entry.Key, reverse) {
			dst = append(dst, c)
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
			j.mem.Scan(func(_ string, c btree.Change) bool { return yield(c, nil) })
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

// inlineEntry returns a copy of an inline entry that shares nothing with its arguments.
func inlineEntry(key, value []byte) fb.Entry {
	b := make([]byte, 0, len(key)+len(value))
	b = append(append(b, key...), value...)
	return fb.Entry{Key: b[:len(key):len(key)], Value: b[len(key):], Inline: true, Size: uint64(len(value))}
}
