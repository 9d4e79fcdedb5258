package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

// PackTable is the table of contents of a pack: its blocks in stream order, without gaps after the
// table, and the pieces of each block.
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

// The stream of a pack begins with its table, uncompressed and in blocks of its own:
//
//	offset  bytes  content
//	0       4      length of what follows, at most maxTableBytes
//	4       1      format version: 1
//	5              number of blocks (uvarint, not 0); for each:
//	                 its length in the stream (uvarint), number of its pieces (uvarint, not 0);
//	                     for each:
//	                   digest (33), length (uvarint, 1 to 65536)
//
// There are at most MaxPackPieces pieces. Offsets follow from the lengths.
const (
	packTableWhere = "table of pack"
	tableHead      = 4
	maxTableBytes  = 4 << 20
)

// place sets the offsets of the blocks, which follow a table of n bytes.
func (t *PackTable) place(n int) {
	at := int64(n + (n+seal.MaxBlockBytes-1)/seal.MaxBlockBytes*seal.BlockOverhead)
	for i := range t.Blocks {
		t.Blocks[i].Offset = at
		at += int64(t.Blocks[i].StoredBytes)
	}
}

// Encode returns the bytes with which the stream of the pack begins, and sets the offsets of the
// blocks. Block of the pieces must ascend.
func (t *PackTable) Encode() []byte {
	b := make([]byte, tableHead, 16+8*len(t.Blocks)+len(t.Pieces)*(object.DigestSize+3))
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
	binary.BigEndian.PutUint32(b, uint32(len(b)-tableHead))
	t.place(len(b))
	return b
}

// ReadPackTable reads the table at the beginning of a pack's stream. It does not verify the pieces.
// Errors: *base.CorruptError, *base.FormatError, those of r.
func ReadPackTable(r io.Reader) (*PackTable, error) {
	b := make([]byte, tableHead)
	_, err := io.ReadFull(r, b)
	if err == nil {
		n := binary.BigEndian.Uint32(b)
		if n > maxTableBytes {
			return nil, corrupt(packTableWhere, fmt.Errorf("%d bytes, at most %d", n, maxTableBytes))
		}
		b = make([]byte, n)
		_, err = io.ReadFull(r, b)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF { // not a wrapped error of r
		return nil, corrupt(packTableWhere, errors.New("it ends early"))
	}
	if err != nil {
		return nil, err
	}
	return parsePackTable(b)
}

// parsePackTable reads a table without its length.
func parsePackTable(b []byte) (*PackTable, error) {
	c := decode(packTableWhere, b)
	t := &PackTable{Blocks: make([]seal.Block, c.count("blocks", 1, 1+1+object.DigestSize+1)), Pieces: make([]PackPiece, 0, len(b)/(object.DigestSize+1))}
	for i := range t.Blocks {
		stored := c.uvarint("length of a block", seal.BlockOverhead, seal.BlockOverhead+seal.MaxBlockBytes)
		t.Blocks[i].StoredBytes = int(stored)
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
	if err := t.checkDistinct(); err != nil {
		return nil, corrupt(packTableWhere, err)
	}
	t.place(tableHead + len(b))
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
		c.refuse(!isValue(p.Digest), "piece %s is no chunk and no index", p.Digest.Short())
		p.Bytes = uint32(c.uvarint("length of a piece", 1, limits.MaxPieceBytes))
		if plain += uint64(p.Bytes); plain > seal.MaxBlockBytes {
			break
		}
		t.Pieces = append(t.Pieces, p)
	}
	return plain
}

// checkDistinct verifies that no piece appears twice.
func (t *PackTable) checkDistinct() error {
	digests := make([]object.Digest, len(t.Pieces))
	for i := range t.Pieces {
		digests[i] = t.Pieces[i].Digest
	}
	slices.SortFunc(digests, object.Digest.Compare)
	for i := 1; i < len(digests); i++ {
		if digests[i] == digests[i-1] {
			return fmt.Errorf("piece %s is there twice", digests[i].Short())
		}
	}
	return nil
}
