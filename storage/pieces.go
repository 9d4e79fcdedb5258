package storage

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

const (
	// togetherPieces is the number of pieces looked up at once.
	togetherPieces = 512
	// togetherBytes is about the amount of content read and verified at once.
	togetherBytes = 1 << 20
	// togetherGap is the number of unneeded bytes, such as headers of records and batches, that may
	// lie between pieces read with one call.
	togetherGap = 1 << 10
)

// Pieces looks up pieces of values, as PieceState does. It calls want for each of them, in order,
// and then fn with the verified content of each piece for which want returned true, in order. want
// runs ahead of fn by some hundred pieces. A piece that is not held is read as by Piece. Pieces
// costs much less than a PieceState and a Piece for each, above all when the pieces are close to
// each other in the log: it is for reading whole values. Reading continues while fn runs.
//
// content is borrowed until fn returns. Pieces holds about two MiB. It waits for the disk, and for
// the bucket as Piece does. Errors are those of PieceState, Piece, fn and ctx; the first one ends
// the call.
func (s *Store) Pieces(ctx context.Context, ds []object.Digest, want func(i int, st *PieceState) bool, fn func(i int, content []byte) error) error {
	w := &wantedPieces{s: s, ds: ds, want: want}
	some, err := w.next()
	if err != nil || len(some) == 0 {
		return err
	}
	now, ahead := newReader(), newReader()
	var reading sync.WaitGroup
	defer func() {
		reading.Wait() // fn may have ended the goroutine
		readers.Put(now)
		readers.Put(ahead)
	}()
	now.read(s, some)
	for {
		more, err := w.next()
		if len(more) > 0 {
			reading.Go(func() { ahead.read(s, more) })
		}
		if giveErr := give(ctx, s, some, fn); giveErr != nil {
			return giveErr
		}
		if err != nil || len(more) == 0 {
			return err
		}
		reading.Wait()
		now, ahead, some = ahead, now, more
	}
}

// wantedPieces are the wanted pieces of a call of Pieces.
type wantedPieces struct {
	s     *Store
	ds    []object.Digest
	want  func(i int, st *PieceState) bool
	asked int           // number of ds that want was called for
	rest  []wantedPiece // wanted, and not returned by next yet
}

// next returns the next pieces, of togetherBytes in total or a single one; none at the end.
func (w *wantedPieces) next() ([]wantedPiece, error) {
	for len(w.rest) == 0 && w.asked < len(w.ds) {
		if err := w.ask(w.ds[w.asked:min(w.asked+togetherPieces, len(w.ds))]); err != nil {
			return nil, err
		}
	}
	n, bytes := 0, 0
	for n < len(w.rest) && (n == 0 || bytes+int(w.rest[n].at.place.Length) <= togetherBytes) {
		bytes += int(w.rest[n].at.place.Length)
		n++
	}
	some := w.rest[:n]
	w.rest = w.rest[n:]
	return some, nil
}

// ask looks pieces up, and calls want for each.
func (w *wantedPieces) ask(ds []object.Digest) error {
	states, err := w.s.statesOf(ds)
	if err != nil {
		return fmt.Errorf("look %d pieces up: %w", len(ds), err)
	}
	w.rest = make([]wantedPiece, 0, len(ds))
	for i := range states {
		st := &states[i]
		if w.want(w.asked+i, &PieceState{Held: st.held, Synced: st.placed, Place: st.place}) {
			w.rest = append(w.rest, wantedPiece{i: w.asked + i, d: &ds[i], held: st.held, at: &st.at})
		}
	}
	w.asked += len(ds)
	return nil
}

// wantedPiece is a piece to be read. content is nil for a piece that is read alone.
type wantedPiece struct {
	i       int
	d       *object.Digest
	held    bool
	at      *located
	content []byte
}

// reader reads pieces that are close to each other.
type reader struct {
	buf []byte // with room for togetherBytes and the gaps
}

var readers = sync.Pool{New: func() any { return &reader{make([]byte, 0, togetherBytes+limits.MaxPieceBytes)} }}

func newReader() *reader { return readers.Get().(*reader) }

// read reads some pieces and verifies them together. A piece that cannot be read so, or is damaged,
// gets no content. The content of the others is valid until the next call of read.
func (r *reader) read(s *Store, some []wantedPiece) {
	r.buf = r.buf[:0]
	for n := 0; n < len(some); {
		n += r.readNext(s, some[n:])
	}
	verifyEach(some)
}

// give passes the contents of some pieces to fn. A piece without content is read alone, which finds
// the reason.
func give(ctx context.Context, s *Store, some []wantedPiece, fn func(i int, content []byte) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	for k := range some {
		w := &some[k]
		content := w.content
		if content == nil {
			var err error
			if content, err = s.Piece(ctx, *w.d); err != nil {
				return err
			}
		}
		if err := fn(w.i, content); err != nil {
			return err
		}
	}
	return nil
}

// readNext reads the first of the pieces and those that follow it closely, and returns their
// number.
func (r *reader) readNext(s *Store, some []wantedPiece) int {
	first := &some[0]
	if !first.held {
		return 1
	}
	if first.content = first.at.content; first.content != nil {
		return 1
	}
	n := 1
	for n < len(some) && follows(&some[n-1], &some[n]) {
		n++
	}
	from := first.at.place
	last := &some[n-1].at.place
	from.Length = uint32(last.Offset + uint64(last.Length) - from.Offset)
	at := len(r.buf)
	buf, err := s.log.Read(from, r.buf)
	if err != nil {
		return n
	}
	r.buf = buf
	for k := range n {
		w := &some[k]
		begin := at + int(w.at.place.Offset-from.Offset)
		end := begin + int(w.at.place.Length)
		o, err := parseRecord(segment.Record{Kind: recPiece, Payload: buf[begin:end:end], Place: w.at.place})
		if err == nil && o.digest == *w.d {
			w.content = o.content
		}
	}
	return n
}

// follows reports whether b follows a so closely that one call reads both.
func follows(a, b *wantedPiece) bool {
	p, q := &a.at.place, &b.at.place
	end := p.Offset + uint64(p.Length)
	return b.held && b.at.content == nil && q.Segment == p.Segment && q.Offset >= end && q.Offset-end <= togetherGap
}

// verifyEach removes the content of pieces that does not match the digest.
func verifyEach(some []wantedPiece) {
	for k := range some {
		if w := &some[k]; w.content != nil && object.Sum(w.d.Kind(), w.content) != *w.d {
			w.content = nil
		}
	}
}
