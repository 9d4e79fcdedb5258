package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// tailBytes is what is read of the end of a pack whose number of pieces is not known.
	tailBytes = 64 << 10
	// A table takes at most pieceTableBytes for a piece, frameTableBytes for a frame, and tableRoom for all else.
	pieceTableBytes, frameTableBytes, tableRoom = 36, 6, 256
)

// contents is the verified table of a pack. It is immutable.
type contents struct {
	keyIndex uint32
	frames   []seal.Frame
	pieces   []format.PackPiece
}

// inFrame returns the pieces of a frame.
func (c *contents) inFrame(frame uint32) []format.PackPiece {
	from := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].Frame >= frame })
	to := from + sort.Search(len(c.pieces)-from, func(i int) bool { return c.pieces[from+i].Frame > frame })
	return c.pieces[from:to]
}

// packSource returns the source of a pack.
func packSource(b bucket.Bucket, n format.PageNames, id format.ID) *source {
	return &source{b: b, kind: kindPack, short: id.String(), name: n.Pack(id)}
}

// ReadTable returns the places of all pieces of a pack, in the order in which they stand, with one request (two for a table that is much longer than its pieces
// explain). That the pieces themselves are what the table says is seen when they are read. It holds the table.
//
// Errors: *base.CorruptError naming the pack for an object that is not what ref says, base.ErrNotFound, base.ErrNetwork, and others of the
// bucket; *base.FormatError.
func ReadTable(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, ref format.PackRef) ([]storage.PlacedPiece, error) {
	src := packSource(b, n, ref.ID)
	if err := checkRef(src, &ref); err != nil {
		return nil, err
	}
	_, c, err := readContents(ctx, src, s, n, ref.ID, int64(ref.Bytes), tableGuess(&ref))
	if err != nil {
		return nil, src.wrap(err)
	}
	if err := checkCount(src, &ref, c); err != nil {
		return nil, err
	}
	return place(&ref, c.keyIndex, c.frames, c.pieces), nil
}

// tableGuess returns about how long the table of a pack is, rather more than less. The number of frames is not known: how much they were compressed, neither.
func tableGuess(ref *format.PackRef) int64 {
	return tableRoom + pieceTableBytes*int64(ref.Pieces) + frameTableBytes*int64(format.PackBytes/format.FrameBytes)
}

// ReadTableOf is ReadTable for who knows nothing of a pack but its id. It takes a request more.
func ReadTableOf(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, id format.ID) ([]storage.PlacedPiece, error) {
	src := packSource(b, n, id)
	body, size, err := src.open(ctx, 0, 0, format.MaxPackObjectBytes)
	if err != nil {
		return nil, src.wrap(err)
	}
	if err := body.Close(); err != nil {
		return nil, src.wrap(err)
	}
	_, c, err := readContents(ctx, src, s, n, id, size, tailBytes)
	if err != nil {
		return nil, src.wrap(err)
	}
	return place(&format.PackRef{ID: id}, c.keyIndex, c.frames, c.pieces), nil
}

// Stream reads a whole pack with one request and gives every piece, verified, with its place, to fn, in the order in which they
// stand. The places are proved before fn is first called; a piece that comes late may still turn out to be damaged. content is lent
// until fn returns. It holds the whole pack, which is at most format.MaxPackObjectBytes long. Errors are those of ReadTable and of fn.
func Stream(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, ref format.PackRef, fn func(p storage.PlacedPiece, content []byte) error) error {
	src := packSource(b, n, ref.ID)
	if err := checkRef(src, &ref); err != nil {
		return err
	}
	buf := streamPool.Get().(*[]byte)
	defer streamPool.Put(buf)
	sealed, size, err := src.readSome(ctx, 0, -1, int64(ref.Bytes), *buf)
	if err != nil {
		return src.wrap(err)
	}
	*buf = sealed
	if size != int64(ref.Bytes) {
		return src.corrupt(fmt.Sprintf("%d bytes", ref.Bytes), fmt.Sprint(size))
	}
	r, c, err := openContents(bytes.NewReader(sealed), src, s, n, ref.ID, size)
	if err != nil {
		return src.wrap(err)
	}
	if err := checkCount(src, &ref, c); err != nil {
		return err
	}
	g := &giver{src: src, places: place(&ref, c.keyIndex, c.frames, c.pieces), fn: fn}
	for i, f := range c.frames {
		if err := ctx.Err(); err != nil {
			return src.wrap(err)
		}
		var plain []byte
		if i == 0 {
			plain, err = r.ReadFrame(0) // with the head of the object
		} else {
			plain, err = r.OpenFrameInPlace(i, sealed[f.Offset:f.Offset+int64(f.SealedBytes)])
		}
		if err != nil {
			return src.wrap(err)
		}
		if err := g.add(opened{plain, c.inFrame(uint32(i))}); err != nil {
			return err
		}
	}
	return g.flush()
}

// framesTogether is how many frames are verified at once: one has too few pieces to hash as many side by side as a processor can.
const framesTogether = 8

// opened is a frame that was opened, and what is said to stand in it.
type opened struct {
	plain  []byte
	pieces []format.PackPiece
}

// giver verifies the pieces of frames, several at a time, and gives them to fn.
type giver struct {
	src    *source
	places []storage.PlacedPiece // of those that were not given yet
	fn     func(p storage.PlacedPiece, content []byte) error
	frames []opened // not verified yet
}

func (g *giver) add(f opened) error {
	if g.frames = append(g.frames, f); len(g.frames) < framesTogether {
		return nil
	}
	return g.flush()
}

