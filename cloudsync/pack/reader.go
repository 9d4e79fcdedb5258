package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// A table takes at most pieceTableBytes for a piece, blockTableBytes for a block, and tableRoom
	// for all else, the footer included.
	pieceTableBytes, blockTableBytes, tableRoom = 36, 6, 64
)

// contents is the verified table of a pack. It is immutable.
type contents struct {
	keyIndex uint32
	blocks   []seal.Block
	pieces   []wire.PackPiece
}

// in returns the pieces of a block.
func (c *contents) in(block uint32) []wire.PackPiece {
	from := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].Block >= block })
	to := from + sort.Search(len(c.pieces)-from, func(i int) bool { return c.pieces[from+i].Block > block })
	return c.pieces[from:to]
}

// packSource returns the source of a pack, which is in the directory of epoch e.
func packSource(b bucket.Bucket, n wire.Names, e, id epoch.ID) *source {
	return &source{b: b, kind: kindPack, short: id.String(), name: n.Pack(e, id), label: n.PackLabel(e)}
}

// Reader reads one pack. It may not be used concurrently.
type Reader struct {
	src   *source
	ref   wire.Pack
	r     *seal.Reader
	c     *contents
	whole *[]byte // the object as stored, which is given back to wholePool; nil when only the table was read
}

// wholePool has buffers for whole packs.
var wholePool = sync.Pool{New: func() any { return new([]byte) }}

// Open reads the table of a pack, and of one with LAZY values about as much as Lists gives: with
// one request mostly, two or three for a pack of short pieces, and one more where ref.Bytes is 0,
// which stands for a length that is not known. That the pieces are what the table says is seen when
// they are read. The caller closes the Reader.
//
// Errors: *base.CorruptError naming the pack for an object that is not what ref says,
// base.ErrNotFound, base.ErrNetwork, and others of the bucket; *base.FormatError.
func Open(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n wire.Names, ref wire.Pack) (*Reader, error) {
	r := &Reader{src: packSource(b, n, ref.Epoch, ref.ID), ref: ref}
	if err := r.openTable(ctx, s); err != nil {
		return nil, r.src.wrap(err)
	}
	return r, nil
}

// OpenWhole is Open for who reads all of a pack, with one request. It holds the object, at most
// wire.MaxPackBytes.
func OpenWhole(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n wire.Names, ref wire.Pack) (*Reader, error) {
	r := &Reader{src: packSource(b, n, ref.Epoch, ref.ID), ref: ref, whole: wholePool.Get().(*[]byte)}
	if err := r.openWhole(ctx, s); err != nil {
		r.Close()
		return nil, r.src.wrap(err)
	}
	return r, nil
}

// Close gives memory back. Contents that Each lent must not be used any more.
func (r *Reader) Close() {
	if r.whole != nil {
		wholePool.Put(r.whole)
		r.whole = nil
	}
}

func (r *Reader) openTable(ctx context.Context, s *seal.Sealer) error {
	if err := r.checkRef(); err != nil {
		return err
	}
	if r.ref.Bytes == 0 {
		body, size, err := r.src.open(ctx, 0, 0, wire.MaxPackBytes)
		if err != nil {
			return err
		}
		if err := body.Close(); err != nil {
			return err
		}
		r.ref.Bytes = uint64(size)
	}
	c, err := r.contents(s, newTail(ctx, r.src, int64(r.ref.Bytes), !r.ref.Eager))
	r.c = c
	return err
}

// Lists returns the index pieces of LAZY values, verified, which stand behind all else of a pack.
// It holds them, of at most 4 MiB. A damaged one is not among them: the damage is noticed when it
// is fetched. Most came with the table; a value that begins in an earlier pack may take another
// request, within the context of Open. Errors are those of the bucket.
func (r *Reader) Lists() (map[object.Digest][]byte, error) {
	n := len(r.c.blocks)
	from, held := n, 0
	for !r.ref.Eager && from > 0 {
		ps := r.c.in(uint32(from - 1))
		last := &ps[len(ps)-1]
		if held += int(last.At + last.Bytes); held > maxSpanBytes || !ps[0].Digest.Kind().IsIndex() {
			break
		}
		from--
	}
	if from == n {
		return nil, nil
	}
	first, last := r.c.blocks[from], r.c.blocks[n-1]
	f, err := r.r.Frames(first.Offset, last.Offset+int64(last.StoredBytes)-first.Offset)
	if err != nil {
		return nil, r.src.wrap(err)
	}
	lists := map[object.Digest][]byte{}
	for i := from; i < n; i++ {
		plain, err := openBlock(r.src.label, f, r.c.blocks[i])
		o := opened{plain, r.c.in(uint32(i))}
		if err != nil || verify(r.src, o) != nil {
			continue
		}
		for _, p := range o.pieces {
			lists[p.Digest] = o.plain[p.At : p.At+p.Bytes : p.At+p.Bytes]
		}
	}
	return lists, nil
}

func (r *Reader) openWhole(ctx context.Context, s *seal.Sealer) error {
	if err := r.checkRef(); err != nil {
		return err
	}
	limit := int64(wire.MaxPackBytes)
	if r.ref.Bytes > 0 {
		limit = int64(r.ref.Bytes)
	}
	sealed, size, err := r.src.readSome(ctx, 0, -1, limit, *r.whole)
	if err != nil {
		return err
	}
	*r.whole = sealed
	if r.ref.Bytes > 0 && size != int64(r.ref.Bytes) {
		return r.src.corrupt(fmt.Sprintf("%d bytes", r.ref.Bytes), fmt.Sprint(size))
	}
	r.ref.Bytes = uint64(size)
	r.c, err = r.contents(s, bytes.NewReader(sealed))
	return err
}

