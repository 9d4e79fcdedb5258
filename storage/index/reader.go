package index

import "github.com/ledgerd/ledger/internal/boltpage"

// tree is one bucket of an image, or the root tree. root is 0 when the whole bucket is the leaf
// inline.
type tree struct {
	im      *boltpage.Image
	root    uint64
	inline  boltpage.Page
	buckets bool
}

// find returns the leaf for k and the position of k in it.
func (t *tree) find(k []byte) (p boltpage.Page, i int, found bool, err error) {
	p = t.inline
	id, lo, hi := t.root, []byte(nil), []byte(nil)
	for depth := 0; id != 0; depth++ {
		if depth > boltpage.MaxDepth {
			return nil, 0, false, boltpage.TooDeep(id)
		}
		if p, err = t.im.Page(id, lo, hi, t.buckets); err != nil {
			return nil, 0, false, err
		}
		if p.Leaf() {
			break
		}
		n := p.ChildFor(k)
		lo, id = p.BranchKey(n), p.Child(n)
		if n+1 < p.Count() {
			hi = p.BranchKey(n + 1)
		}
	}
	i, found = p.Search(k)
	return p, i, found, nil
}

// bucket finds the bucket called name in the root tree, nil when there is none.
func (t *tree) bucket(name []byte) (*tree, error) {
	p, i, found, err := t.find(name)
	if err != nil || !found {
		return nil, err
	}
	c := &tree{im: t.im}
	c.root, c.inline = p.Bucket(i)
	return c, nil
}

// level is one page on the path from the root to a row.
type level struct {
	p      boltpage.Page
	i      int
	lo, hi []byte // the key range of the page
}

// stack is a path from the root of a tree to a row, or to an end of a leaf.
type stack struct {
	t      *tree
	levels []level
	buf    [6]level // enough for any real file
}

func (s *stack) top() *level { return &s.levels[len(s.levels)-1] }

func (s *stack) reset() error {
	if s.levels == nil {
		s.levels = s.buf[:0]
	}
	s.levels = s.levels[:0]
	if s.t.root == 0 {
		s.levels = append(s.levels, level{p: s.t.inline})
		return nil
	}
	return s.push(s.t.root, nil, nil)
}

func (s *stack) push(id uint64, lo, hi []byte) error {
	if len(s.levels) >= boltpage.MaxDepth {
		return boltpage.TooDeep(id)
	}
	p, err := s.t.im.Page(id, lo, hi, s.t.buckets)
	if err != nil {
		return err
	}
	s.levels = append(s.levels, level{p: p, lo: lo, hi: hi})
	return nil
}

// down pushes child i of the branch on top.
func (s *stack) down(i int) error {
	l := s.top()
	l.i = i
	hi := l.hi
	if i+1 < l.p.Count() {
		hi = l.p.BranchKey(i + 1)
	}
	return s.push(l.p.Child(i), l.p.BranchKey(i), hi)
}

// descend goes to the leaf for k. The position inside is not set.
func (s *stack) descend(k []byte) error {
	if err := s.reset(); err != nil {
		return err
	}
	for !s.top().p.Leaf() {
		if err := s.down(s.top().p.ChildFor(k)); err != nil {
			return err
		}
	}
	return nil
}

// edge goes from the page on top to its first or last leaf, and there to the first or last row.
func (s *stack) edge(last bool) error {
	for {
		l := s.top()
		i := 0
		if last {
			i = l.p.Count() - 1
		}
		if l.p.Leaf() {
			l.i = i
			return nil
		}
		if err := s.down(i); err != nil {
			return err
		}
	}
}

// sibling goes to the near end of the next or previous leaf; false when there is none.
func (s *stack) sibling(back bool) (bool, error) {
	for n := len(s.levels) - 2; n >= 0; n-- {
		i := s.levels[n].i + step(back)
		if i < 0 || i >= s.levels[n].p.Count() {
			continue
		}
		s.levels = s.levels[:n+1]
		if err := s.down(i); err != nil {
			return false, err
		}
		return true, s.edge(back)
	}
	return false, nil
}

// settle skips empty leaves until the top is at a row; false when there is none.
func (s *stack) settle() (bool, error) {
	for {
		if l := s.top(); l.i < l.p.Count() {
			return true, nil
		}
		if ok, err := s.sibling(false); err != nil || !ok {
			return false, err
		}
	}
}

func (s *stack) row() (k, v []byte) {
	l := s.top()
	return l.p.LeafKey(l.i), l.p.Value(l.i)
}

// seek goes to the first row whose key is at least k; false when there is none.
func (s *stack) seek(k []byte) (bool, error) {
	if err := s.descend(k); err != nil {
		return false, err
	}
	l := s.top()
	l.i, _ = l.p.Search(k)
	return s.settle()
}

// next goes to the next row; false when there is none.
func (s *stack) next() (bool, error) {
	s.top().i++
	return s.settle()
}

func step(back bool) int {
	if back {
		return -1
	}
	return 1
}

// verifyAround verifies the leaf of k and the leaves beside it, and returns the key range of the
// leaf.
func (t *tree) verifyAround(k []byte) (lo, hi []byte, err error) {
	s := stack{t: t}
	if err := s.descend(k); err != nil {
		return nil, nil, err
	}
	lo, hi = s.top().lo, s.top().hi
	for _, back := range []bool{false, true} {
		if back {
			if err := s.descend(k); err != nil {
				return nil, nil, err
			}
		}
		if _, err := s.sibling(back); err != nil {
			return nil, nil, err
		}
	}
	return lo, hi, nil
}
