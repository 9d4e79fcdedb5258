package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// treeWalk examines trees, and the values in them, by the rows of an index that was folded from
// scratch. It examines each node and piece once.
type treeWalk struct {
	s     *Store
	ctx   context.Context
	from  *rebuilder // finds nodes and pieces
	tx    index.Tx   // of the index
	nodes int        // number of examined nodes
	known bitset     // numbers of examined nodes and pieces of values
	lacks bitset     // those of nodes with damage below
	// away is called for a piece of the value of key that is not held. known says that it was
	// examined before, and placed that the bucket has it.
	away func(d *object.Digest, key []byte, known, placed bool) error
	// bad is called with the result of a value: an error that it returns ends the walk.
	bad func(error) error
}

// tree examines a tree. It returns the first damage, after it has examined the rest. With again it
// also returns damage that was found in another tree.
func (w *treeWalk) tree(root object.Digest, again bool) error {
	t := btree.Tree{Page: w.s.o.Page, Source: w, Root: root}
	return btree.Verify(w.ctx, t, func(n *fb.Node, d object.Digest, children func() error) error {
		number, known, err := w.visit(&d)
		if err == nil && known && again && w.lacks.has(number) {
			err = missing(&d)
		}
		if err != nil || known {
			return err
		}
		w.nodes++
		for i := range n.Len() {
			if n.Inline(i) {
				continue
			}
			e := n.Entry(i)
			if err := w.bad(w.piece(&e.Digest, e.Key, e.Size, 0)); err != nil {
				return err
			}
		}
		if err = children(); errors.Is(err, base.ErrCorrupt) {
			w.lacks.set(number)
		}
		return err
	})
}

// Node implements btree.Source. It reads past the cache.
func (w *treeWalk) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, _, err := w.s.loadLocated(ctx, d, w.from, 0, nil)
	return n, err
}

// visit records that a piece is being examined. It returns the piece's number, and reports whether
// it was examined before.
func (w *treeWalk) visit(d *object.Digest) (number uint64, known bool, err error) {
	row, ok, err := readObjectRow(w.tx, d)
	if err != nil || !ok {
		return 0, false, err
	}
	return row.number, w.known.set(row.number), nil
}

// maxIndexDepth bounds the nesting of index pieces: with two children each, less would already make
// 2^64 bytes.
const maxIndexDepth = 64

// piece examines a piece of the value of key and those below it: they exist, and their sizes add
// up.
func (w *treeWalk) piece(d *object.Digest, key []byte, size uint64, depth int) error {
	bad := func(what string) error {
		return &base.CorruptError{Where: "object", Key: d.String(), Got: what}
	}
	if d.Kind().IsNode() || depth > maxIndexDepth {
		return bad("no piece of a value")
	}
	_, known, err := w.visit(d)
	if err != nil {
		return err
	}
	l, ok, err := w.from.locate(d, false)
	if err != nil {
		return err
	}
	if !ok {
		st, err := readPieceState(w.tx, d)
		return w.away(d, key, known, err == nil && st.placed)
	}
	if !d.Kind().IsIndex() {
		if l.kind != recPiece || uint64(pieceBytes(l.place)) != size {
			return bad(fmt.Sprintf("a piece of %d bytes where %d are listed", pieceBytes(l.place), size))
		}
		return nil
	}
	content, err := w.s.content(d, &l)
	if err != nil {
		return err
	}
	ix, err := fb.ParseIndex(content)
	if err != nil {
		return &base.CorruptError{Where: "object", Key: d.String(), Err: err}
	}
	if ix.Size() != size {
		return bad(fmt.Sprintf("an index of %d bytes where %d are listed", ix.Size(), size))
	}
	if known {
		return nil
	}
	for i := range ix.Len() {
		child := ix.Child(i)
		if err := w.piece(&child.Digest, key, child.Size, depth+1); err != nil {
			return err
		}
	}
	return nil
}
