package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// diffReader reads the changes of a difference. Its end need not be proved: the resulting tree is.
type diffReader struct {
	*wire.ChangeReader
	name string // of the object; empty for a difference in a record
	body io.Closer
}

// openDiff opens a difference. The caller closes it.
func (p *Page) openDiff(ctx context.Context, d *wire.Diff) (*diffReader, error) {
	if d.Place == nil {
		return &diffReader{ChangeReader: wire.ChangesOf(d.Inline)}, nil
	}
	name := p.o.Names.Pack(d.Place.Epoch, d.Place.Pack)
	r, err := p.openPlace(ctx, name, d.Place)
	if err != nil {
		return nil, badObject(name, fmt.Errorf("read difference: %w", err))
	}
	return &diffReader{ChangeReader: wire.NewChangeReader(r, int64(d.Place.Bytes)), name: name, body: r}, nil
}

// openDiffs opens differences. The caller closes the returned ones, also after an error.
func (p *Page) openDiffs(ctx context.Context, ds []wire.Diff) (readers []*diffReader, err error) {
	for i := range ds {
		r, err := p.openDiff(ctx, &ds[i])
		if err != nil {
			return readers, err
		}
		readers = append(readers, r)
	}
	return readers, nil
}

func closeDiffs(readers []*diffReader) {
	for _, r := range readers {
		r.close()
	}
}

// next returns the next change, or io.EOF at the end.
func (r *diffReader) next() (*wire.Change, error) {
	c, err := r.Next()
	switch {
	case err == nil:
		return c, checkChange(c)
	case err == io.EOF:
		return nil, err
	case r.name == "" && errors.Is(err, base.ErrCorrupt):
		return nil, &fault{err: err}
	}
	return nil, badObject(r.name, fmt.Errorf("read difference: %w", err))
}

func (r *diffReader) close() {
	if r.body != nil {
		r.body.Close()
	}
}

// checkChange verifies what the reader of a change cannot: the length from which a value is an
// object.
func checkChange(c *wire.Change) error {
	switch {
	case c.Removed:
		return nil
	case c.Object.IsZero() && len(c.Inline) > btree.InlineLimit:
		return bad("a value of %d bytes in its change", len(c.Inline))
	case !c.Object.IsZero() && c.Size <= btree.InlineLimit:
		return bad("an object of %d bytes", c.Size)
	}
	return nil
}

// entryOf returns the tree entry that a change puts.
func entryOf(c *wire.Change) fb.Entry {
	if c.Object.IsZero() {
		return fb.Entry{Key: c.Key, Value: c.Inline, Inline: true, Size: uint64(len(c.Inline))}
	}
	return fb.Entry{Key: c.Key, Digest: c.Object, Size: c.Size, Priority: c.Priority}
}

// composed yields the changes of consecutive differences as those of one: the last change of each
// key. want, if not nil, is called for each value that is an object.
func composed(readers []*diffReader, want func(*wire.Change) error) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		at := make([]*wire.Change, len(readers))
		advance := func(i int) (err error) {
			if at[i], err = readers[i].next(); err == io.EOF {
				at[i], err = nil, nil
			}
			return err
		}
		fail := func(err error) { yield(btree.Change{}, err) }
		for i := range readers {
			if err := advance(i); err != nil {
				fail(err)
				return
			}
		}
		for {
			last := -1
			for i, c := range at {
				if c != nil && (last < 0 || bytes.Compare(c.Key, at[last].Key) <= 0) {
					last = i
				}
			}
			if last < 0 {
				return
			}
			c := at[last]
			if want != nil && !c.Removed && !c.Object.IsZero() {
				if err := want(c); err != nil {
					fail(err)
					return
				}
			}
			change := btree.Change{Delete: c.Removed}
			if change.Entry.Key = c.Key; !c.Removed {
				change.Entry = entryOf(c)
			}
			if !yield(change, nil) {
				return
			}
			for i := range at {
				if i == last || at[i] == nil || !bytes.Equal(at[i].Key, c.Key) {
					continue
				}
				if err := advance(i); err != nil {
					fail(err)
					return
				}
			}
			if err := advance(last); err != nil {
				fail(err)
				return
			}
		}
	}
}

// treeError returns the error of building a tree. An error that the changes caused is a fault.
func treeError(err error) error {
	if !isFault(err) && (errors.Is(err, base.ErrInvalid) || errors.Is(err, base.ErrTooLarge)) {
		return &fault{err: err}
	}
	return err
}

// applyDiffs applies consecutive differences to the tree of the root from, and verifies that the
// result has the root to.
func (p *Page) applyDiffs(ctx context.Context, from, to object.Digest, ds []wire.Diff, source btree.Source, sink btree.Sink, want func(*wire.Change) error) error {
	readers, err := p.openDiffs(ctx, ds)
	defer closeDiffs(readers)
	if err != nil {
		return err
	}
	root, err := btree.Tree{Page: p.o.Store.Page(), Source: source, Root: from}.Apply(ctx, sink, p.counted(composed(readers, want)))
	if err != nil {
		return treeError(err)
	}
	if root != to {
		return &fault{readers[len(readers)-1].name, fmt.Errorf("the difference leads to the tree %s, not to %s", root, to)}
	}
	return nil
}

// counted counts each value in the progress.
func (p *Page) counted(of iter.Seq2[btree.Change, error]) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for c, err := range of {
			if err == nil && !c.Delete {
				p.o.Down.Advance(1, 0)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// nearPlace is the offset up to which a place is read together with the head of its object.
const nearPlace = 256 << 10

// place reads the content at a place of an object. Its reader closes it.
type place struct {
	*seal.Stream
	io.Closer
}

// openPlace opens the content at a place. Errors are those of the bucket and of opening.
func (p *Page) openPlace(ctx context.Context, name string, at *wire.Place) (*place, error) {
	label := p.o.Names.DiffLabel(at.Epoch, at.Pack)
	first, from, length := seal.Cover(int64(at.Offset), int64(at.Stored))
	_, headBytes, _ := seal.Cover(0, 1)
	head, near := headBytes, at.Offset <= nearPlace
	if near {
		head, first = from+length, 0
	}
	o, err := p.o.Bucket.Get(ctx, name, 0, head)
	if err != nil {
		return nil, err
	}
	b := make([]byte, headBytes)
	n, err := io.ReadFull(o.Body, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // Inspect reports the short head
	}
	var ref seal.Ref
	if err == nil {
		ref, _, err = seal.Inspect(label, b[:n])
	}
	if err == nil && !near {
		o.Body.Close()
		o, err = p.o.Bucket.Get(ctx, name, from, length)
	}
	if err != nil {
		if o.Body != nil {
			o.Body.Close()
		}
		return nil, err
	}
	stream, err := p.o.Sealer.NewPart(o.Body, o.Size, label, ref, first, int64(at.Offset), int64(at.Stored))
	if err != nil {
		o.Body.Close()
		return nil, err
	}
	return &place{stream, o.Body}, nil
}
