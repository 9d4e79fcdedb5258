package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// A table takes at most pieceTableBytes for a piece, blockTableBytes for a block, and tableRoom
	// for the rest.
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

// packSource returns the source of a pack in the directory of epoch e.
func packSource(b bucket.Bucket, n wire.Names, e, id epoch.ID) *source {
	return &source{b: b, kind: kindPack, short: id.String(), name: n.Pack(e, id), label: n.PackLabel(e)}
}

// Reader reads one pack. It may not be used concurrently.
type Reader struct {
	src    *source
	ref    wire.Pack
	stream *seal.Stream
	c      *contents
	whole  *[]byte // the stored object, which returns to wholePool; nil if only the table was read
}

// wholePool has buffers for whole packs.
var wholePool = sync.Pool{New: func() any { return new([]byte) }}

// Open reads the table of a pack of ref.Bytes, and of one with LAZY values most of their index
// pieces. It makes mostly one request, and two or three for a pack of short pieces. The pieces are
// verified only when Each reads them. The caller closes the Reader.
//
// Errors: *base.CorruptError naming the pack for an object that does not match ref,
// base.ErrNotFound, base.ErrNetwork, and others of the bucket; *base.FormatError.
func Open(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n wire.Names, ref wire.Pack) (*Reader, error) {
	r := &Reader{src: packSource(b, n, ref.Epoch, ref.ID), ref: ref}
	if err := r.begin(s, newFront(ctx, r.src, int64(ref.Bytes), !ref.Eager)); err != nil {
		return nil, r.src.wrap(err)
	}
	return r, nil
}

// OpenWhole is Open for reading all of a pack, with one request. ref.Bytes may be 0, an unknown
// length. It holds the object, at most wire.MaxPackBytes.
func OpenWhole(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n wire.Names, ref wire.Pack) (*Reader, error) {
	r := &Reader{src: packSource(b, n, ref.Epoch, ref.ID), ref: ref, whole: wholePool.Get().(*[]byte)}
	if err := r.openWhole(ctx, s); err != nil {
		r.Close()
		return nil, r.src.wrap(err)
	}
	return r, nil
}

// Close releases memory. Contents borrowed from Each must not be used any more.
func (r *Reader) Close() {
	if r.whole != nil {
		wholePool.Put(r.whole)
		r.whole = nil
	}
}

func (r *Reader) openWhole(ctx context.Context, s *seal.Sealer) error {
	limit := cmp.Or(int64(r.ref.Bytes), wire.MaxPackBytes)
	sealed, size, err := r.src.read(ctx, 0, -1, limit, *r.whole)
	if err != nil {
		return err
	}
	*r.whole = sealed
	if r.ref.Bytes > 0 && size != int64(r.ref.Bytes) {
		return r.src.corrupt(fmt.Sprintf("%d bytes", r.ref.Bytes), fmt.Sprint(size))
	}
	r.ref.Bytes = uint64(size)
	return r.begin(s, bytes.NewReader(sealed))
}

// begin opens the object, and reads and checks the table.
func (r *Reader) begin(s *seal.Sealer, sealed io.Reader) (err error) {
	if r.stream, err = s.NewStream(sealed, int64(r.ref.Bytes), r.src.label, nil); err != nil {
		return err
	}
	ref := r.stream.Ref()
	if epoch.ID(ref.ID) != r.ref.ID {
		return r.src.corrupt("", "pack "+ref.ID.String()+" under this name")
	}
	t, err := wire.ReadPackTable(r.stream)
	if err != nil {
		return err
	}
	if r.ref.Pieces != 0 && uint64(len(t.Pieces)) != uint64(r.ref.Pieces) {
		return r.src.corrupt(fmt.Sprintf("%d pieces", r.ref.Pieces), fmt.Sprint(len(t.Pieces)))
	}
	r.ref.Pieces = uint32(len(t.Pieces))
	r.c = &contents{keyIndex: ref.KeyIndex, blocks: t.Blocks, pieces: t.Pieces}
	return nil
}

// Ref returns the reference of the pack, with its length and number of pieces.
func (r *Reader) Ref() wire.Pack { return r.ref }