// flush gives the pieces of all frames that were added.
func (g *giver) flush() error {
	if err := verify(g.src, g.frames...); err != nil {
		return err
	}
	for _, f := range g.frames {
		for k, p := range f.pieces {
			if err := g.fn(g.places[k], f.plain[p.At:p.At+p.Bytes:p.At+p.Bytes]); err != nil {
				return err
			}
		}
		g.places = g.places[len(f.pieces):]
	}
	g.frames = g.frames[:0]
	return nil
}

// pass gives the next n pieces without content.
func (g *giver) pass(n int) error {
	if err := g.flush(); err != nil {
		return err
	}
	for k := range n {
		if err := g.fn(g.places[k], nil); err != nil {
			return err
		}
	}
	g.places = g.places[n:]
	return nil
}

// StreamPart is Stream for who wants some frames of a pack only: it reads the table with one request, and each span with another. Pieces that stand in other frames are given too, in
// their turn, with nil for content. Of spans beyond the pack's end nothing is read. It holds one span.
func StreamPart(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, ref format.PackRef, spans []format.FrameSpan, fn func(p storage.PlacedPiece, content []byte) error) error {
	src := packSource(b, n, ref.ID)
	if err := checkRef(src, &ref); err != nil {
		return err
	}
	r, c, err := readContents(ctx, src, s, n, ref.ID, int64(ref.Bytes), tableGuess(&ref))
	if err != nil {
		return src.wrap(err)
	}
	if err := checkCount(src, &ref, c); err != nil {
		return err
	}
	buf := streamPool.Get().(*[]byte)
	defer streamPool.Put(buf)
	g := &giver{src: src, places: place(&ref, c.keyIndex, c.frames, c.pieces), fn: fn}
	var read []byte // what was read of the present span and not opened yet
	var end uint32  // of that span
	for i, f := range c.frames {
		if len(spans) > 0 && uint32(i) == spans[0].First {
			if err := g.flush(); err != nil { // what was read before is lent
				return err
			}
			end = min(spans[0].First+spans[0].Count, uint32(len(c.frames)))
			last := c.frames[end-1]
			if read, _, err = src.read(ctx, f.Offset, last.Offset+int64(last.SealedBytes)-f.Offset, int64(ref.Bytes), *buf); err != nil {
				return src.wrap(err)
			}
			*buf, spans = read, spans[1:]
		}
		pieces := c.inFrame(uint32(i))
		if uint32(i) >= end {
			if err := g.pass(len(pieces)); err != nil {
				return err
			}
			continue
		}
		plain, err := r.OpenFrameInPlace(i, read[:f.SealedBytes])
		if err != nil {
			return src.wrap(err)
		}
		read = read[f.SealedBytes:]
		if err := g.add(opened{plain, pieces}); err != nil {
			return err
		}
	}
	return g.flush()
}

// streamPool has buffers for whole packs.
var streamPool = sync.Pool{New: func() any { return new([]byte) }}

// checkRef looks whether a pack can be as long as it is said to be.
func checkRef(src *source, ref *format.PackRef) error {
	if ref.Bytes > format.MaxPackObjectBytes {
		return src.corrupt(fmt.Sprintf("at most %d bytes", format.MaxPackObjectBytes), fmt.Sprintf("an announcement of %d", ref.Bytes))
	}
	return nil
}

func checkCount(src *source, ref *format.PackRef, c *contents) error {
	if uint64(len(c.pieces)) != uint64(ref.Pieces) {
		return src.corrupt(fmt.Sprintf("%d pieces", ref.Pieces), fmt.Sprint(len(c.pieces)))
	}
	return nil
}

// readContents reads the table of a pack of size bytes, of which guess bytes of the end are read at first.
func readContents(ctx context.Context, src *source, s *seal.Sealer, n format.PageNames, id format.ID, size, guess int64) (*seal.Reader, *contents, error) {
	return openContents(&tail{ctx: ctx, s: src, size: size, guess: guess}, src, s, n, id, size)
}

// openContents opens and checks the table of a pack.
func openContents(at io.ReaderAt, src *source, s *seal.Sealer, n format.PageNames, id format.ID, size int64) (*seal.Reader, *contents, error) {
	r, err := s.NewReader(at, size, Label(n))
	if err != nil {
		return nil, nil, err
	}
	if format.ID(r.Ref().ID) != id {
		return nil, nil, src.corrupt("", "pack "+r.Ref().ID.String()+" under this name")
	}
	t, err := format.ParsePackTable(r.Table(), r.Frames())
	if err != nil {
		return nil, nil, err
	}
	return r, &contents{keyIndex: r.Ref().KeyIndex, frames: r.Frames(), pieces: t.Pieces}, nil
}

// verify looks whether the pieces of frames have their digests (I1).
func verify(src *source, frames ...opened) error {
	var byKind [4][]check // digests have two bits for the kind
	for _, f := range frames {
		for i := range f.pieces {
			p := &f.pieces[i]
			if uint64(p.At)+uint64(p.Bytes) > uint64(len(f.plain)) {
				return src.corrupt(fmt.Sprintf("a frame of %d bytes", p.At+p.Bytes), fmt.Sprint(len(f.plain)))
			}
			k := p.Digest.Kind() & 3
			byKind[k] = append(byKind[k], check{want: &p.Digest, content: f.plain[p.At : p.At+p.Bytes]})
		}
	}
	for kind, checks := range byKind {
		object.SumEach(object.Kind(kind), len(checks), func(i int) ([]byte, *object.Digest) { return checks[i].content, &checks[i].sum })
		for i := range checks {
			if c := &checks[i]; c.sum != *c.want {
				return src.corrupt("piece "+c.want.String(), "other content")
			}
		}
	}
	return nil
}

// check is a piece that is verified.
type check struct {
	want    *object.Digest
	content []byte
	sum     object.Digest
}
