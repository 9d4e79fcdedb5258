package boltpage

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// maxNesting bounds the nesting of buckets.
const maxNesting = 4

// trees verifies all trees of a file.
type trees struct {
	data []byte // the file, up to its last page
	meta Meta
	seen []uint64 // a bit for each page in use
}

// Verify verifies the whole file in data, nested buckets included: every page is valid, no page is
// used twice, and all are within the file. Then bbolt neither crashes on the file nor loops for
// ever. It needs one bit of memory per page. Errors: *base.CorruptError without the name of the
// file.
func Verify(data []byte) error {
	m, err := ReadMeta(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	t := &trees{data: data[:m.Pages*uint64(m.PageBytes)], meta: m, seen: make([]uint64, m.Pages/64+1)}
	if err := CheckFree(bytes.NewReader(t.data), m, t.add); err != nil {
		return err
	}
	return t.visit(m.Root, nil, nil, 0, 0)
}

// add marks a page and reports whether it was not marked before.
func (t *trees) add(id uint64) bool {
	word, bit := &t.seen[id/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// page returns a page with its overflow pages, and marks all of them.
func (t *trees) page(id uint64) (Page, error) {
	size := uint64(t.meta.PageBytes)
	wrong := func(want, got string) (Page, error) {
		return nil, &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: want, Got: got}
	}
	if id < 2 || id >= t.meta.Pages {
		return wrong(fmt.Sprintf("less than %d pages", t.meta.Pages), "")
	}
	p := Page(t.data[id*size:])
	n := uint64(p.Overflow()) + 1
	if p.ID() != id || n > t.meta.Pages-id {
		return wrong("its own id and length", fmt.Sprintf("page %d of %d", p.ID(), n))
	}
	for i := range n {
		if !t.add(id + i) {
			return wrong("one place that refers to it", "another")
		}
	}
	return p[: n*size : n*size], nil
}

// visit verifies a page and all below it.
func (t *trees) visit(id uint64, lo, hi []byte, nesting, depth int) error {
	if depth > MaxDepth || nesting > maxNesting {
		return &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: fmt.Sprintf("at most %d levels and %d buckets in each other", MaxDepth, maxNesting)}
	}
	p, err := t.page(id)
	if err != nil {
		return err
	}
	b := Bounds{Lo: lo, Hi: hi, Buckets: nesting == 0, Mixed: nesting > 0, Pages: t.meta.Pages, Size: t.meta.PageBytes}
	if err := p.Verify(b); err != nil {
		return err
	}
	for i := range p.Count() {
		if p.Leaf() {
			err = t.element(p, i, b, nesting)
		} else {
			next := hi
			if i+1 < p.Count() {
				next = p.BranchKey(i + 1)
			}
			err = t.visit(p.Child(i), p.BranchKey(i), next, nesting, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// element visits the bucket that an element of a leaf may be.
func (t *trees) element(p Page, i int, b Bounds, nesting int) error {
	if p.u32(i, 0) != bucketFlag {
		return nil
	}
	if err := VerifyHeader(p, i, b); err != nil {
		return err
	}
	if root := Order.Uint64(p.Value(i)); root != 0 {
		return t.visit(root, nil, nil, nesting+1, 0)
	}
	return nil
}
