package pack

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/storage"
)

const (
	// maxSpanBytes bounds the bytes of one request for several blocks.
	maxSpanBytes = 4 << 20
	// maxGap is how many unwanted blocks may be read between wanted ones: they cost less than
	// another request.
	maxGap = 1
)

// span is one request: neighbouring blocks of a pack.
type span struct {
	pack      epoch.ID
	off, size int64         // in the pack's stream
	blocks    []wantedBlock // in order
	bytes     int64         // of the pieces wanted
}

// wantedBlock is a block of a span, with its wanted pieces.
type wantedBlock struct {
	place  storage.CloudPlace // of the first piece
	pieces []storage.PlacedPiece
}

// planSpans groups pieces in packs by request. It sorts wanted, whose memory the result shares.
// Pieces whose places contradict each other get different spans.
func planSpans(wanted []storage.PlacedPiece) []span {
	slices.SortFunc(wanted, func(a, b storage.PlacedPiece) int {
		p, q := &a.Place, &b.Place
		return cmp.Or(bytes.Compare(p.Pack[:], q.Pack[:]), cmp.Compare(p.Block, q.Block), cmp.Compare(p.Offset, q.Offset),
			cmp.Compare(p.StoredBytes, q.StoredBytes), cmp.Compare(p.KeyIndex, q.KeyIndex), cmp.Compare(p.At, q.At), a.Digest.Compare(b.Digest))
	})
	var spans []span
	for len(wanted) > 0 {
		n := 1
		for n < len(wanted) && sameBlock(&wanted[n].Place, &wanted[0].Place) {
			n++
		}
		f := wantedBlock{place: wanted[0].Place, pieces: wanted[:n:n]}
		wanted = wanted[n:]
		if len(spans) == 0 || !spans[len(spans)-1].add(f) {
			spans = append(spans, span{pack: f.place.Pack, off: f.place.Offset, size: int64(f.place.StoredBytes), blocks: []wantedBlock{f}, bytes: f.bytes()})
		}
	}
	return spans
}

func sameBlock(a, b *storage.CloudPlace) bool {
	return a.Pack == b.Pack && a.Block == b.Block && a.Offset == b.Offset && a.StoredBytes == b.StoredBytes && a.KeyIndex == b.KeyIndex
}

// block returns the block's place in the stream.
func (f *wantedBlock) block() seal.Block {
	return seal.Block{Offset: f.place.Offset, StoredBytes: int(f.place.StoredBytes)}
}

func (f *wantedBlock) bytes() (n int64) {
	for i := range f.pieces {
		n += int64(f.pieces[i].Place.Bytes)
	}
	return n
}

// add adds a block to a span, if it is near the last one and the span does not become too long.
func (s *span) add(f wantedBlock) bool {
	last := &s.blocks[len(s.blocks)-1].place
	p := &f.place
	end := p.Offset + int64(p.StoredBytes)
	if p.Pack != s.pack || p.KeyIndex != last.KeyIndex || p.Block <= last.Block || p.Block-last.Block > 1+maxGap || p.Offset < last.Offset+int64(last.StoredBytes) || end < p.Offset || end-s.off > maxSpanBytes {
		return false
	}
	s.size, s.blocks, s.bytes = end-s.off, append(s.blocks, f), s.bytes+f.bytes()
	return true
}
