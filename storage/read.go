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
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// located is the place of a stored piece and the form in which it is stored.
type located struct {
	kind    byte // recPiece, recNode or recDelta
	depth   uint8
	base    object.Digest // of a delta
	place   segment.Place
	content []byte // when the piece is in memory only
}

// locator finds stored pieces. It returns false for a piece that is not held. With dead it also
// finds a deleted node whose bytes a difference needs.
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

// locateFolded looks into the index alone. It allocates its results, since a closure sets them; a
// commit finds most nodes in the overlay instead.
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

// locate looks into the page before the journal. Until dropHeld, the journal may store a node of
// the page again, as a difference to a node that the page stores as a difference to it. Each of the
// two is free of circles.
func (j *Journal) locate(d *object.Digest, dead bool) (located, bool, error) {
	if l, ok, err := j.s.locate(d, dead); ok || err != nil {
		return l, ok, err
	}
	if o, ok := j.find(d); ok {
		l := o.located()
		l.content = bytes.Clone(l.content) // the journal reuses its memory, and the caller may keep the content
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

// located returns the place that the row has, without the base.
func (r *objectRow) located() located {
	return located{kind: r.kind, depth: r.depth, place: r.place}
}

func locatedRow(tx index.Tx, row *objectRow) (located, error) {
	l := row.located()
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

// Piece returns the content of a piece of a value, verified against its digest. The slice is shared
// and must not be changed. A piece that is not held and has a place in the bucket is fetched by the
// Fetcher. Errors match base.ErrNeedsFetch when the page has no Fetcher; base.ErrGone when no
// device has sent the piece (MissingPieces), after asking the Fetcher where the page may not record
// all places; base.ErrCorrupt when it is damaged; base.ErrInvalid for a node; base.ErrClosed; or
// are those of the disk or of the Fetcher.
func (s *Store) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	return s.piece(ctx, d, true)
}

// Near implements split.Far: it is Piece without the Fetcher.
func (s *Store) Near(ctx context.Context, d object.Digest) ([]byte, error) {
	return s.piece(ctx, d, false)
}

func (s *Store) piece(ctx context.Context, d object.Digest, far bool) ([]byte, error) {
	if err := checkValueDigest(&d); err != nil {
		return nil, fmt.Errorf("read piece: %w", err)
	}
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
	content, err := s.content(&d, &l)
	if errors.Is(err, errVanished) {
		return s.piece(ctx, d, far)
	}
	return content, err
}

// find locates a node that must exist. When a reader of the page finds no row, find rebuilds the
// index from the log once: only the absence of a row may show damage. Errors match
// base.ErrNeedsFetch for the root of a tree that this device lacks.
func (s *Store) find(d *object.Digest, from locator) (located, error) {
	_, inJournal := from.(*Journal)
	inPage := from == locator(s)
	for again := inPage; ; again = false {
		l, ok, err := from.locate(d, false)
		if ok || err != nil {
			return l, err
		}
		if inPage || inJournal {
			if err := s.needsTree(d); err != nil {
				return l, err
			}
		}
		if !again {
			return l, missing(d)
		}
		s.reindex("node " + d.Short() + " has no row")
	}
}

// search looks once more for a piece of a value that was not found. The piece may be held, or have
// a place in the bucket, which search then returns. When the index has no row for it, search
// rebuilds the index as find does.
func (s *Store) search(d *object.Digest) (l located, place *CloudPlace, err error) {
	for again := true; ; again = false {
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
		if !again || !s.reindex("piece "+d.Short()+" has no row") {
			if known, err := s.hasMissingRowFolded(d); err != nil || known {
				return l, nil, cmp.Or(err, notSent(d))
			}
			return l, nil, missing(d)
		}
	}
}

// errVanished marks a piece that was given up during the read.
var errVanished = errors.New("given up since it was found")

func vanished(d *object.Digest) error {
	return &base.CorruptError{Where: "object", Key: d.String(), Got: gotMissing, Err: errVanished}
}

// content returns the stored content of a piece, after the header of its record, verified unless it
// is a difference. A piece that compaction has moved since the look-up is looked up again, and l is
// updated.
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
			return nil, vanished(d)
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

// cached returns a node from the cache, but not the root of a tree that this device lacks: the
// reader would go on to missing nodes. The cache also holds nodes of journals that were given up,
// and nodes deleted since. j is the journal that the caller reads through, or nil.
func (s *Store) cached(d *object.Digest, j *Journal) *fb.Node {
	e := s.cache.find(s, d)
	if e == nil || !e.isHeld(s.wants.made.Load()) && !s.mayUse(e, *d, j) {
		return nil
	}
	e.node.Use()
	return &e.node
}

// mayUse decides about a cached node that the page may not hold. It takes the digest by value, so
// that a look into the cache allocates nothing.
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
	return err == nil && s.needsTree(&d) == nil // other nodes that are not held belong to a lost commit or to another journal
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
	if l.content == nil {
		depth = int32(l.depth)
	}
	return s.cache.add(s, &d, n, n.Bytes(), made, depth), nil
}

// loadNode reads and verifies a node without caching it. from locates the pieces.
func (s *Store) loadNode(ctx context.Context, d object.Digest, from locator, depth int) (*fb.Node, error) {
	return s.loadNodeBeside(ctx, d, from, depth, nil)
}

// loadNodeBeside is loadNode that keeps the node, and the bases of its difference, in a cache
// beside that of the store. A nil cache keeps nothing.
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
		beside.remove(s, &l.base) // the next node is hardly a difference to the same base
	}
	return beside.add(s, &d, n, n.Bytes(), 0, unknownDepth), nil
}

// loadLocated is loadNodeBeside for a node that must not be read from a cache; its bases may be. It
// also returns where the node is.
func (s *Store) loadLocated(ctx context.Context, d object.Digest, from locator, depth int, beside *NodeCache) (n *fb.Node, l located, err error) {
	ok := true
	if depth > 0 {
		l, ok, err = from.locate(&d, true)
	} else {
		l, err = s.find(&d, from)
	}
	if !ok && err == nil {
		err = vanished(&d)
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
		if errors.Is(err, errVanished) {
			// Meanwhile compaction may have stored the node whole and deleted the base.
			now, ok, again := from.locate(&d, depth > 0)
			if again == nil && ok && now.kind == recDelta && now.base == l.base {
				_, again = s.find(&l.base, from)
			}
			if again == nil {
				return s.loadLocated(ctx, d, from, depth, beside)
			}
			err = again
		}
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

// view reads the index. It rebuilds a damaged index from the log, once, and reads again.
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
