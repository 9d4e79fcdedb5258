package btree

import (
	"bytes"
	"context"
	"iter"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Diff3Entry is a key in which left or right differs from base. Its slices are borrowed as in
// DiffEntry.
type Diff3Entry struct {
	// Key is the key.
	Key []byte
	// Base, Left and Right are the entries of the key, where they exist.
	Base, Left, Right fb.Entry
	// HasBase, HasLeft and HasRight say which entries exist.
	HasBase, HasLeft, HasRight bool
}

// Diff3 yields, in order, every key not below from (nil: every key) in which left or right differs
// from base. A side that does not differ at a key has base's entry there. Subtrees that a side
// shares with base are not read for it. The last pair holds the error, if there is one. Errors: as
// for Diff.
func Diff3(ctx context.Context, base, left, right Tree, from []byte) iter.Seq2[Diff3Entry, error] {
	return func(yield func(Diff3Entry, error) bool) {
		var m diff3
		if err := m.start(ctx, base, left, right, from); err != nil {
			yield(Diff3Entry{}, err)
			return
		}
		for m.ok[leftSide] || m.ok[rightSide] {
			if !yield(m.entry(), nil) {
				return
			}
			if err := m.advance(ctx); err != nil {
				yield(Diff3Entry{}, err)
				return
			}
		}
	}
}

// diff3 merges the differences between base and either side.
type diff3 struct {
	d    [2]differ
	head [2]DiffEntry // Left is base, Right the side
	ok   [2]bool
	used [2]bool // the last entry has used the head
}

func (m *diff3) start(ctx context.Context, base, left, right Tree, from []byte) error {
	for side, t := range [...]Tree{left, right} {
		if err := m.d[side].start(ctx, base, t, from); err != nil {
			return err
		}
	}
	m.used = [2]bool{true, true}
	return m.advance(ctx)
}

func (m *diff3) advance(ctx context.Context) (err error) {
	for side, used := range m.used {
		if !used {
			continue
		}
		if m.head[side], m.ok[side], err = m.d[side].next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// entry makes an entry of the heads with the smallest key.
func (m *diff3) entry() Diff3Entry {
	c := 0
	switch {
	case !m.ok[rightSide]:
		c = -1
	case !m.ok[leftSide]:
		c = 1
	default:
		c = bytes.Compare(m.head[leftSide].Key, m.head[rightSide].Key)
	}
	m.used = [2]bool{c <= 0, c >= 0}
	h := &m.head[leftSide]
	if c > 0 {
		h = &m.head[rightSide]
	}
	e := Diff3Entry{
		Key: h.Key, Base: h.Left, HasBase: h.HasLeft,
		Left: h.Left, HasLeft: h.HasLeft, Right: h.Left, HasRight: h.HasLeft,
	}
	if m.used[leftSide] {
		e.Left, e.HasLeft = m.head[leftSide].Right, m.head[leftSide].HasRight
	}
	if m.used[rightSide] {
		e.Right, e.HasRight = m.head[rightSide].Right, m.head[rightSide].HasRight
	}
	return e
}