// checkRef looks whether a pack can be as long as it is said to be.
func (r *Reader) checkRef() error {
	if r.ref.Bytes > wire.MaxPackBytes {
		return r.src.corrupt(fmt.Sprintf("at most %d bytes", wire.MaxPackBytes), fmt.Sprintf("an announcement of %d", r.ref.Bytes))
	}
	return nil
}

// contents opens and checks the table.
func (r *Reader) contents(s *seal.Sealer, at io.ReaderAt) (*contents, error) {
	var err error
	if r.r, err = s.NewReader(at, int64(r.ref.Bytes), r.src.label); err != nil {
		return nil, err
	}
	if epoch.ID(r.r.Ref().ID) != r.ref.ID {
		return nil, r.src.corrupt("", "pack "+r.r.Ref().ID.String()+" under this name")
	}
	t, err := wire.ParsePackTable(r.r.Table(), r.r.BlockBytes())
	if err != nil {
		return nil, err
	}
	if r.ref.Pieces != 0 && uint64(len(t.Pieces)) != uint64(r.ref.Pieces) {
		return nil, r.src.corrupt(fmt.Sprintf("%d pieces", r.ref.Pieces), fmt.Sprint(len(t.Pieces)))
	}
	r.ref.Pieces = uint32(len(t.Pieces))
	return &contents{keyIndex: r.r.Ref().KeyIndex, blocks: t.Blocks, pieces: t.Pieces}, nil
}

// Ref describes the pack: how long it is, and how many pieces it has.
func (r *Reader) Ref() wire.Pack { return r.ref }

// Places returns where the pieces of the pack stand, in their order.
func (r *Reader) Places() []storage.PlacedPiece {
	return place(&r.ref, r.c.keyIndex, r.c.blocks, r.c.pieces)
}

// Each gives the pieces of a pack of which all was read, verified, with their places, to fn in the
// order in which they stand. A piece that comes late may still turn out to be damaged. content is
// lent until fn returns. Each can be called once. Errors are those of Open and of fn.
func (r *Reader) Each(ctx context.Context, fn func(p storage.PlacedPiece, content []byte) error) error {
	f, err := r.r.Whole(*r.whole)
	if err != nil {
		return r.src.wrap(err)
	}
	g := &giver{src: r.src, places: r.Places(), fn: fn}
	for i := range uint32(len(r.c.blocks)) {
		if err := ctx.Err(); err != nil {
			return r.src.wrap(context.Cause(ctx))
		}
		plain, err := openBlock(r.src.label, f, r.c.blocks[i])
		if err != nil {
			return r.src.wrap(err)
		}
		if err := g.add(opened{plain, r.c.in(i)}); err != nil {
			return err
		}
	}
	if err := r.proveRest(f); err != nil {
		return r.src.wrap(err)
	}
	return g.flush() // what was read is lent
}

// proveRest verifies what of the whole pack is behind the blocks.
func (r *Reader) proveRest(f *seal.Frames) error {
	for {
		err := f.Next()
		if err == io.EOF {
			return r.r.ProvePadding(f.Plain())
		}
		if err != nil {
			return err
		}
	}
}

// openBlock opens a block, which stands in f.
func openBlock(l seal.Label, f *seal.Frames, b seal.Block) ([]byte, error) {
	end := b.Offset + int64(b.StoredBytes)
	if err := f.OpenTo(end); err != nil {
		return nil, err
	}
	return seal.OpenBlock(l, f.Plain()[b.Offset-f.Offset():end-f.Offset()])
}

// blocksTogether is how many blocks are verified at once: one has too few pieces to hash as many
// side by side as a processor can.
const blocksTogether = 8

// opened is a block that was opened, and what is said to stand in it.
type opened struct {
	plain  []byte
	pieces []wire.PackPiece
}

// giver verifies the pieces of blocks, several at a time, and gives them to fn.
type giver struct {
	src    *source
	places []storage.PlacedPiece // of those that were not given yet
	fn     func(p storage.PlacedPiece, content []byte) error
	blocks []opened // not verified yet
}

func (g *giver) add(o opened) error {
	if g.blocks = append(g.blocks, o); len(g.blocks) < blocksTogether {
		return nil
	}
	return g.flush()
}

// flush gives the pieces of all blocks that were added.
func (g *giver) flush() error {
	if err := verify(g.src, g.blocks...); err != nil {
		return err
	}
	for _, f := range g.blocks {
		for k, p := range f.pieces {
			if err := g.fn(g.places[k], f.plain[p.At:p.At+p.Bytes:p.At+p.Bytes]); err != nil {
				return err
			}
		}
		g.places = g.places[len(f.pieces):]
	}
	g.blocks = g.blocks[:0]
	return nil
}

// verify looks whether the pieces of blocks fill them and have their digests (I1).
func verify(src *source, blocks ...opened) error {
	for _, f := range blocks {
		for i := range f.pieces {
			p := &f.pieces[i]
			if uint64(p.At)+uint64(p.Bytes) > uint64(len(f.plain)) {
				return src.corrupt(fmt.Sprintf("a block of %d bytes", p.At+p.Bytes), fmt.Sprint(len(f.plain)))
			}
			if object.Sum(p.Digest.Kind(), f.plain[p.At:p.At+p.Bytes]) != p.Digest {
				return src.corrupt("piece "+p.Digest.String(), "other content")
			}
		}
		if last := f.pieces[len(f.pieces)-1]; int(last.At+last.Bytes) != len(f.plain) {
			return src.corrupt(fmt.Sprintf("a block of %d bytes", last.At+last.Bytes), fmt.Sprint(len(f.plain)))
		}
	}
	return nil
}
