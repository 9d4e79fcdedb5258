package replica

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/spool"
	"github.com/ledgerd/ledger/object"
)

// inlineDiff is the greatest length of a difference that is inline in its commit. A longer one
// becomes an object that runs name, so that a rewritten run does not copy it.
const inlineDiff = 128 << 10

// runDiff is the greatest length of a difference inline in a run, which every new device reads.
// Longer ones that were inline in an entry share objects.
const runDiff = 512

// spillBytes is how much of an object is held in memory before it spills to a file.
const spillBytes = 16 << 20

// tally has counts of a difference.
type tally struct {
	eager, lazy bool   // there are values of this priority that are objects
	valueBytes  uint64 // of these values, including pieces that are held elsewhere too
	puts        int64  // keys that get a value
	inline      int64  // bytes of inline values
	plain       bool   // there are keys that must not be compressed
	// grown is the approximate growth of a difference from the empty tree by this one.
	grown int64
}

// add counts a change. plain is Options.Plain.
func (t *tally) add(c *btree.Change, plain func(key []byte) bool) {
	e := &c.Entry
	t.plain = t.plain || plain != nil && plain(e.Key)
	if c.Delete {
		return
	}
	t.puts++
	switch {
	case e.Inline:
		t.inline += int64(len(e.Value))
		return
	case e.Priority == object.Lazy:
		t.lazy = true
	default:
		t.eager = true
	}
	t.valueBytes += e.Size
}

// delta is a difference between two trees. kept are its bytes, as far as they are held.
type delta struct {
	base     commit.ID // zero: the empty tree
	from, to btree.Tree
	bytes    uint64
	kept     []byte
	place    *wire.Place // of its object; nil for an inline difference
	put      bool        // a transaction has put its values, not a merge
	tally    tally
}

func (p *Page) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: p.o.Store.Page(), Source: p.o.Store, Root: root}
}

// changeBytes returns the approximate length of the change that puts an entry.
func changeBytes(key []byte, has bool, e *fb.Entry) int64 {
	switch {
	case !has:
		return 0
	case e.Inline:
		return int64(len(key)+len(e.Value)) + 4
	}
	return int64(len(key)) + object.DigestSize + 8
}

// encodeDiff writes the difference of two trees to w.
func (p *Page) encodeDiff(ctx context.Context, from, to btree.Tree, w io.Writer) (bytes uint64, t tally, err error) {
	cw := wire.NewChangeWriter(w)
	var c btree.Change
	for d, err := range btree.Diff(ctx, from, to, nil) {
		if err != nil {
			return 0, t, fmt.Errorf("compare trees: %w", err)
		}
		c = btree.Change{Delete: !d.HasRight, Entry: d.Right}
		c.Entry.Key = d.Key
		t.add(&c, p.o.Plain)
		t.grown += changeBytes(d.Key, d.HasRight, &d.Right) - changeBytes(d.Key, d.HasLeft, &d.Left)
		if err := cw.Write(&c); err != nil {
			return 0, t, err
		}
	}
	return uint64(cw.Bytes()), t, nil
}

// candidate is a tree from which a difference may lead.
type candidate struct {
	base commit.ID
	tree btree.Tree
}

// errLong ends the encoding of a difference that exceeds its limit.
var errLong = errors.New("the difference is too long")

// bounded accepts a difference of at most limit bytes, and keeps it if it may be inline.
type bounded struct {
	limit, bytes int
	kept         []byte
}

// Write implements io.Writer. It returns errLong beyond the limit.
func (w *bounded) Write(b []byte) (int, error) {
	if w.bytes += len(b); w.bytes > w.limit {
		return 0, errLong
	}
	if w.bytes > inlineDiff {
		w.kept = nil
	} else {
		w.kept = append(w.kept, b...)
	}
	return len(b), nil
}

// firstBytes is the first limit on a difference that has competitors.
const firstBytes = 4 << 10

// shortest returns the shortest difference from a candidate to a tree. Several candidates are
// encoded up to one limit, which doubles until one difference is complete. So a long difference
// costs little. long says that the difference is too long to be inline; then only its base is set.
func (p *Page) shortest(ctx context.Context, ks []candidate, to btree.Tree) (d *delta, long bool, err error) {
	limit := firstBytes
	if len(ks) == 1 {
		limit = inlineDiff
	}
	for ; d == nil; limit *= 2 {
		for _, k := range ks {
			w := &bounded{limit: limit}
			bytes, t, err := p.encodeDiff(ctx, k.tree, to, w)
			switch over := errors.Is(err, errLong); {
			case over && len(ks) == 1:
				return &delta{base: k.base, from: k.tree, to: to}, true, nil
			case err != nil && !over:
				return nil, false, err
			case err == nil && (d == nil || bytes < d.bytes):
				d = &delta{base: k.base, from: k.tree, to: to, bytes: bytes, kept: w.kept, tally: t}
				limit = w.bytes
			}
		}
	}
	return d, d.bytes > inlineDiff, nil
}

// uploadDiff makes a difference an object of its own in the packs of an epoch, and sets its place.
// compress says that the difference belongs to one commit, so that it may be compressed.
func (p *Page) uploadDiff(ctx context.Context, e epoch.ID, d *delta, compress bool) (err error) {
	w := p.newDiffWriter(e, compress && p.o.Plain == nil)
	defer w.close()
	if _, d.tally, err = p.encodeDiff(ctx, d.from, d.to, w); err != nil {
		return err
	}
	if d.place, err = w.finish(ctx); err == nil {
		d.bytes = d.place.Bytes
	}
	return err
}

// diffWriter writes differences into an object, each in blocks of its own.
type diffWriter struct {
	p     *Page
	place wire.Place // of all differences that were ended
	out   *spool.Spool
	w     *seal.Writer
}

func (p *Page) newDiffWriter(e epoch.ID, compress bool) *diffWriter {
	w := &diffWriter{p: p, place: wire.Place{Epoch: e, Pack: p.o.NewID()}, out: spool.New(p.o.Store.TempDir(), "upload-*", spillBytes)}
	w.w = p.o.Sealer.NewWriter(w.out, p.o.Names.DiffLabel(e, w.place.Pack), compress, nil)
	return w
}

// Write implements io.Writer.
func (w *diffWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.place.Bytes += uint64(n)
	return n, err
}

// end ends a difference, and returns its place.
func (w *diffWriter) end(begun wire.Place) (*wire.Place, error) {
	at, err := w.w.Flush()
	if err != nil {
		return nil, fmt.Errorf("seal a difference: %w", err)
	}
	w.place.Stored = uint64(at)
	here := w.place
	here.Offset, here.Stored, here.Bytes = begun.Stored, here.Stored-begun.Stored, here.Bytes-begun.Bytes
	return &here, nil
}

// finish uploads the object, and returns the place of all its content.
func (w *diffWriter) finish(ctx context.Context) (*wire.Place, error) {
	at, err := w.end(wire.Place{})
	if err != nil {
		return nil, err
	}
	if err := w.w.Close(); err != nil {
		return nil, fmt.Errorf("seal a difference: %w", err)
	}
	r, err := w.out.Reader()
	if err != nil {
		return nil, err
	}
	return at, bucket.PutNew(ctx, w.p.o.Bucket, w.p.o.Names.Pack(at.Epoch, at.Pack), w.out.Size(), r)
}

func (w *diffWriter) close() { w.out.Close() }
