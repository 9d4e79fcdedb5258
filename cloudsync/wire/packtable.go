package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// The targets of a writer of packs.
const (
	PackBytes    = 16 << 20  // length of a pack's stream, with blocks and table
	BlockBytes   = 128 << 10 // plaintext at which a block of a pack ends
	StretchBytes = 9 << 17   // plaintext of the blocks that stay together in a pack; a range of 1 MiB lies in at most two of them
)

// PackTable is the table of contents of a pack: its blocks in stream order, from the beginning and
// without gaps, and the pieces of each block.
type PackTable struct {
	Blocks []seal.Block
	Pieces []PackPiece
}

// PackPiece is the place of a piece in its pack. The pieces of a block fill its plaintext.
type PackPiece struct {
	Digest    object.Digest
	Block     uint32
	At, Bytes uint32 // in the plaintext of the block
}

// The layout of a pack's table:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1              number of blocks (uvarint, not 0); for each:
//	                 its length in the stream (uvarint), number of its pieces (uvarint, not 0);
//	                     for each:
//	                   digest (33), length (uvarint, 1 to 65536)
//
// There are at most MaxPackPieces pieces. Offsets follow from the lengths.
const packTableWhere = "table of pack"

// Encode returns the table for seal.Writer.SetTable. It does not write offsets. Block of the pieces
// must ascend.
func (t *PackTable) Encode() []byte {
	b := make([]byte, 0, 8+8*len(t.Blocks)+len(t.Pieces)*(object.DigestSize+3))
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(t.Blocks)))
	rest := t.Pieces
	for i := range t.Blocks {
		n := 0
		for n < len(rest) && rest[n].Block == uint32(i) {
			n++
		}
		b = binary.AppendUvarint(b, uint64(t.Blocks[i].StoredBytes))
		b = binary.AppendUvarint(b, uint64(n))
		for k := range rest[:n] {
			b = append(b, rest[k].Digest[:]...)
			b = binary.AppendUvarint(b, uint64(rest[k].Bytes))
		}
		rest = rest[n:]
	}
	return b
}

// ParsePackTable reads what Encode wrote, for a pack whose blocks end at blockBytes of its stream.
// It does not verify the pieces. Errors: *base.CorruptError, *base.FormatError.
func ParsePackTable(b []byte, blockBytes int64) (*PackTable, error) {
	c := decode(packTableWhere, b)
	t := &PackTable{Blocks: make([]seal.Block, c.count("blocks", 1, 1+1+object.DigestSize+1))}
	at := int64(0)
	for i := range t.Blocks {
		stored := c.uvarint("length of a block", seal.BlockOverhead, seal.BlockOverhead+seal.MaxBlockBytes)
		t.Blocks[i] = seal.Block{Offset: at, StoredBytes: int(stored)}
		at += int64(stored)
		plain := c.packPieces(t, uint32(i))
		if c.err == nil && (plain > seal.MaxBlockBytes || stored > plain+seal.BlockOverhead) {
			c.failf("block %d of %d bytes for %d of pieces", i, stored, plain)
		}
		if c.err != nil {
			return nil, c.err
		}
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	if err := t.check(at, blockBytes); err != nil {
		return nil, corrupt(packTableWhere, err)
	}
	return t, nil
}

// packPieces reads the pieces of a block, and returns their total length.
func (c *coder) packPieces(t *PackTable, block uint32) (plain uint64) {
	n := c.count("pieces", 1, object.DigestSize+1)
	if n+len(t.Pieces) > MaxPackPieces {
		c.failf("more than %d pieces", MaxPackPieces)
	}
	if c.err != nil {
		return 0
	}
	for range n {
		p := PackPiece{Block: block, At: uint32(plain)}
		c.digest(&p.Digest)
		p.Bytes = uint32(c.uvarint("length of a piece", 1, limits.MaxPieceBytes))
		if plain += uint64(p.Bytes); plain > seal.MaxBlockBytes {
			break
		}
		t.Pieces = append(t.Pieces, p)
	}
	return plain
}

// check verifies that the blocks end where they should, and that the digests can be those of
// pieces.
func (t *PackTable) check(end, blockBytes int64) error {
	if end != blockBytes {
		return fmt.Errorf("blocks that end at %d, not %d", end, blockBytes)
	}
	digests := make([]object.Digest, len(t.Pieces))
	for i := range t.Pieces {
		if digests[i] = t.Pieces[i].Digest; !isValue(digests[i]) {
			return fmt.Errorf("piece %s is no chunk and no index", digests[i].Short())
		}
	}
	return checkDistinctDigests(digests)
}

// checkDistinctDigests verifies that no piece appears twice. It sorts digests.
func checkDistinctDigests(digests []object.Digest) error {
	slices.SortFunc(digests, func(a, b object.Digest) int { return bytes.Compare(a[:], b[:]) })
	for i := 1; i < len(digests); i++ {
		if digests[i] == digests[i-1] {
			return fmt.Errorf("piece %s is there twice", digests[i].Short())
		}
	}
	return nil
}
