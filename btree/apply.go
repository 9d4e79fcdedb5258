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
	w := t.Writer(sink)
	defer w.release()
	for c, err := range changes {
		if err == nil {
			err = w.Change(ctx, &c)
		}
		if err != nil {
			return object.Digest{}, err
		}
	}
	return w.Finish(ctx)
}

// Build makes a tree of a page from entries in strictly ascending order of keys and returns its
// root. sink receives all its nodes. It is Apply on the empty tree, without a Source.
func Build(ctx context.Context, page [16]byte, sink Sink, entries iter.Seq2[fb.Entry, error]) (object.Digest, error) {
	w := Tree{Page: page, Root: EmptyRoot}.Writer(sink)
	defer w.release()
	var c Change
	for e, err := range entries {
		if err == nil {
			c.Entry = e
			err = w.Change(ctx, &c)
		}
		if err != nil {
			return object.Digest{}, err
		}
	}
	return w.Finish(ctx)
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

// Writer makes a new tree of one change after the other, as Apply does of a sequence. It belongs to
// one caller. After an error it is of no use.
//
// It walks down the old tree to each change, and passes everything between to the builder: whole
// subtrees where possible.
type Writer struct {
	b     builder
	order keyOrder
	at    walker // at the position of the next change
}

// writers keeps the buffers of open nodes: most of the allocations of a small Apply.
var writers = sync.Pool{New: func() any { return new(Writer) }}

// Writer returns a Writer on t. sink is as for Apply.
func (t Tree) Writer(sink Sink) *Writer {
	w := writers.Get().(*Writer)
	w.at.src, w.at.root, w.at.atTop = t.Source, subtree{digest: t.Root, level: anyLevel}, t.Root != EmptyRoot
	w.b.src, w.b.sink, w.b.hash = t.Source, sink, leveler(t.Page)
	return w
}

// release forgets everything but the buffers.
func (w *Writer) release() {
	w.b.release()
	w.order = keyOrder{last: w.order.last[:0]}
	w.at = walker{}
	writers.Put(w)
}

// Finish returns the root of the new tree. Errors: as for Apply.
func (w *Writer) Finish(ctx context.Context) (object.Digest, error) {
	if w.order.count == 0 {
		return w.at.root.digest, nil
	}
	for w.at.depth > 0 {
		if err := w.leave(ctx); err != nil {
			return object.Digest{}, err
		}
	}
	return w.b.finish(ctx)
}

// Change makes the next change, whose key is above those before. c is not retained. Errors: as for
// Apply.
func (w *Writer) Change(ctx context.Context, c *Change) error {
	if err := w.order.check(ctx, c.Entry.Key); err != nil {
		return err
	}
	if !c.Delete {
		if err := checkEntry(&c.Entry); err != nil {
			return fmt.Errorf("change tree: %w", err)
		}
	}
	found, err := w.seek(ctx, c.Entry.Key)
	if err != nil {
		return err
	}
	if !found {
		if c.Delete {
			return nil
		}
		return w.b.addChange(ctx, w.b.hash.level(c.Entry.Key), &c.Entry, nil)
	}
	p := &w.at.path[w.at.depth-1]
	if c.Delete {
		p.next++
		return nil
	}
	if old := p.node.Entry(p.next / 2); EqualValues(&old, &c.Entry) {
		return nil
	}
	p.next++
	return w.b.addChange(ctx, p.node.Level(), &c.Entry, &p.span)
}

// seek passes on everything before key. If the old tree has an entry with that key, it is the next
// item of the last place of the path.
func (w *Writer) seek(ctx context.Context, key []byte) (found bool, err error) {
	if w.at.atTop {
		if err := w.at.open(ctx, &w.at.root); err != nil {
			return false, err
		}
	}
	for w.at.depth > 0 {
		p := &w.at.path[w.at.depth-1]
		if p.hi != nil && bytes.Compare(key, p.hi) >= 0 {
			if err := w.leave(ctx); err != nil {
				return false, err
			}
			continue
		}
		i, found := p.node.Search(key)
		to := 2 * i
		if found {
			to++
		}
		if err := w.handOver(ctx, p, to); err != nil || found {
			return found, err
		}
		if p.next > to {
			return false, nil // the gap was passed
		}
		c, ok := p.child(i)
		if !ok {
			p.next++
			return false, nil
		}
		if err := w.at.open(ctx, &c); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (w *Writer) handOver(ctx context.Context, p *place, to int) error {
	err := w.b.addItems(ctx, &p.span, p.next, to)
	p.next = max(p.next, to)
	return err
}

// leave passes on the rest of the last node of the path and goes up.
func (w *Writer) leave(ctx context.Context) error {
	p := &w.at.path[w.at.depth-1]
	err := w.handOver(ctx, p, 2*p.node.Len()+1)
	w.at.depth--
	return err
}
