package boltpage

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
)

// maxNesting bounds the nesting of buckets.
const maxNesting = 4

// Set is a set of pages of a file. Pages beyond the bound with which it was made are not recorded:
// they always count as members, and as just added. It is safe for concurrent use.
type Set struct {
	pages uint64
	words []atomic.Uint64
}

// NewSet returns an empty set of pages with ids below a bound.
func NewSet(pages uint64) *Set {
	return &Set{pages: pages, words: make([]atomic.Uint64, (pages+63)/64)}
}

// Has reports whether id is a member.
func (s *Set) Has(id uint64) bool {
	return id >= s.pages || s.words[id/64].Load()&(1<<(id%64)) != 0
}

// Add adds id, and reports whether it was not a member before.
func (s *Set) Add(id uint64) bool {
	bit := uint64(1) << (id % 64)
	return id >= s.pages || s.words[id/64].Or(bit)&bit == 0
}

// Image is a file in memory: the bytes up to its last page.
type Image struct {
	Data  []byte
	Size  int // of one page
	Pages uint64
	// Verified has the pages that need no more verification.
	Verified *Set
	// Nested allows buckets in buckets.
	Nested bool
}

// page returns a page after a check of its header only.
func (im *Image) page(id uint64) (Page, error) {
	if id < 2 || id >= im.Pages {
		return nil, &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: fmt.Sprintf("less than %d pages", im.Pages)}
	}
	p := Page(im.Data[id*uint64(im.Size):])
	n := uint64(p.Overflow()) + 1
	if p.ID() != id || n > im.Pages-id {
		return nil, &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: "its own id and length", Got: fmt.Sprintf("page %d of %d", p.ID(), n)}
	}
	return p[: n*uint64(im.Size) : n*uint64(im.Size)], nil
}

// ahead reads a page ahead that is needed soon.
func (im *Image) ahead(id uint64) {
	if id >= 2 && id < im.Pages {
		willNeed(im.Data[id*uint64(im.Size) : (id+1)*uint64(im.Size)])
	}
}

// Page returns a page of a tree, whose content has been verified, now or before. lo and hi are its
// bounds. root says that the tree is the one that holds the buckets.
func (im *Image) Page(id uint64, lo, hi []byte, root bool) (Page, error) {
	p, err := im.page(id)
	if err != nil || im.Verified.Has(id) {
		return p, err
	}
	b := Bounds{Lo: lo, Hi: hi, Buckets: root, Mixed: im.Nested && !root, Pages: im.Pages, Size: im.Size}
	if err := p.Verify(b); err != nil {
		return nil, err
	}
	im.Verified.Add(id)
	return p, nil
}

// TooDeep returns the error for a page below more levels than a tree can have.
func TooDeep(id uint64) error {
	return &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: fmt.Sprintf("at most %d levels and %d buckets in each other", MaxDepth, maxNesting)}
}

// Verify verifies the whole file in data, nested buckets included: every page is valid, no page is
// used twice, and all are within the file. Then bbolt neither crashes on the file nor loops for
// ever. It needs two bits of memory per page. Errors: *base.CorruptError without the name of the
// file.
func Verify(data []byte) error {
	m, err := ReadMeta(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	claimed, err := CheckFree(bytes.NewReader(data), m)
	if err != nil {
		return err
	}
	im := &Image{Data: data[:m.Pages*uint64(m.PageBytes)], Size: m.PageBytes, Pages: m.Pages, Verified: NewSet(m.Pages), Nested: true}
	return im.Walk(m.Root, claimed, true)
}

// Walk verifies the tree of buckets, which begins at page root, and all trees below it. It adds
// their pages to claimed, which has the free pages. A page that is there already is damage. Without
// leaves it does not read the leaves of buckets: they are to be verified at their first use.
func (im *Image) Walk(root uint64, claimed *Set, leaves bool) error {
	w := &walker{im: im, claimed: claimed, leaves: leaves}
	return w.tree(root, 0)
}

// walker traverses the trees of a file.
type walker struct {
	im      *Image
	claimed *Set // pages that something refers to
	leaves  bool // also those of buckets
}

func (w *walker) claim(id uint64) error {
	if !w.claimed.Add(id) {
		return &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: "one place that refers to it"}
	}
	return nil
}

// tree verifies a tree in so many buckets.
func (w *walker) tree(root uint64, nesting int) error {
	levels := -1 // all
	if nesting > 0 && !w.leaves {
		var err error
		if levels, err = w.height(root); err != nil {
			return err
		}
	}
	return w.visit(root, nil, nil, nesting, levels, 0)
}

// height counts the levels from a page to its leaves by their headers. Every leaf of a tree is at
// the same level.
func (w *walker) height(id uint64) (n int, err error) {
	for {
		p, err := w.im.page(id)
		if err != nil || p.Leaf() {
			return n, err
		}
		if n++; n > MaxDepth || p.Count() == 0 || p.Flags() != BranchFlag {
			return 0, p.Damage(fmt.Sprintf("at most %d levels of branches", MaxDepth), "flags %#x", p.Flags())
		}
		id = p.Child(0)
	}
}

// visit verifies a page, and those below it down to so many levels.
func (w *walker) visit(id uint64, lo, hi []byte, nesting, levels, depth int) error {
	if err := w.claim(id); err != nil || levels == 0 {
		return err
	}
	if depth > MaxDepth || nesting > maxNesting {
		return TooDeep(id)
	}
	p, err := w.im.Page(id, lo, hi, nesting == 0)
	if err != nil {
		return err
	}
	for i := range uint64(p.Overflow()) {
		if err := w.claim(id + 1 + i); err != nil {
			return err
		}
	}
	if p.Leaf() {
		return w.buckets(p, nesting)
	}
	if levels != 1 {
		w.ahead(p)
	}
	for i := range p.Count() {
		next := hi
		if i+1 < p.Count() {
			next = p.BranchKey(i + 1)
		}
		if err := w.visit(p.Child(i), p.BranchKey(i), next, nesting, levels-1, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// ahead reads the pages ahead to which a branch refers.
func (w *walker) ahead(p Page) {
	for i := range p.Count() {
		w.im.ahead(p.Child(i))
	}
}

// branch returns a page that is a branch, or nil. Only its header has been verified.
func (w *walker) branch(id uint64) Page {
	p, err := w.im.page(id)
	if err != nil || p.Flags() != BranchFlag || p.Count() == 0 || HeaderBytes+elementBytes*p.Count() > len(p) {
		return nil
	}
	return p
}

// buckets verifies the buckets whose headers are in a leaf.
func (w *walker) buckets(p Page, nesting int) error {
	var roots []uint64
	for i := range p.Count() {
		if !p.bucket(i) {
			continue
		}
		if root, _ := p.Bucket(i); root != 0 {
			roots = append(roots, root)
			w.im.ahead(root)
		}
	}
	// The disk reads the known branches of all trees at once. height reads first children.
	for _, root := range roots {
		if p := w.branch(root); p != nil {
			w.im.ahead(p.Child(0))
		}
	}
	for _, root := range roots {
		if p := w.branch(root); p != nil {
			if first := w.branch(p.Child(0)); first != nil {
				w.ahead(p)
				w.im.ahead(first.Child(0))
			}
		}
	}
	for _, root := range roots {
		if err := w.tree(root, nesting+1); err != nil {
			return err
		}
	}
	return nil
}
