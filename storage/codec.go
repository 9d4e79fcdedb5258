package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// coder writes or reads the fields of a record or a row in order; one description of each kind
// serves both. Reading is strict: writing what was read gives the same bytes.
type coder struct {
	p       []byte // what was written, or what is left to read
	reading bool
	bad     bool // the input is malformed; nothing is left of it
}

// refuse marks the input as malformed.
func (c *coder) refuse(when bool) {
	if c.reading && when {
		c.bad, c.p = true, nil
	}
}

// number is a minimal uvarint.
func (c *coder) number(v *uint64, most uint64) {
	if !c.reading {
		c.p = binary.AppendUvarint(c.p, *v)
		return
	}
	x, n := uvarint(c.p)
	if c.refuse(n <= 0 || x > most); !c.bad {
		*v, c.p = x, c.p[n:]
	}
}

// number is coder.number for a field of another type.
func number[T uint32 | int64](c *coder, v *T, most uint64) {
	x := uint64(*v)
	if c.number(&x, most); c.reading {
		*v = T(x)
	}
}

func (c *coder) byte(v *byte, least, most byte) {
	if !c.reading {
		c.p = append(c.p, *v)
		return
	}
	if c.refuse(len(c.p) == 0 || c.p[0] < least || c.p[0] > most); !c.bad {
		*v, c.p = c.p[0], c.p[1:]
	}
}

// flag is a byte that is 0 or 1.
func (c *coder) flag(v *bool) {
	b := byte(0)
	if *v {
		b = 1
	}
	if c.byte(&b, 0, 1); c.reading {
		*v = b == 1
	}
}

// fixed is as many bytes as b has.
func (c *coder) fixed(b []byte) {
	if !c.reading {
		c.p = append(c.p, b...)
		return
	}
	if c.refuse(len(c.p) < len(b)); !c.bad {
		c.p = c.p[copy(b, c.p):]
	}
}

func (c *coder) digest(d *object.Digest) {
	c.fixed(d[:])
	if c.reading && !c.bad {
		_, err := object.ParseDigest(d[:])
		c.refuse(err != nil)
	}
}

// rest is everything up to the end of a record.
func rest[T string | []byte](c *coder, v *T) {
	if !c.reading {
		c.p = append(c.p, *v...)
		return
	}
	*v, c.p = T(append([]byte{}, c.p...)), nil
}

// cut reads bytes after their length. The result borrows from the input.
func (c *coder) cut() (b []byte) {
	n := uint64(0)
	if c.number(&n, uint64(len(c.p))); !c.bad {
		c.refuse(n > uint64(len(c.p)))
	}
	if !c.bad {
		b, c.p = c.p[:n], c.p[n:]
	}
	return b
}

// list is a list of items, up to the end of a record.
func list[T any](c *coder, l *[]T, least, most int, item func(*T)) {
	for i := 0; !c.reading && i < len(*l) || c.reading && len(c.p) > 0; i++ {
		if c.reading {
			var zero T
			*l = append(*l, zero)
		}
		item(&(*l)[i])
		c.refuse(i == most)
	}
	c.refuse(len(*l) < least)
}

// code writes or reads the fields before the content of a record. The tables beside the kinds
// describe them. Reading copies.
func (o *op) code(c *coder) {
	switch o.kind {
	case recPiece, recNode:
		c.digest(&o.digest)
		c.refuse(o.digest.Kind().IsNode() != (o.kind == recNode))
	case recDelta:
		if c.reading {
			o.base = new(object.Digest)
		}
		c.digest(&o.digest)
		c.digest(o.base)
		c.refuse(!o.digest.Kind().IsNode() || !o.base.Kind().IsNode())
		c.byte(&o.depth, 1, maxDeltaDepth)
	case recCommit:
		c.byte(&o.origin, originLocal, originAhead)
	case recTag, recTagReceived, recTagSynced:
		if c.reading {
			o.tag = &TagChange{}
		}
		o.tag.code(c)
	case recExplain:
		if c.reading {
			o.merge = new(commit.ID)
		}
		c.fixed(o.merge[:])
		c.digest(&o.digest)
		c.refuse(checkExplanation(*o.merge, &o.digest) != nil)
	case recRows:
	default:
		if c.reading {
			o.sync = &syncOp{}
		}
		o.sync.code(c, o.kind)
	}
}

func (t *TagChange) code(c *coder) {
	t.codeTarget(c)
	rest(c, &t.Name)
	c.refuse(t.Name == "" || len(t.Name) > limits.MaxTagBytes)
}

// codeTarget is what a tag points to.
func (t *TagChange) codeTarget(c *coder) {
	there := !t.Removed
	if c.flag(&there); c.reading {
		t.Removed = !there
	}
	if there {
		c.fixed(t.Commit[:])
	}
}

