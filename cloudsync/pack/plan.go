package pack

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/storage"
)

const (
	// maxSpanBytes bounds what one request for several frames brings.
	maxSpanBytes = 4 << 20
	// maxGap is how many frames that nobody wants may be read with those around them: it costs less than another request.
	maxGap = 1
)

// span is one request: neighbouring frames of a pack.
type span struct {
	pack      format.ID
	off, size int64
	frames    []wantedFrame // in order
	bytes     int64         // of the pieces wanted
}

// wantedFrame is a frame of a span, with what is wanted of it.
type wantedFrame struct {
	place  storage.CloudPlace // of the first piece
	pieces []storage.PlacedPiece
}

// planSpans groups pieces that stand in packs by what one request can bring. It sorts wanted, which the result shares. Pieces whose places
// contradict each other come in different spans.
func planSpans(wanted []storage.PlacedPiece) []span {
	slices.SortFunc(wanted, func(a, b storage.PlacedPiece) int {
		p, q := &a.Place, &b.Place
		return cmp.Or(bytes.Compare(p.Pack[:], q.Pack[:]), cmp.Compare(p.Frame, q.Frame), cmp.Compare(p.Offset, q.Offset),
			cmp.Compare(p.SealedBytes, q.SealedBytes), cmp.Compare(p.KeyIndex, q.KeyIndex), cmp.Compare(p.At, q.At), a.Digest.Compare(b.Digest))
	})
	var spans []span
	for len(wanted) > 0 {
		n := 1
		for n < len(wanted) && sameFrame(&wanted[n].Place, &wanted[0].Place) {
			n++
		}
		f := wantedFrame{place: wanted[0].Place, pieces: wanted[:n:n]}
		wanted = wanted[n:]
		if len(spans) == 0 || !spans[len(spans)-1].add(f) {
			spans = append(spans, span{pack: f.place.Pack, off: f.place.Offset, size: int64(f.place.SealedBytes), frames: []wantedFrame{f}, bytes: f.bytes()})
		}
	}
	return spans
}

func sameFrame(a, b *storage.CloudPlace) bool {
	return a.Pack == b.Pack && a.Frame == b.Frame && a.Offset == b.Offset && a.SealedBytes == b.SealedBytes && a.KeyIndex == b.KeyIndex
}

func (f *wantedFrame) bytes() (n int64) {
	for i := range f.pieces {
		n += int64(f.pieces[i].Place.Bytes)
	}
	return n
}

// add adds a frame to a span, if it is near the last one and the span does not become too long.
func (s *span) add(f wantedFrame) bool {
	last := &s.frames[len(s.frames)-1].place
	p := &f.place
	end := p.Offset + int64(p.SealedBytes)
	if p.Pack != s.pack || p.Frame <= last.Frame || p.Frame-last.Frame > 1+maxGap || p.Offset < last.Offset+int64(last.SealedBytes) || end < p.Offset || end-s.off > maxSpanBytes {
		return false
	}
	s.size, s.frames, s.bytes = end-s.off, append(s.frames, f), s.bytes+f.bytes()
	return true
}
