package btree

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Change is a change of one key.
type Change struct {
	// Delete removes the entry of Entry.Key, if there is one; the rest of Entry is then ignored.
	Delete bool
	// Entry replaces the entry with its key, or is added.
	Entry fb.Entry
}

// checkEvery is the number of changes or entries between two checks of a context.
const checkEvery = 256

// Apply makes the changes and returns the root of the new tree. The keys of the changes must ascend
// strictly; an entry need be valid only until the next is requested. Deleting an absent key and
// putting an equal entry change nothing. sink receives the nodes of the new tree that are not in t,
// each once, children before parents. Memory does not depend on the number of changes. The cost is
// proportional to the number of changes times the depth. If Apply fails, the nodes in the sink form
// no tree.
//
// Errors: those of the changes, unwrapped; those of the Source and the Sink, wrapped;
// base.ErrInvalid for keys out of order and entries that no tree can hold; base.ErrTooLarge for
// keys or nodes beyond their limits; *base.CorruptError; that of ctx.
func (t Tree) Apply(ctx context.Context, sink Sink, changes iter.Seq2[Change, error]) (object.Digest, error) {
	a := appliers.Get().(*applier)
	defer a.release()
	a.root = subtree{digest: t.Root, level: anyLevel}
	a.b.src, a.b.sink, a.b.hash = t.Source, sink, leveler(t.Page)
	for c, err := range changes {
		if err == nil {
			err = a.order.check(ctx, c.Entry.Key)
		}
		if err == nil {
			err = a.change(ctx, &c)
		}
		if err != nil {
			return object.Digest{}, err
		}
	}
	if a.order.count == 0 {
		return t.Root, nil
	}
	for a.depth > 0 {
		if err := a.leave(ctx); err != nil {
			return object.Digest{}, err
		}
	}
	return a.b.finish(ctx)
}

// Build makes a tree of a page from entries in strictly ascending order of keys and returns its
// root. sink receives all its nodes. It is Apply on the empty tree, without a Source.
func Build(ctx context.Context, page [16]byte, sink Sink, entries iter.Seq2[fb.Entry, error]) (object.Digest, error) {
	a := appliers.Get().(*applier)
	defer a.release()
	b, o := &a.b, &a.order
	b.sink, b.hash = sink, leveler(page)
	for e, err := range entries {
		if err == nil {
			err = o.check(ctx, e.Key)
		}
		if err == nil {
			err = checkEntry(&e)
		}
		if err == nil {
			err = b.addChange(ctx, b.hash.level(e.Key), &e, nil)
		}
		if err != nil {
			return object.Digest{}, err
		}
	}
	return b.finish(ctx)
}

// keyOrder verifies that keys ascend strictly, and checks the context periodically.
type keyOrder struct {
	last  []byte
	count uint64
}

func (o *keyOrder) check(ctx context.Context, key []byte) error {
	if o.count%checkEvery == 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if o.count > 0 && bytes.Compare(o.last, key) >= 0 {
		return fmt.Errorf("change tree: key number %d is not above the one before: %w", o.count, base.ErrInvalid)
	}
	o.last = append(o.last[:0], key...)
	o.count++
	return nil
}

// applier walks down the old tree to each change, and passes everything between to the builder:
// whole subtrees where possible.
type applier struct {
	b     builder
	order keyOrder
	root  subtree
	// The path to the position of the next change. Levels decrease strictly along it.
	path  [MaxLevel + 1]place
	depth int
}

// appliers keeps the buffers of open nodes: most of the allocations of a small Apply.
var appliers = sync.Pool{New: func() any { return new(applier) }}

// release forgets everything but the buffers.
func (a *applier) release() {
	a.b.release()
	a.order = keyOrder{last: a.order.last[:0]}
	a.root, a.depth = subtree{}, 0
	clear(a.path[:])
	appliers.Put(a)
}

// place is an old node that is being copied: its items before next have been passed on or left out.
type place struct {
	span
	next int
}

func (a *applier) change(ctx context.Context, c *Change) error {
	if !c.Delete {
		if err := checkEntry(&c.Entry); err != nil {
			return fmt.Errorf("change tree: %w", err)
		}
	}
	found, err := a.seek(ctx, c.Entry.Key)
	if err != nil {
		return err
	}
	if !found {
		if c.Delete {
			return nil
		}
		return a.b.addChange(ctx, a.b.hash.level(c.Entry.Key), &c.Entry, nil)
	}
	p := &a.path[a.depth-1]
	if c.Delete {
		p.next++
		return nil
	}
	if old := p.node.Entry(p.next / 2); EqualValues(&old, &c.Entry) {
		return nil
	}
	p.next++
	return a.b.addChange(ctx, p.node.Level(), &c.Entry, &p.span)
}

// seek passes on everything before key. If the old tree has an entry with that key, it is the next
// item of the last place of the path.
func (a *applier) seek(ctx context.Context, key []byte) (found bool, err error) {
	if a.order.count == 1 && a.root.digest != EmptyRoot {
		if err := a.enter(ctx, &a.root); err != nil {
			return false, err
		}
	}
	for a.depth > 0 {
		p := &a.path[a.depth-1]
		if p.hi != nil && bytes.Compare(key, p.hi) >= 0 {
			if err := a.leave(ctx); err != nil {
				return false, err
			}
			continue
		}
		i, found := p.node.Search(key)
		to := 2 * i
		if found {
			to++
		}
		if err := a.handOver(ctx, p, to); err != nil || found {
			return found, err
		}
		if p.next > to {
			return false, nil // the gap was passed
		}
		p.next++
		c, ok := p.child(i)
		if !ok {
			return false, nil
		}
		if err := a.enter(ctx, &c); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (a *applier) handOver(ctx context.Context, p *place, to int) error {
	err := a.b.addItems(ctx, &p.span, p.next, to)
	p.next = max(p.next, to)
	return err
}

func (a *applier) enter(ctx context.Context, s *subtree) error {
	old, err := s.open(ctx, a.b.src)
	if err != nil {
		return err
	}
	a.path[a.depth] = place{span: old}
	a.depth++
	return nil
}

// leave passes on the rest of the last node of the path and goes up.
func (a *applier) leave(ctx context.Context) error {
	p := &a.path[a.depth-1]
	err := a.handOver(ctx, p, 2*p.node.Len()+1)
	a.depth--
	return err
}
