package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// MaxPackPieces bounds the pieces of a pack, so that its table is not longer than seal.MaxTableBytes.
const MaxPackPieces = 100_000

// PackTable is the table of contents of a pack: its pieces in the order in which they stand. They fill the frames: each begins
// where the one before ends, none reaches over the end of a frame, and no frame is empty.
type PackTable struct{ Pieces []PackPiece }

// PackPiece says where a piece stands in its pack.
type PackPiece struct {
	Digest    object.Digest
	Frame     uint32
	At, Bytes uint32 // in the plaintext of the frame
}

// The layout of a pack's table:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1              number of pieces (uvarint, 1 to MaxPackPieces)
//	               for each: digest (33), length (uvarint, 1 to 65536)
//
// Frames and offsets follow from the lengths.
const packTableWhere = "table of pack"

// Encode returns the table for seal.Writer.SetTable. Frame and At of the pieces are not written: they follow from the lengths, and
// ParsePackTable gives them again.
func (t *PackTable) Encode() []byte {
	b := make([]byte, 0, 8+len(t.Pieces)*(object.DigestSize+3))
	b = append(b, formatVersion)
	b = binary.AppendUvarint(b, uint64(len(t.Pieces)))
	for i := range t.Pieces {
		b = append(b, t.Pieces[i].Digest[:]...)
		b = binary.AppendUvarint(b, uint64(t.Pieces[i].Bytes))
	}
	return b
}

// ParsePackTable reads what Encode wrote, of a pack with these frames. It proves nothing of the pieces. Errors:
// *base.CorruptError, *base.FormatError.
func ParsePackTable(b []byte, frames []seal.Frame) (*PackTable, error) {
	d := decode(packTableWhere, b)
	n := d.count("pieces", 1, object.DigestSize+1)
	if n > MaxPackPieces {
		d.failf("%d pieces, at most %d", n, MaxPackPieces)
	}
	if d.err != nil {
		return nil, d.err
	}
	t := &PackTable{Pieces: make([]PackPiece, n)}
	for i := range t.Pieces {
		t.Pieces[i].Digest = d.digest()
		t.Pieces[i].Bytes = uint32(d.uvarint("length of a piece", 1, limits.MaxPieceBytes))
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := t.place(frames); err != nil {
		return nil, corrupt(packTableWhere, err)
	}
	return t, nil
}

// place sets frame and offset of the pieces, and verifies them.
func (t *PackTable) place(frames []seal.Frame) error {
	digests := make([]object.Digest, len(t.Pieces))
	frame, at := 0, 0
	for i := range t.Pieces {
		p := &t.Pieces[i]
		if !isValuePiece(p.Digest) {
			return fmt.Errorf("piece %s is no chunk and no index", p.Digest.Short())
		}
		if frame == len(frames) || int(p.Bytes) > frames[frame].PlainBytes-at {
			return fmt.Errorf("piece %d of %d bytes reaches over the end of frame %d", i, p.Bytes, frame)
		}
		p.Frame, p.At = uint32(frame), uint32(at)
		if at += int(p.Bytes); at == frames[frame].PlainBytes {
			frame, at = frame+1, 0
		}
		digests[i] = p.Digest
	}
	if frame != len(frames) {
		return errors.New("the pieces do not fill the frames")
	}
	return checkDistinctDigests(digests)
}
