package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// diffReader reads the changes of a difference. Its end need not be proved: the tree that it leads
// to is.
type diffReader struct {
	*format.ChangeReader
	name string // of the object; empty for a difference in a record
	body io.Closer
}

// openDiff opens a difference. The caller closes it.
func (p *Page) openDiff(ctx context.Context, d *wire.Diff) (*diffReader, error) {
	if d.Place == nil {
		return &diffReader{ChangeReader: format.ChangesOf(d.Inline)}, nil
	}
	name := p.o.Names.Pack(d.Place.Epoch, d.Place.Pack)
	r, err := p.openPlace(ctx, name, d.Place)
	if err != nil {
		return nil, badObject(name, fmt.Errorf("read difference: %w", err))
	}
	return &diffReader{ChangeReader: format.NewChangeReader(r, int64(d.Place.Bytes)), name: name, body: r}, nil
}

// next returns the next change, and io.EOF at the end.
func (r *diffReader) next() (*format.Change, error) {
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

// checkChange verifies of a change what its reader does not know: from which length on a value is
// an object.
func checkChange(c *format.Change) error {
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
func entryOf(c *format.Change) fb.Entry {
	if c.Object.IsZero() {
		return fb.Entry{Key: c.Key, Value: c.Inline, Inline: true, Size: uint64(len(c.Inline))}
	}
	return fb.Entry{Key: c.Key, Digest: c.Object, Size: c.Size, Priority: c.Priority}
}

// changes yields the changes of a difference. want, if not nil, is called for each value that is an
// object.
func changes(r *diffReader, want func(*format.Change) error) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for {
			c, err := r.next()
			if err == io.EOF {
				return
			}
			if err == nil && want != nil && !c.Removed && !c.Object.IsZero() {
				err = want(c)
			}
			if err != nil {
				yield(btree.Change{}, err)
				return
			}
			change := btree.Change{Delete: c.Removed}
			if c.Removed {
				change.Entry.Key = c.Key
			} else {
				change.Entry = entryOf(c)
			}
			if !yield(change, nil) {
				return
			}
		}
	}
}

// treeError returns the error of building a tree: what the changes are to blame for is a fault.
func treeError(err error) error {
	if !isFault(err) && (errors.Is(err, base.ErrInvalid) || errors.Is(err, base.ErrTooLarge)) {
		return &fault{err: err}
	}
	return err
}

// applyDiff applies a difference to the tree of a root, as sink, source and want say, and verifies
// that it leads to another one.
func (p *Page) applyDiff(ctx context.Context, from, to object.Digest, d *wire.Diff, source btree.Source, sink btree.Sink, want func(*format.Change) error) error {
	r, err := p.openDiff(ctx, d)
	if err != nil {
		return err
	}
	defer r.close()
	root, err := btree.Tree{Page: p.o.Store.Page(), Source: source, Root: from}.Apply(ctx, sink, p.counted(changes(r, want)))
	if err != nil {
		return treeError(err)
	}
	if root != to {
		return &fault{r.name, fmt.Errorf("the difference leads to the tree %s, not to %s", root, to)}
	}
	return nil
}

// counted has the progress know of each value.
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

// placeFrames is how many frames of a pack are opened at once.
const placeFrames = 16

// placeReader reads what stands at a place, block by block.
type placeReader struct {
	p     *Page
	label seal.Label
	ref   seal.Ref
	body  io.ReadCloser
	size  int64  // of the object
	frame int64  // the next one that comes from body
	open  []byte // of the stream, opened and not used
	left  int64  // of the place, that is not in open
	from  int64  // where in the stream it begins
	rest  []byte // of the present block
}

// nearPlace is the offset up to which a place is read together with the head of its object.
const nearPlace = 256 << 10

// openPlace opens what stands at a place. Errors are those of the bucket and of opening.
func (p *Page) openPlace(ctx context.Context, name string, at *wire.Place) (*placeReader, error) {
	r := &placeReader{p: p, label: p.o.Names.DiffLabel(at.Epoch, at.Pack), from: int64(at.Offset), left: int64(at.Stored)}
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
	r.body, r.size, r.frame = o.Body, o.Size, first
	b := make([]byte, headBytes)
	if _, err := io.ReadFull(o.Body, b); err != nil {
		o.Body.Close()
		return nil, r.cut(err)
	}
	if r.ref, _, err = seal.Inspect(r.label, b); err != nil {
		o.Body.Close()
		return nil, err
	}
	if near {
		return r, nil
	}
	o.Body.Close()
	if o, err = p.o.Bucket.Get(ctx, name, from, length); err != nil {
		return nil, err
	}
	r.body = o.Body
	return r, nil
}

// cut returns the error for an object that ends too early.
func (r *placeReader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &base.CorruptError{Where: r.label.Role, Key: r.label.Name, Got: "an object that ends before what stands in it"}
	}
	return err
}

// Close ends the reading.
func (r *placeReader) Close() error { return r.body.Close() }

// Read implements io.Reader. It returns io.EOF behind the last block of the place.
func (r *placeReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.left+int64(len(r.open)) == 0 {
			return 0, io.EOF
		}
		if err := r.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// block opens the next block.
func (r *placeReader) block() error {
	if err := r.want(4); err != nil {
		return err
	}
	n := seal.StoredBytes(r.open)
	if n > seal.MaxBlockBytes+seal.BlockOverhead {
		return &base.CorruptError{Where: r.label.Role, Key: r.label.Name, Got: "something else than a block"}
	}
	if err := r.want(n); err != nil {
		return err
	}
	plain, err := seal.OpenBlock(r.label, bytes.Clone(r.open[:n]))
	r.open, r.rest = r.open[n:], plain
	return err
}

// want opens frames until n bytes of the place are there.
func (r *placeReader) want(n int) error {
	for len(r.open) < n {
		if r.left == 0 {
			return r.cut(io.EOF)
		}
		sealed := make([]byte, placeFrames*seal.FrameBytes)
		got, err := io.ReadFull(r.body, sealed)
		if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || got == 0) {
			return r.cut(err)
		}
		f, err := r.p.o.Sealer.OpenFrames(r.label, r.ref, r.size, r.frame, sealed[:got])
		if err != nil {
			return err
		}
		r.frame += placeFrames
		for {
			if err := f.Next(); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
		plain := f.Plain()
		if len(plain) == 0 {
			return r.cut(io.EOF)
		}
		plain = plain[min(max(0, r.from-f.Offset()), int64(len(plain))):]
		plain = plain[:min(r.left, int64(len(plain)))]
		r.left -= int64(len(plain))
		r.open = append(r.open[:len(r.open):len(r.open)], plain...)
	}
	return nil
}
