package checkup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// rescueHeads makes commits on heads with irreparable holes, since no other commit could be made on
// such a head.
func (c *check) rescueHeads(ctx context.Context) error {
	if c.o.Cloud && !c.compared {
		return nil // missing parts may still be downloaded
	}
	return c.o.Visit(ctx, func(ctx context.Context, p *Page) error {
		for _, h := range p.Store.Heads() {
			whole, err := p.Store.TreeWhole(ctx, h)
			if err == nil && !whole {
				err = c.rescue(ctx, p, h)
			}
			if err != nil {
				return fmt.Errorf("rescue what is left of commit %s: %w", h.ID.Short(), err)
			}
		}
		return nil
	})
}

func (c *check) rescue(ctx context.Context, p *Page, head *commit.Commit) error {
	older, err := wholeAncestor(ctx, p, head)
	if err != nil {
		return err
	}
	r := &reader{page: p, older: older}
	next, err := p.Commit(ctx, head, "repaired: what is left of "+head.ID.Short(), func(yield func(fb.Entry, error) bool) {
		if err := r.walk(ctx, head.Root, nil, nil, yield); err != nil && !errors.Is(err, errStopped) {
			yield(fb.Entry{}, err)
		}
	})
	if err != nil || next == nil {
		return err
	}
	c.rescued = append(c.rescued, Rescue{Head: head.ID, Commit: next.ID, Older: older.ID, Entries: r.entries, FromOlder: r.fromOlder})
	return nil
}

// errStopped ends a walk when the caller stops.
var errStopped = errors.New("stopped")

// wholeAncestor returns an ancestor of c with a complete tree, as new as a few attempts find; at
// last the first commit. It fetches the tree of the newest ancestor that the cloud has.
func wholeAncestor(ctx context.Context, p *Page, c *commit.Commit) (*commit.Commit, error) {
	local, err := p.Store.Unsynced(ctx)
	if err != nil {
		return nil, err
	}
	asked := false
	for n, next := 1, 1; !c.IsFirst(); n++ {
		up, err := known(ctx, p.Store, c.Parents[0])
		if err != nil {
			return nil, err
		}
		if c = up; c == nil {
			return commit.First(), nil
		}
		if ask := !asked && !slices.Contains(local, c.ID); ask {
			asked = true
			if err := p.Complete(ctx, c); ctx.Err() != nil {
				return nil, err
			}
		} else if n < next {
			continue
		}
		next = 2 * n
		if whole, err := p.Store.TreeWhole(ctx, c); whole || err != nil {
			return c, err
		}
	}
	return c, nil
}

// reader reads the rest of a damaged tree, and an older tree in its holes.
type reader struct {
	page               *Page
	older              *commit.Commit
	entries, fromOlder int64
}

// walk yields the entries of a subtree with keys between low and high; nil means no bound.
func (r *reader) walk(ctx context.Context, d object.Digest, low, high []byte, yield func(fb.Entry, error) bool) error {
	n, err := r.page.Store.Node(ctx, d)
	if isDamage(err) || errors.Is(err, base.ErrNeedsFetch) {
		return r.fill(ctx, low, high, yield)
	}
	if err != nil {
		return err
	}
	children := map[int]object.Digest{}
	for i := range n.NumChildren() {
		ch := n.Child(i)
		children[ch.Gap] = ch.Digest
	}
	for i := range n.Len() + 1 {
		from, to := low, high
		if i > 0 {
			from = n.Key(i - 1)
		}
		if i < n.Len() {
			to = n.Key(i)
		}
		if d, ok := children[i]; ok {
			if err := r.walk(ctx, d, from, to, yield); err != nil {
				return err
			}
		}
		if i == n.Len() {
			break
		}
		if r.entries++; !yield(n.Entry(i), nil) {
			return errStopped
		}
	}
	return nil
}

// fill yields the entries of the older version between two keys.
func (r *reader) fill(ctx context.Context, low, high []byte, yield func(fb.Entry, error) bool) error {
	cur := r.page.Tree(r.older).Cursor()
	ok, err := cur.Seek(ctx, low)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		if low != nil && bytes.Equal(e.Key, low) {
			continue
		}
		if high != nil && bytes.Compare(e.Key, high) >= 0 {
			return nil
		}
		r.entries++
		r.fromOlder++
		if !yield(e, nil) {
			return errStopped
		}
	}
	return err
}
