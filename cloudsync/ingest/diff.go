package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// diffReader reads the changes of a diff from an entry, or from an object of its own.
type diffReader struct {
	*format.ChangeReader
	name   string // of the object; empty for a diff in an entry
	stream io.Reader
	body   io.Closer
	puts   int64 // changes that were read and put a value
}

// openDiff opens a diff. The caller closes it.
func (p *Page) openDiff(ctx context.Context, d *format.Diff) (*diffReader, error) {
	if d.Pack == (format.ID{}) {
		return &diffReader{ChangeReader: format.ChangesOf(d.Inline)}, nil
	}
	name := p.o.Names.Pack(d.Pack)
	o, err := p.o.Bucket.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("read diff %s: %w", name, err)
	}
	st, err := p.o.Sealer.NewStream(o.Body, p.o.Names.DiffLabel(d.Pack))
	if err != nil {
		o.Body.Close()
		return nil, badObject(name, fmt.Errorf("read diff %s: %w", name, err))
	}
	return &diffReader{ChangeReader: format.NewChangeReader(st, int64(d.Bytes)), name: name, stream: st, body: o.Body}, nil
}

// next returns the next change, and io.EOF at the end, which is then proved.
func (r *diffReader) next() (*format.Change, error) {
	c, err := r.Next()
	switch {
	case err == nil:
		if !c.Removed {
			r.puts++
		}
		return c, checkChange(c)
	case err == io.EOF:
		return nil, r.proveEnd()
	case r.name == "" && errors.Is(err, base.ErrCorrupt):
		return nil, &fault{err: err}
	}
	return nil, badObject(r.name, fmt.Errorf("read diff: %w", err))
}

// proveEnd returns io.EOF when nothing is behind the changes, and the object is whole.
func (r *diffReader) proveEnd() error {
	if r.stream == nil {
		return io.EOF
	}
	var b [1]byte
	if _, err := io.ReadFull(r.stream, b[:]); err != io.EOF {
		if err == nil {
			return &fault{object: r.name, err: errors.New("a diff that is longer than its entry says")}
		}
		return badObject(r.name, fmt.Errorf("read diff: %w", err))
	}
	return io.EOF
}

func (r *diffReader) close() {
	if r.body != nil {
		r.body.Close()
	}
}

// checkChange verifies of a change what a reader of changes does not know: from which length on a
// value is an object. The rest the reader has proved: the length of the key, the kind of the
// digest, the priority.
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

// apply applies a diff to the tree of a root and returns the new root. All values that it puts are
// here then, or the bucket has them, as their priority asks.
func (s *step) apply(ctx context.Context, from object.Digest, d format.Diff) (object.Digest, error) {
	var none object.Digest
	r, err := s.p.openDiff(ctx, &d)
	if err != nil {
		return none, err
	}
	defer r.close()
	root, err := s.tree(from).Apply(ctx, s, changes(r, func(c *format.Change) error { return s.values.want(ctx, c.Object, c.Size, c.Priority) }))
	if err == nil && r.name != "" {
		s.res.Bytes += int64(d.Bytes)
		s.p.o.Progress.Expect(r.puts, 0)
	}
	if err != nil {
		return none, treeError(err)
	}
	s.p.o.Progress.Advance(r.puts, diffBytes(&d))
	return root, s.values.settle(ctx)
}

// diffBytes is the length of a diff, wherever that stands.
func diffBytes(d *format.Diff) int64 {
	if d.Pack == (format.ID{}) {
		return int64(len(d.Inline))
	}
	return int64(d.Bytes)
}

func (s *step) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: s.p.page, Source: s, Root: root}
}

// changes yields the changes of a diff. want is called for each value that is an object.
func changes(r *diffReader, want func(*format.Change) error) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for {
			c, err := r.next()
			if err == io.EOF {
				return
			}
			if err == nil && !c.Removed && !c.Object.IsZero() && want != nil {
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
