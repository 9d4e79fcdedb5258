package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// located says where a stored piece is and how.
type located struct {
	kind    byte // recPiece, recNode or recDelta
	depth   uint8
	base    object.Digest // of a delta
	place   segment.Place
	content []byte // when the piece is in memory only
}

// locator finds stored pieces. It returns false for a piece that is not held. With dead it also
// finds a node that was deleted and whose bytes a difference needs.
type locator interface {
	locate(d *object.Digest, dead bool) (located, bool, error)
}

// locate looks into the overlay, then into the index.
func (s *Store) locate(d *object.Digest, dead bool) (located, bool, error) {
	o, ok, touched := s.over.look(d)
	if ok && !touched {
		return o.located(), true, nil
	}
	if touched {
		st, err := s.stateOf(d)
		if err != nil || st.held || !dead {
			return st.at, st.held, err
		}
		if o, ok := s.over.lastPiece(d); ok { // which is deleted there, too
			return o.located(), true, nil
		}
	}
	return s.locateFolded(d, dead)
}

// locateFolded looks into the index alone. Only here the results are allocated, as a closure sets
// them: a commit finds most nodes in the overlay.
func (s *Store) locateFolded(d *object.Digest, dead bool) (l located, ok bool, err error) {
	err = s.view(func(tx index.Tx) (err error) {
		l, ok, err = locateIn(tx, d, dead)
		return err
	})
	return l, ok, err
}

func (o *op) located() located {
	l := located{kind: o.kind, depth: o.depth, place: o.place, content: o.content}
	if o.base != nil {
		l.base = *o.base
	}
	return l
}

// locate looks into the page before it looks into the journal. A node that the page has may stand
// in the journal once more until dropHeld, as a difference to one that the page has as a difference
// to it: each place alone has no circles.
func (j *Journal) locate(d *object.Digest, dead bool) (located, bool, error) {
	if l, ok, err := j.s.locate(d, dead); ok || err != nil {
		return l, ok, err
	}
	if o, ok := j.find(d); ok {
		l := o.located()
		l.content = bytes.Clone(l.content) // the journal uses its memory again, and who reads may keep what he has read
		return l, true, nil
	}
	return located{}, false, nil
}

// locateIn finds a piece by the rows of the index.
func locateIn(tx index.Tx, d *object.Digest, dead bool) (located, bool, error) {
	row, ok, err := readObjectRow(tx, d)
	if err != nil || !ok || !row.held && !(dead && row.dead) {
		return located{}, false, err
	}
	l, err := locatedRow(tx, &row)
	return l, err == nil, err
}

func locatedRow(tx index.Tx, row *objectRow) (located, error) {
	l := located{kind: row.kind, depth: row.depth, place: row.place}
	if row.kind == recDelta {
		var ok bool
		l.base, ok = digestOf(tx.Bucket(bucketNumbers).Get(appendNumber(nil, row.base)))
		if !ok {
			return located{}, badRow(bucketNumbers, fmt.Sprint(row.base), "no digest")
		}
	}
	return l, nil
}

func readObjectRow(tx index.Tx, d *object.Digest) (objectRow, bool, error) {
	v := tx.Bucket(bucketObjects).Get(d[:])
	if v == nil {
		return objectRow{}, false, nil
	}
	row, ok := parseObjectRow(v)
	if !ok {
		return row, false, badRow(bucketObjects, d.String(), "bad value")
	}
	return row, true, nil
}

func (s *Store) objectRow(d *object.Digest) (row objectRow, ok bool, err error) {
	err = s.view(func(tx index.Tx) error {
		row, ok, err = readObjectRow(tx, d)
		return err
	})
	return row, ok, err
}

// has reports whether the page holds the piece.
func (s *Store) has(d *object.Digest) (bool, error) {
	_, ok, touched := s.over.look(d)
	if touched {
		st, err := s.stateOf(d)
		return st.held, err
	}
	if ok {
		return true, nil
	}
	row, ok, err := s.objectRow(d)
	return ok && row.held, err
}