// Places returns the places of the pack's pieces, in order.
func (r *Reader) Places() []storage.PlacedPiece {
	return place(&r.ref, r.c.keyIndex, r.c.blocks, r.c.pieces)
}

// Each calls fn with the places of the pack's pieces, in order, and with the verified content of
// those that it reads, else nil. content is borrowed until fn returns. Each can be called once.
// Errors are those of Open and of fn.
//
// Of a pack opened by OpenWhole it reads all pieces; a later one may still turn out to be damaged.
// Of one opened by Open it reads the index pieces of LAZY values, which precede all others, at most
// 4 MiB, within the context of Open. Most were read with the table; others take another request. It
// leaves out a damaged one and those after it: fetching such a piece reports the damage.
func (r *Reader) Each(ctx context.Context, fn func(p storage.PlacedPiece, content []byte) error) error {
	places := r.Places()
	reads, held := true, 0
	for i := range uint32(len(r.c.blocks)) {
		if err := ctx.Err(); err != nil {
			return r.src.wrap(context.Cause(ctx))
		}
		pieces := r.c.in(i)
		if r.whole == nil {
			last := &pieces[len(pieces)-1]
			held += int(last.At + last.Bytes)
			reads = reads && !r.ref.Eager && held <= maxSpanBytes && pieces[0].Digest.Kind().IsIndex()
		}
		var plain []byte
		if reads {
			var err error
			plain, err = r.block(i)
			if r.whole == nil && errors.Is(err, base.ErrCorrupt) {
				reads, err = false, nil
			}
			if err != nil {
				return r.src.wrap(err)
			}
		}
		for k, p := range pieces {
			var content []byte
			if reads {
				content = plain[p.At : p.At+p.Bytes : p.At+p.Bytes]
			}
			if err := fn(places[k], content); err != nil {
				return err
			}
		}
		places = places[len(pieces):]
	}
	if r.whole == nil {
		return nil
	}
	_, err := r.stream.Next()
	if err == nil {
		err = r.src.corrupt("", "a block that its table does not have")
	}
	if err != io.EOF { // the rest is as it was sealed
		return r.src.wrap(err)
	}
	return nil
}

// block returns the verified plaintext of the next block, valid until the one after it is read.
func (r *Reader) block(i uint32) ([]byte, error) {
	plain, err := blockAt(r.src, r.stream, r.c.blocks[i])
	if err == nil {
		err = verify(r.src, plain, r.c.in(i))
	}
	return plain, err
}

// blockAt returns the plaintext of a block, valid until the stream is read on. It skips blocks
// before that one.
func blockAt(src *source, stream *seal.Stream, b seal.Block) (plain []byte, err error) {
	for err == nil && stream.Offset() < b.Offset {
		_, err = stream.Next()
	}
	at := stream.Offset()
	if err == nil {
		plain, err = stream.Next()
	}
	if err == io.EOF || err == nil && (at != b.Offset || stream.Offset() != at+int64(b.StoredBytes)) {
		err = src.corrupt(fmt.Sprintf("a block of %d bytes at %d", b.StoredBytes, b.Offset), fmt.Sprintf("one of %d at %d", stream.Offset()-at, at))
	}
	return plain, err
}

// verify verifies that the pieces of a block fill it and have their digests (I1).
func verify(src *source, plain []byte, pieces []wire.PackPiece) error {
	for i := range pieces {
		p := &pieces[i]
		if uint64(p.At)+uint64(p.Bytes) > uint64(len(plain)) {
			return src.corrupt(fmt.Sprintf("a block of %d bytes", p.At+p.Bytes), fmt.Sprint(len(plain)))
		}
		if object.Sum(p.Digest.Kind(), plain[p.At:p.At+p.Bytes]) != p.Digest {
			return src.corrupt("piece "+p.Digest.String(), "other content")
		}
	}
	if last := pieces[len(pieces)-1]; int(last.At+last.Bytes) != len(plain) {
		return src.corrupt(fmt.Sprintf("a block of %d bytes", last.At+last.Bytes), fmt.Sprint(len(plain)))
	}
	return nil
}
