package index

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/boltpage"
)

// precheck verifies what bbolt reads and trusts blindly when it opens the file: the meta pages, the
// length of the file, and the list of free pages.
func (f *File) precheck() error {
	err := f.checkOpening()
	if !errors.Is(err, base.ErrCorrupt) {
		return err
	}
	// Another process may be in the middle of a commit: check again under the lock.
	unlock, lockErr := f.sharedLock()
	if lockErr != nil {
		return lockErr
	}
	defer unlock()
	return f.checkOpening()
}

// sharedLock makes bbolt lock the file for reading, damaged or not.
func (f *File) sharedLock() (unlock func(), err error) {
	b, err := func() (b *bbolt.DB, err error) {
		defer f.guard(&err)()
		return bbolt.Open(f.path, 0, &bbolt.Options{ReadOnly: true, Timeout: lockWait})
	}()
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open index: %w", &base.LockedError{Path: f.path, Waited: lockWait})
	}
	if b == nil || err != nil {
		return func() {}, nil
	}
	return func() { b.Close() }, nil // nothing was written
}

func (f *File) checkOpening() (err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) && !f.readOnly {
		f.seen = newSeen(0)
		return nil
	}
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	defer file.Close() // read only
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	if info.Size() == 0 && !f.readOnly {
		f.seen = newSeen(0)
		return nil
	}
	m, err := boltpage.ReadMeta(file, info.Size())
	if err != nil {
		return f.opening(err)
	}
	f.seen = newSeen(m.Pages)
	return f.opening(boltpage.CheckFree(file, m, f.seen.add))
}

// opening returns an error of damage without recording it: a further check may refute it.
func (f *File) opening(err error) error {
	if c := new(base.CorruptError); errors.As(err, &c) {
		d := *c
		d.Where = f.base()
		return fmt.Errorf("open index: %w", &d)
	}
	if err != nil {
		return fmt.Errorf("open index %s: %w", f.path, err)
	}
	return nil
}

// walk verifies the branches of every tree and the leaves of the root tree, and that no page
// belongs to two places. Afterwards seen holds exactly the pages that need no further verification.
func (f *File) walk() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	b, err := f.bolt.Begin(false)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	defer f.end(&err, b)
	defer f.guard(&err)()
	w := walker{im: f.image(b), claimed: f.seen}
	w.im.seen = newSeen(f.seen.pages)
	if err := w.root(uint64(b.Cursor().Bucket().Root())); err != nil {
		return fmt.Errorf("open index: %w", f.damaged(err))
	}
	f.seen = w.im.seen
	return nil
}

// walker traverses the trees of a file.
type walker struct {
	im      image
	claimed *seen // pages that something refers to
}

func (w *walker) claim(id uint64) error {
	if id < w.claimed.pages && !w.claimed.add(id) {
		return &base.CorruptError{Key: fmt.Sprintf("page %d", id), Want: "one place that refers to it"}
	}
	return nil
}

// root walks the root tree with its leaves, and the branches of each bucket.
func (w *walker) root(id uint64) error {
	t := &tree{im: &w.im, root: id, buckets: true}
	return w.visit(t, id, nil, nil, -1, 0)
}

// visit verifies the page id and the pages below it. levels is the number of levels below that hold
// branches, -1 when unknown. Every leaf of a tree is at the same level.
func (w *walker) visit(t *tree, id uint64, lo, hi []byte, levels, depth int) error {
	if err := w.claim(id); err != nil {
		return err
	}
	if levels == 0 && !t.buckets {
		return nil // a leaf is verified at its first use
	}
	if depth > boltpage.MaxDepth {
		return tooDeep(id)
	}
	p, err := w.im.verified(id, lo, hi, t.buckets)
	if err != nil {
		return err
	}
	if p.Leaf() {
		return w.buckets(t, p)
	}
	if levels < 0 {
		if levels, err = w.height(p); err != nil {
			return err
		}
	}
	if levels > 1 || levels == 1 && t.buckets {
		for i := range p.Count() {
			w.im.prefetch(p.Child(i))
		}
	}
	for i := range p.Count() {
		next := hi
		if i+1 < p.Count() {
			next = p.BranchKey(i + 1)
		}
		if err := w.visit(t, p.Child(i), p.BranchKey(i), next, levels-1, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// height counts the levels from a branch to its leaves by their headers.
func (w *walker) height(p page) (n int, err error) {
	for n = 0; !p.Leaf(); n++ {
		if n > boltpage.MaxDepth || p.Count() == 0 || p.Flags() != boltpage.BranchFlag {
			return 0, p.Damage(fmt.Sprintf("at most %d levels of branches", boltpage.MaxDepth), "flags %#x", p.Flags())
		}
		if p, err = w.im.page(p.Child(0)); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// buckets walks the buckets whose headers are in p, a leaf of the root tree.
func (w *walker) buckets(t *tree, p page) error {
	if !t.buckets {
		return nil
	}
	for i := range p.Count() {
		if c := t.child(p, i); c.root != 0 {
			w.im.prefetch(c.root)
		}
	}
	for i := range p.Count() { // height reads their first children
		if c := t.child(p, i); c.root != 0 {
			w.prefetchFirst(c.root)
		}
	}
	for i := range p.Count() {
		c := t.child(p, i)
		if c.root == 0 {
			continue
		}
		if err := w.visit(c, c.root, nil, nil, -1, 0); err != nil {
			return err
		}
	}
	return nil
}

// prefetchFirst reads the first child of a branch ahead. Damage is found when the branch is
// visited.
func (w *walker) prefetchFirst(id uint64) {
	if p, err := w.im.page(id); err == nil && p.Flags() == boltpage.BranchFlag && p.Count() > 0 {
		w.im.prefetch(p.Child(0))
	}
}