// Piece returns the content of a piece, verified against its digest. The slice is shared and must
// not be changed. A piece that is not held and has a place in the bucket comes from the Fetcher.
// Errors match base.ErrNeedsFetch when there is none, or the piece belongs to a tree that is not
// here; base.ErrGone when it is missing since nobody has sent it (MissingPieces), which the Fetcher
// is asked first where the page may not know all places; base.ErrCorrupt when it is damaged;
// base.ErrClosed; or are those of the disk or of the Fetcher.
func (s *Store) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	return s.piece(ctx, d, true)
}

// Near implements split.Far: it is Piece without the Fetcher.
func (s *Store) Near(ctx context.Context, d object.Digest) ([]byte, error) {
	return s.piece(ctx, d, false)
}

func (s *Store) piece(ctx context.Context, d object.Digest, far bool) ([]byte, error) {
	if s.o.Recency != nil {
		s.o.Recency.note(&d, s.o.Clock.Now())
	}
	l, ok, err := s.locate(&d, false)
	if err == nil && !ok {
		var place *CloudPlace
		l, place, err = s.search(&d)
		switch {
		case !far && (place != nil || errors.Is(err, base.ErrGone)):
			return nil, needsFetch(&d)
		case place != nil:
			return s.fetch(ctx, &d, *place)
		case errors.Is(err, base.ErrGone):
			return s.fetchUnplaced(ctx, &d, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if l.kind != recDelta {
		content, err := s.content(&d, &l)
		if errors.Is(err, errVanished) {
			return s.piece(ctx, d, far)
		}
		return content, err
	}
	n, err := s.Node(ctx, d)
	if err != nil {
		return nil, err
	}
	return n.Bytes(), nil
}

// find locates a piece that must be there, as search does when the page is where it looks.
func (s *Store) find(d *object.Digest, from locator) (located, error) {
	l, ok, err := from.locate(d, false)
	if ok || err != nil {
		return l, err
	}
	if from == locator(s) {
		l, place, err := s.search(d)
		if place != nil {
			err = needsFetch(d)
		}
		return l, err
	}
	if _, inJournal := from.(*Journal); inJournal {
		if err := s.needsTree(d); err != nil {
			return l, err
		}
	}
	return l, missing(d)
}

// search looks once more for a piece that was not found: it may be held, or have a place in the
// bucket, which is returned then, or need not be here since it is of a tree that is not. What the
// index does not know is looked for in the log once, by making the index anew: a row may be damaged
// in a way that only its absence shows.
func (s *Store) search(d *object.Digest) (l located, place *CloudPlace, err error) {
	for again := true; ; again = false {
		if d.Kind().IsNode() {
			l, ok, err := s.locate(d, false)
			if ok || err != nil {
				return l, nil, err
			}
			if err := s.needsTree(d); err != nil {
				return l, nil, err
			}
		} else {
			st, err := s.stateOf(d)
			switch {
			case err != nil || st.held:
				return st.at, nil, err
			case st.placed:
				return l, &st.place, nil
			}
			if lacks, err := s.isMissing(d, again); err != nil || lacks {
				return l, nil, cmp.Or(err, notSent(d))
			}
		}
		if !again || !s.reindex("piece "+d.Short()+" has no row") {
			if known, err := s.hasMissingRowFolded(d); err != nil || known {
				return l, nil, cmp.Or(err, notSent(d))
			}
			return l, nil, missing(d)
		}
	}
}

// errVanished marks a piece that was given up while it was being read.
var errVanished = errors.New("given up since it was found")

// content returns what is stored for a piece behind the header of its record, verified unless it is
// a difference. A piece that compaction has moved since it was found is looked up again: l says
// then where it is.
func (s *Store) content(d *object.Digest, l *located) ([]byte, error) {
	for {
		content, err := s.stored(d, l)
		if !errors.Is(err, segment.ErrRetired) {
			return content, err
		}
		again, ok, err := s.locate(d, true)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, &base.CorruptError{Where: "object", Key: d.String(), Got: "the piece is missing", Err: errVanished}
		}
		*l = again
	}
}

func (s *Store) stored(d *object.Digest, l *located) ([]byte, error) {
	content := l.content
	if content == nil {
		payload, err := s.log.Read(l.place, nil)
		if err != nil {
			return nil, fmt.Errorf("read piece %s: %w", d, err)
		}
		o, err := parseRecord(segment.Record{Kind: l.kind, Payload: payload, Place: l.place})
		if err != nil || o.digest != *d || o.base != nil && *o.base != l.base {
			return nil, &base.CorruptError{Where: placeString(l.place), Key: d.String(), Got: "the record of another piece", Err: err}
		}
		content = o.content
	}
	if l.kind == recDelta {
		return content, nil
	}
	if err := d.Verify(content); err != nil {
		return nil, &base.CorruptError{Where: placeString(l.place), Key: d.String(), Got: "content with another digest"}
	}
	return content, nil
}

// Node returns a tree node, verified against its digest and the rules of the tree. It is shared and
// lives as long as the caller keeps it. Errors are as for Piece.
func (s *Store) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if n := s.cached(&d, nil); n != nil {
		return n, nil
	}
	return s.readNode(ctx, d, s)
}

// cached returns a node that the cache has, but not the root of a tree that is not here, from which
// who reads it would go on to nodes that are missing: the cache also has nodes of journals that
// were given up, and such as were deleted since. j is the journal that is read through, or nil.
func (s *Store) cached(d *object.Digest, j *Journal) *fb.Node {
	e := s.cache.find(s, d)
	if e == nil || !e.isHeld(s.wants.made.Load()) && !s.mayUse(e, *d, j) {
		return nil
	}
	e.node.Use()
	return &e.node
}

// mayUse is called for a cached node of which it is not known that the page holds it. It takes the
// digest by value, so that to look into the cache allocates nothing.
func (s *Store) mayUse(e *cachedNode, d object.Digest, j *Journal) bool {
	if j != nil {
		if _, ok := j.find(&d); ok {
			return true
		}
	}
	made := s.wants.made.Load()
	held, err := s.has(&d)
	if held && err == nil {
		e.setHeld(made)
		return true
	}
	return err == nil && s.needsTree(&d) == nil // what else is not held is of a commit that was lost, or of another journal
}

// readNode reads a node into the cache.
func (s *Store) readNode(ctx context.Context, d object.Digest, from locator) (*fb.Node, error) {
	s.cache.misses.Add(1)
	made := s.wants.made.Load()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read node %s: %w", d.Short(), err)
	}
	n, l, err := s.loadLocated(ctx, d, from, 0, nil)
	if err != nil {
		return nil, err
	}
	depth := int32(unknownDepth)
	if !d.Kind().IsIndex() && l.content == nil {
		depth = int32(l.depth)
	}
	return s.cache.add(s, &d, n, made, depth), nil
}

