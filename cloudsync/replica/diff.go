package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// changes yields the changes of a difference. Its end need not be proved: the resulting tree is.
func (p *Page) changes(ctx context.Context, d *wire.Diff) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		name, in, n := p.diffName(d), io.Reader(bytes.NewReader(d.Inline)), uint64(len(d.Inline))
		fail := func(err error) error { return badObject(name, fmt.Errorf("read difference: %w", err)) }
		if d.Place != nil {
			r, err := p.openPlace(ctx, name, d.Place)
			if err != nil {
				yield(btree.Change{}, fail(err))
				return
			}
			defer r.Close()
			in, n = r, d.Place.Bytes
		}
		for c, err := range wire.ReadChanges(in, n) {
			if err != nil {
				err = fail(err)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// diffName returns the name of the object of a difference, empty for one in a record.
func (p *Page) diffName(d *wire.Diff) string {
	if d.Place == nil {
		return ""
	}
	return p.o.Names.Pack(d.Place.Epoch, d.Place.Pack)
}

// composed yields the changes of consecutive differences as those of one: the last change of each
// key.
func composed(diffs []iter.Seq2[btree.Change, error]) iter.Seq2[btree.Change, error] {
	diffs = slices.Clone(diffs)
	slices.Reverse(diffs)
	return wire.Merged(diffs, func(a, b btree.Change) int { return bytes.Compare(a.Entry.Key, b.Entry.Key) })
}

// treeError returns the error of building a tree. An error that the changes caused is a fault; one
// of the bucket is none.
func treeError(err error) error {
	refused := errors.Is(err, base.ErrInvalid) || errors.Is(err, base.ErrTooLarge)
	if refused && !isFault(err) && bucket.ClassOf(err) == bucket.ClassOther {
		return &fault{err: err}
	}
	return err
}

// applyDiffs applies consecutive differences to the tree of the root from, and verifies that the
// result has the root to. want, if not nil, is called for each value that is an object.
func (p *Page) applyDiffs(ctx context.Context, from, to object.Digest, ds []wire.Diff, source btree.Source, sink btree.Sink, want func(*fb.Entry) error) error {
	var all []iter.Seq2[btree.Change, error]
	for i := range ds {
		all = append(all, p.changes(ctx, &ds[i]))
	}
	root, err := btree.Tree{Page: p.o.Store.Page(), Source: source, Root: from}.Apply(ctx, sink, p.wanted(composed(all), want))
	if err != nil {
		return treeError(err)
	}
	if root != to {
		return &fault{p.diffName(&ds[len(ds)-1]), fmt.Errorf("the difference leads to the tree %s, not to %s", root, to)}
	}
	return nil
}

// wanted counts each value in the progress, and calls want for each that is an object.
func (p *Page) wanted(of iter.Seq2[btree.Change, error], want func(*fb.Entry) error) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for c, err := range of {
			if err == nil && !c.Delete {
				p.o.Down.Advance(1, 0)
				if want != nil && !c.Entry.Inline {
					err = want(&c.Entry)
				}
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
