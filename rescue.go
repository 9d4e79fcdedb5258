package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// Rescue says what was made of a head of which a part is gone for good.
type Rescue struct {
	// Head has holes. Commit is a new commit on it, with all entries of Head that can be read;
	// where they cannot, it has what Older had there: the newest version found that is whole, zero
	// when there is none.
	Head, Commit, Older CommitID
	// Entries are all that Commit has, FromOlder those of them that Older gave.
	Entries, FromOlder int64
}

// rescueHeads makes commits on heads with holes that nobody can fill: on such a head nothing could
// be built.
func (c *pageCheck) rescueHeads(ctx context.Context) error {
	if c.repo.cloud.Has() && !c.compared {
		return nil // what is missing may come yet
	}
	return c.visit(ctx, func(ctx context.Context, p *Page) error {
		for _, h := range p.store.Heads() {
			whole, err := p.store.TreeWhole(ctx, h)
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

func (c *pageCheck) rescue(ctx context.Context, p *Page, head *commit.Commit) error {
	older, err := p.wholeAncestor(ctx, head)
	if err != nil {
		return err
	}
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	j := p.store.NewJournal()
	defer j.Rollback()
	r := &reader{page: p, older: older}
	root, err := btree.Build(ctx, p.ID(), &txSink{j: j}, func(yield func(fb.Entry, error) bool) {
		if err := r.walk(ctx, head.Root, nil, nil, yield); err != nil && !errors.Is(err, errStopped) {
			yield(fb.Entry{}, err)
		}
	})
	if err != nil {
		return err
	}
	next, pending, err := p.submit(ctx, j, root, head, "repaired: what is left of "+head.ID.Short())
	if err == nil && pending != nil {
		err = pending.Wait()
	}
	if err != nil || next == nil {
		return err
	}
	c.rescued = append(c.rescued, Rescue{Head: CommitID(head.ID), Commit: CommitID(next.ID), Older: CommitID(older.ID), Entries: r.entries, FromOlder: r.fromOlder})
	return nil
}

// wholeAncestor returns a commit before c whose tree is whole, as new a one as a few looks find; at
// last the first commit. The tree of the newest one that the cloud has is fetched.
func (p *Page) wholeAncestor(ctx context.Context, c *commit.Commit) (*commit.Commit, error) {
	local, err := p.store.Unsynced(ctx)
	if err != nil {
		return nil, err
	}
	asked := false
	for n, next := 1, 1; !c.IsFirst(); n++ {
		up, err := p.store.Commit(ctx, c.Parents[0])
		if errors.Is(err, ErrGone) || errors.Is(err, ErrNotFound) {
			return commit.First(), nil
		}
		if err != nil {
			return nil, err
		}
		c = up
		if ask := !asked && !slices.Contains(local, c.ID); ask {
			asked = true
			if err := p.ensureTree(ctx, c); ctx.Err() != nil {
				return nil, err
			}
		} else if n < next {
			continue
		}
		next = 2 * n
		if whole, err := p.store.TreeWhole(ctx, c); whole || err != nil {
			return c, err
		}
	}
	return c, nil
}

// reader reads what is left of a tree, and an older one where that has holes.
type reader struct {
	page               *Page
	older              *commit.Commit
	entries, fromOlder int64
}

// walk yields the entries of a subtree whose keys lie between low and high, both nil for no bound.
func (r *reader) walk(ctx context.Context, d object.Digest, low, high []byte, yield func(fb.Entry, error) bool) error {
	n, err := r.page.store.Node(ctx, d)
	if isDamage(err) || errors.Is(err, ErrNeedsFetch) {
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

// fill yields the entries that the older version has between two keys.
func (r *reader) fill(ctx context.Context, low, high []byte, yield func(fb.Entry, error) bool) error {
	cur := r.page.tree(r.older).Cursor()
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