// loadNode reads and verifies a node without keeping it. from says where the pieces are.
func (s *Store) loadNode(ctx context.Context, d object.Digest, from locator, depth int) (*fb.Node, error) {
	return s.loadNodeBeside(ctx, d, from, depth, nil)
}

// loadNodeBeside is loadNode that keeps the node, and those on which it is a difference, in a cache
// beside that of the store. A nil one keeps nothing.
func (s *Store) loadNodeBeside(ctx context.Context, d object.Digest, from locator, depth int, beside *NodeCache) (*fb.Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read node %s: %w", d.Short(), err)
	}
	if n := s.cache.get(s, &d); n != nil {
		return n, nil
	}
	if beside != nil {
		if n := beside.get(s, &d); n != nil {
			return n, nil
		}
	}
	n, l, err := s.loadLocated(ctx, d, from, depth, beside)
	if err != nil || beside == nil {
		return n, err
	}
	if l.kind == recDelta {
		beside.remove(s, &l.base) // the next one is hardly a difference to the same
	}
	return beside.add(s, &d, n, 0, unknownDepth), nil
}

// loadLocated is loadNodeBeside for a node that is not to be taken from a cache; its bases may be.
// It also says where the node is, unless that is one of several pieces.
func (s *Store) loadLocated(ctx context.Context, d object.Digest, from locator, depth int, beside *NodeCache) (n *fb.Node, l located, err error) {
	if d.Kind().IsIndex() {
		n, err = s.loadSplitNode(ctx, d, from)
		return n, l, err
	}
	ok := false
	if depth > 0 {
		l, ok, err = from.locate(&d, true)
	}
	if !ok && err == nil {
		l, err = s.find(&d, from)
	}
	if err != nil {
		return nil, l, err
	}
	content, err := s.content(&d, &l)
	if err != nil {
		return nil, l, err
	}
	if l.kind == recDelta {
		if depth >= maxReadDepth {
			return nil, l, &base.CorruptError{Where: placeString(l.place), Key: d.String(), Got: "too many differences in a row"}
		}
		b, err := s.loadNodeBeside(ctx, l.base, from, depth+1, beside)
		if err != nil {
			return nil, l, fmt.Errorf("read base of node %s: %w", d.Short(), err)
		}
		if content, err = btree.ApplyDelta(b, content); err == nil {
			err = d.Verify(content)
		}
		if err != nil {
			return nil, l, &base.CorruptError{Where: placeString(l.place), Key: d.String(), Got: "a difference that does not give the node", Err: err}
		}
	}
	n, err = s.verifyNode(&d, content)
	return n, l, err
}

