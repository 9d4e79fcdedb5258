package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// A delta makes one node from another: an edit script over the items of the base, children and
// entries in key order.
//
//	bytes    content
//	1        level of the result
//	         operations: uvarint 4n + kind, then what the kind adds
//
//	kind     adds
//	keep     the next n items of the base stay
//	drop     the next n items of the base go
//	child    33: digest of a new child at level n
//	entry    a new entry; n is 0: inline, eager; 1: reference, eager; 2: reference, lazy:
//	         uvarint length of the key, the key, then for inline uvarint length of the value, the
//	                 value;
//	         for a reference 33: digest, uvarint size
//
// The operations consume the items of the base exactly. n of keep and drop is at least 1.
const (
	opKeep  = 0
	opDrop  = 1
	opChild = 2
	opEntry = 3

	opBits = 2
	opMask = 1<<opBits - 1
)

// The values of n in opEntry.
const (
	newInline = iota
	newEager
	newLazy
)

// itemReader iterates over the items of a node in key order.
type itemReader struct {
	n           *fb.Node
	i, children int  // how many entries and children have been read
	isChild, ok bool // of the item that was read last
}

func (r *itemReader) next() {
	r.isChild = r.children < r.n.NumChildren() && r.n.Child(r.children).Gap == r.i
	if r.isChild {
		r.children++
	} else {
		r.i++
	}
	r.ok = r.i <= r.n.Len()
}

// child returns the item, which is a child.
func (r *itemReader) child() fb.Child { return r.n.Child(r.children - 1) }

// entry returns the item, which is an entry.
func (r *itemReader) entry() fb.Entry { return r.n.Entry(r.i - 1) }

// equal reports whether two readers are at equal items.
func (r *itemReader) equal(o *itemReader) bool {
	if r.isChild && o.isChild {
		a, b := r.child(), o.child()
		return a.Level == b.Level && a.Digest == b.Digest
	}
	return r.isChild == o.isChild && r.n.EqualEntries(r.i-1, o.n, o.i-1)
}

// AppendDelta appends to dst a delta with which ApplyDelta makes result from base. It retains
// nothing. Its length is about that of the items of result that base lacks, and 2 or 3 bytes for
// each place where the two differ.
func AppendDelta(dst []byte, base, result *fb.Node) []byte {
	w := scriptWriter{b: append(dst, byte(result.Level()))}
	if w.sameShape(base, result) {
		return w.b
	}
	o, n := itemReader{n: base}, itemReader{n: result}
	o.next()
	n.next()
	for o.ok || n.ok {
		switch {
		case o.ok && n.ok && o.equal(&n):
			w.count(opKeep)
			o.next()
			n.next()
		case !n.ok || o.ok && dropFirst(&o, &n):
			w.count(opDrop)
			o.next()
		default:
			w.insert(&n)
			n.next()
		}
	}
	w.flush()
	return w.b
}

// sameShape writes the script for a node that has the same keys and the same gaps with children, as
// after most changes. It writes nothing and returns false for others.
func (w *scriptWriter) sameShape(old, result *fb.Node) bool {
	for item, end := 0, 2*old.Len()+1; ; item++ {
		next, ok := old.NextDifference(result, item)
		if !ok {
			return false
		}
		w.add(opKeep, uint64(old.Items(item, next)))
		if item = next; item == end {
			w.flush()
			return true
		}
		w.count(opDrop)
		if item&1 == 0 {
			c, _ := result.ChildAt(item / 2)
			w.child(&c)
		} else {
			e := result.Entry(item / 2)
			w.entry(&e)
		}
	}
}

// dropFirst decides, for an item of the base and a different one of the result, whether the former
// is dropped first or the latter is added first.
func dropFirst(o, n *itemReader) bool {
	if !o.isChild && !n.isChild {
		return bytes.Compare(o.n.Key(o.i-1), n.n.Key(n.i-1)) <= 0
	}
	if o.isChild && !n.isChild {
		// The child of the base may stay after a new entry.
		ahead := *n
		ahead.next()
		return !ahead.ok || !o.equal(&ahead)
	}
	// The child of the result is new, or follows a dropped entry of the base.
	ahead := *o
	ahead.next()
	return o.isChild || ahead.ok && n.equal(&ahead)
}

// scriptWriter writes operations; it merges equal adjacent ones.
type scriptWriter struct {
	b    []byte
	kind uint64
	n    uint64
}

func (w *scriptWriter) count(kind uint64) { w.add(kind, 1) }

func (w *scriptWriter) add(kind, n uint64) {
	if w.kind != kind {
		w.flush()
		w.kind = kind
	}
	w.n += n
}

func (w *scriptWriter) flush() {
	if w.n > 0 {
		w.op(w.kind, w.n)
		w.n = 0
	}
}

func (w *scriptWriter) op(kind, n uint64) { w.b = binary.AppendUvarint(w.b, n<<opBits|kind) }

func (w *scriptWriter) bytes(v []byte) {
	w.b = append(binary.AppendUvarint(w.b, uint64(len(v))), v...)
}

// insert writes the item of a reader.
func (w *scriptWriter) insert(r *itemReader) {
	if r.isChild {
		c := r.child()
		w.child(&c)
	} else {
		e := r.entry()
		w.entry(&e)
	}
}