func (y *syncOp) code(c *coder, kind byte) {
	id := func(id *commit.ID) { c.fixed(id[:]) }
	switch kind {
	case recPlaces:
		var in CloudPlace
		if !c.reading {
			in = y.places[0].Place
		}
		in.codeContainer(c)
		list(c, &y.places, 1, maxRecordEntries, func(p *PlacedPiece) {
			c.digest(&p.Digest)
			c.refuse(p.Digest.Kind().IsNode())
			if c.reading {
				p.Place = in
			}
			p.Place.codeSpot(c)
		})
	case recUnplaced, recDropped, recDeleted:
		list(c, &y.digests, 1, maxRecordEntries, func(d *object.Digest) {
			c.digest(d)
			c.refuse(kind != recDeleted && d.Kind().IsNode())
		})
	case recStatus:
		c.byte(&y.status, statusSynced, statusInner)
		list(c, &y.ids, 1, maxRecordEntries, id)
	case recPruned:
		n := uint64(len(y.ids))
		c.number(&n, maxRecordEntries)
		c.refuse(n == 0 || uint64(len(c.p)) < n*commit.IDSize)
		if c.reading && !c.bad {
			y.ids = make([]commit.ID, n)
		}
		for i := range y.ids {
			id(&y.ids[i])
		}
		list(c, &y.children, 0, maxPrunedChildren, id)
	case recMetadata:
		m := &y.meta
		there, n := m.Value != nil, byte(len(m.Type))
		c.flag(&there)
		c.byte(&n, 1, maxMetadataTypeBytes)
		typ := []byte(m.Type)
		if c.reading {
			typ = make([]byte, n)
		}
		if c.fixed(typ); c.reading {
			m.Type = string(typ)
		}
		rest(c, &m.Value)
		c.refuse(checkMetadata(m.Type, m.Value) != nil || !there && len(m.Value) > 0)
		if c.reading && !there {
			m.Value = nil
		}
	case recComplete:
		c.number(&y.checkpoint.upTo, math.MaxUint64)
		c.number(&y.checkpoint.first, math.MaxUint64)
	default:
		c.refuse(true)
	}
}

// codeContainer is the part that all places in one container share.
func (p *CloudPlace) codeContainer(c *coder) {
	typ := byte(inPack)
	if p.Entry != 0 {
		typ = inEntry
	}
	if c.byte(&typ, inPack, inEntry); typ == inPack {
		c.fixed(p.Pack[:])
	} else {
		c.number(&p.Entry, math.MaxUint64)
	}
	number(c, &p.KeyIndex, math.MaxUint32)
}

// codeSpot is the place of a piece in its container.
func (p *CloudPlace) codeSpot(c *coder) {
	number(c, &p.Block, math.MaxUint32)
	if p.Entry == 0 {
		number(c, &p.Offset, math.MaxInt64)
		number(c, &p.StoredBytes, math.MaxUint32)
	}
	number(c, &p.At, math.MaxUint32)
	number(c, &p.Bytes, math.MaxUint32)
	c.refuse(checkPlace(p) != nil)
}

// appendHeader appends the fields before the content of a record.
func (o *op) appendHeader(b []byte) []byte {
	c := coder{p: b}
	o.code(&c)
	return c.p
}

// parseRecord reads a record strictly. The content of the result borrows r.Payload. Errors are
// *base.CorruptError, or match base.ErrUnsupported for a kind of a newer format.
func parseRecord(r segment.Record) (op, error) {
	if r.Kind == 0 || r.Kind > recComplete {
		return op{}, fmt.Errorf("read record of kind %d at %s: %w", r.Kind, placeString(r.Place), base.ErrUnsupported)
	}
	o := op{kind: r.Kind, place: r.Place}
	c := coder{p: r.Payload, reading: true}
	o.code(&c)
	var err error
	if !c.bad {
		err = o.parseContent(&c)
	}
	if c.bad || err != nil {
		return op{}, &base.CorruptError{Where: placeString(r.Place), Got: fmt.Sprintf("a malformed record of kind %d", r.Kind), Err: err}
	}
	return o, nil
}

// parseContent reads what follows the fields that code has read.
func (o *op) parseContent(c *coder) (err error) {
	switch o.kind {
	case recPiece:
		o.content = c.p
		c.refuse(len(c.p) > limits.MaxPieceBytes)
	case recNode, recDelta:
		o.content = c.p
		c.refuse(len(c.p) > limits.MaxNodeBytes)
	case recCommit:
		o.commit, err = commit.Parse(c.p)
	case recRows:
		o.content = c.p
		ok, _ := eachRowOf(c.p, nil)
		c.refuse(!ok)
	default:
		c.refuse(len(c.p) > 0)
	}
	return err
}

// uvarint reads a minimal uvarint: there is one encoding for each number.
func uvarint(p []byte) (uint64, int) {
	v, n := binary.Uvarint(p)
	if n > 1 && p[n-1] == 0 {
		return 0, -1
	}
	return v, n
}