func (s *Store) verifyNode(d *object.Digest, content []byte) (*fb.Node, error) {
	n, err := fb.ParseNode(content)
	if err == nil {
		err = btree.VerifyNode(s.o.Page, n)
	}
	if err != nil {
		return nil, &base.CorruptError{Where: "node", Key: d.String(), Err: err}
	}
	return n, nil
}

// pieceSource reads pieces by a locator.
type pieceSource struct {
	s    *Store
	from locator
}

func (p pieceSource) Piece(_ context.Context, d object.Digest) ([]byte, error) {
	l, err := p.s.find(&d, p.from)
	if err != nil {
		return nil, err
	}
	return p.s.content(&d, &l)
}

// loadSplitNode puts a node together from its pieces.
func (s *Store) loadSplitNode(ctx context.Context, d object.Digest, from locator) (*fb.Node, error) {
	content, err := s.splitContent(ctx, d, from)
	if err != nil {
		return nil, err
	}
	return s.verifyNode(&d, content)
}

// splitContent puts the content of an index piece of nodes together.
func (s *Store) splitContent(ctx context.Context, d object.Digest, from locator) ([]byte, error) {
	src := pieceSource{s, from}
	root, err := src.Piece(ctx, d)
	if err != nil {
		return nil, err
	}
	ix, err := fb.ParseIndex(root)
	if err != nil || ix.Size() > limits.MaxNodeBytes {
		return nil, &base.CorruptError{Where: "node", Key: d.String(), Got: "a bad index piece", Err: err}
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(ix.Size(), limits.MaxNodeBytes)))
	if _, err := split.NewReader(ctx, src, d, ix.Size()).WriteTo(buf); err != nil {
		return nil, fmt.Errorf("read node %s: %w", d.Short(), err)
	}
	return buf.Bytes(), nil
}

// view reads the index. A damaged index is made anew from the log, once, and read again.
func (s *Store) view(fn func(index.Tx) error) error {
	err := s.viewOnce(fn)
	if err != nil && errors.Is(err, base.ErrCorrupt) && s.reindex(err.Error()) {
		err = s.viewOnce(fn)
	}
	return err
}

func (s *Store) viewOnce(fn func(index.Tx) error) error {
	s.indexMu.RLock()
	defer s.indexMu.RUnlock()
	if s.index == nil {
		return fmt.Errorf("page: %w", base.ErrClosed)
	}
	return s.index.View(fn)
}