func (w *scriptWriter) child(c *fb.Child) {
	w.flush()
	w.op(opChild, uint64(c.Level))
	w.b = append(w.b, c.Digest[:]...)
}

func (w *scriptWriter) entry(e *fb.Entry) {
	w.flush()
	switch {
	case e.Inline:
		w.op(opEntry, newInline)
		w.bytes(e.Key)
		w.bytes(e.Value)
		return
	case e.Priority == object.Lazy:
		w.op(opEntry, newLazy)
	default:
		w.op(opEntry, newEager)
	}
	w.bytes(e.Key)
	w.b = append(w.b, e.Digest[:]...)
	w.b = binary.AppendUvarint(w.b, e.Size)
}

// ApplyDelta returns the encoding of the node that delta makes from base. It is canonical for any
// delta, and at most limits.MaxNodeBytes long. Beyond the node, ApplyDelta allocates in proportion
// to delta and base. It retains neither. Errors: *base.CorruptError, to which the caller may add
// the name of the node.
func ApplyDelta(base *fb.Node, delta []byte) ([]byte, error) {
	if len(delta) == 0 || len(delta) > limits.MaxNodeBytes {
		return nil, corruptDelta("%d bytes", len(delta))
	}
	s := scriptReader{b: delta[1:], old: itemReader{n: base}}
	s.entries = make([]fb.Entry, 0, base.Len()+2)
	s.children = make([]fb.Child, 0, base.NumChildren()+2)
	for len(s.b) > 0 {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	if s.old.next(); s.old.ok {
		return nil, corruptDelta("it leaves items of the base")
	}
	b, err := fb.EncodeNode(int(delta[0]), s.entries, s.children)
	if err != nil {
		return nil, corruptErr(err)
	}
	return b, nil
}

func corruptDelta(format string, args ...any) error {
	return &base.CorruptError{Where: "tree node delta", Got: fmt.Sprintf(format, args...)}
}

func corruptErr(err error) error { return &base.CorruptError{Where: "tree node delta", Err: err} }

// scriptReader executes operations.
type scriptReader struct {
	b        []byte
	old      itemReader
	entries  []fb.Entry
	children []fb.Child
	size     int
}

func (s *scriptReader) step() error {
	op, err := s.uvarint()
	if err != nil {
		return err
	}
	n := op >> opBits
	switch op & opMask {
	case opKeep, opDrop:
		return s.pass(n, op&opMask == opKeep)
	case opChild:
		if n > MaxLevel {
			return corruptDelta("child at level %d", n)
		}
		d, err := s.take(object.DigestSize)
		if err != nil {
			return err
		}
		return s.addChild(fb.Child{Level: int(n), Digest: object.Digest(d)})
	}
	return s.newEntry(n)
}

func (s *scriptReader) pass(n uint64, keep bool) error {
	if n == 0 {
		return corruptDelta("operation on no items")
	}
	for ; n > 0; n-- {
		if s.old.next(); !s.old.ok {
			return corruptDelta("it goes beyond the items of the base")
		}
		if !keep {
			continue
		}
		var err error
		if s.old.isChild {
			err = s.addChild(s.old.child())
		} else {
			err = s.addEntry(s.old.entry())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scriptReader) addChild(c fb.Child) error {
	c.Gap = len(s.entries)
	s.children = append(s.children, c)
	return s.grow(object.DigestSize)
}

func (s *scriptReader) addEntry(e fb.Entry) error {
	s.entries = append(s.entries, e)
	return s.grow(len(e.Key) + len(e.Value))
}

// grow counts bytes of the result.
func (s *scriptReader) grow(n int) error {
	if s.size += n; s.size > limits.MaxNodeBytes {
		return corruptDelta("result of more than %d bytes", limits.MaxNodeBytes)
	}
	return nil
}

func (s *scriptReader) newEntry(n uint64) (err error) {
	var e fb.Entry
	if e.Key, err = s.lengthAndBytes(limits.MaxKeyBytes); err != nil {
		return err
	}
	switch n {
	case newInline:
		if e.Value, err = s.lengthAndBytes(InlineLimit); err != nil {
			return err
		}
		e.Inline, e.Size = true, uint64(len(e.Value))
		return s.addEntry(e)
	case newLazy:
		e.Priority = object.Lazy
	case newEager:
	default:
		return corruptDelta("entry of kind %d", n)
	}
	d, err := s.take(object.DigestSize)
	if err != nil {
		return err
	}
	e.Digest = object.Digest(d)
	if e.Size, err = s.uvarint(); err != nil {
		return err
	}
	return s.addEntry(e)
}

func (s *scriptReader) lengthAndBytes(limit uint64) ([]byte, error) {
	n, err := s.uvarint()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, corruptDelta("key or value of %d bytes", n)
	}
	return s.take(int(n))
}

func (s *scriptReader) take(n int) ([]byte, error) {
	if n > len(s.b) {
		return nil, corruptDelta("it ends within an operation")
	}
	v := s.b[:n:n]
	s.b = s.b[n:]
	return v, nil
}

func (s *scriptReader) uvarint() (uint64, error) {
	v, n := binary.Uvarint(s.b)
	if n <= 0 || n > 1 && s.b[n-1] == 0 {
		return 0, corruptDelta("bad number")
	}
	s.b = s.b[n:]
	return v, nil
}
