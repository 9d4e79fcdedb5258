package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// state is what is known of a piece. bytes is its length, negative when that is not known.
type state struct {
	held, placed bool
	bytes        int64
}

// look returns what the page and the step know of a piece.
func (s *step) look(d object.Digest) (state, error) {
	m, ok := s.mine[d]
	if ok && m.held {
		return state{held: true, placed: true, bytes: int64(m.bytes)}, nil
	}
	p, err := s.p.o.Store.PieceState(d)
	if err != nil {
		return state{}, fmt.Errorf("look for piece %s: %w", d, err)
	}
	st := state{held: p.Held, placed: p.Synced || ok, bytes: -1}
	if ok {
		st.bytes = int64(m.bytes)
	} else if p.Synced {
		st.bytes = int64(p.Place.Bytes)
	}
	return st, nil
}

// place records where a piece stands; held says that the journal got it.
func (s *step) place(p storage.PlacedPiece, held bool) error {
	if s.fill {
		if st, err := s.look(p.Digest); err != nil || st.held || st.placed {
			return err
		}
	}
	s.b.Places = append(s.b.Places, p)
	s.mine[p.Digest] = mine{bytes: p.Place.Bytes, held: held || s.mine[p.Digest].held}
	return nil
}

// flushPlaces makes the places that the step holds durable ahead of it, and with them the pieces in
// the journal.
func (s *step) flushPlaces(ctx context.Context) error {
	if len(s.b.Places) == 0 {
		return nil
	}
	if err := s.j.Flush(ctx); err != nil {
		return err
	}
	pending, err := s.p.o.Store.SubmitSync(ctx, nil, &storage.SyncBatch{Places: s.b.Places})
	if err != nil {
		return fmt.Errorf("record %d places: %w", len(s.b.Places), err)
	}
	if err := pending.Wait(); err != nil {
		return fmt.Errorf("record %d places: %w", len(s.b.Places), err)
	}
	s.b.Places = nil
	clear(s.mine)
	return nil
}

// checkPiece verifies what can be seen in a piece, whose content has its digest.
func checkPiece(d object.Digest, content []byte) error {
	if !d.Valid() || d.Kind().IsNode() {
		return bad("piece %s is none of a value", d)
	}
	if len(content) > limits.MaxPieceBytes {
		return bad("piece %s of %d bytes", d, len(content))
	}
	if _, err := split.Children(d, content); err != nil {
		return indexFault(d, err)
	}
	return nil
}

// pieces takes the pieces that stand in an entry; with fill, those of which nothing is known.
func (s *step) pieces(ctx context.Context, e *format.Entry) error {
	for i := range e.Body.Pieces {
		x := &e.Body.Pieces[i]
		if err := checkPiece(x.Digest, x.Content); err != nil {
			return err
		}
		if s.fill {
			if st, err := s.look(x.Digest); err != nil {
				return err
			} else if st.held || st.placed {
				continue
			}
		}
		if err := s.j.PutPiece(ctx, x.Digest, x.Content); err != nil {
			return err
		}
		s.res.Pieces++
		if err := s.place(inlinePlace(e, i), true); err != nil {
			return err
		}
	}
	return nil
}

// inlinePlace returns the place of piece i of an entry.
func inlinePlace(e *format.Entry, i int) storage.PlacedPiece {
	x := &e.Body.Pieces[i]
	return storage.PlacedPiece{Digest: x.Digest, Place: storage.CloudPlace{
		Entry: e.Number, Block: uint32(i), Bytes: uint32(len(x.Content)), KeyIndex: e.KeyIndex,
	}}
}

// pack takes what a pack brings: all its pieces, or only where they are.
func (s *step) pack(ctx context.Context, ref format.PackRef, whole bool) error {
	name := s.p.o.Names.Pack(ref.ID)
	var places []storage.PlacedPiece
	var err, disk error
	if whole {
		// The places are proved when the last piece has been read.
		err = s.readPack(ctx, pack.OpenWhole, ref, nil, func(p storage.PlacedPiece, content []byte) error {
			if err := checkPiece(p.Digest, content); err != nil {
				return err
			}
			places = append(places, p)
			disk = s.j.PutPiece(ctx, p.Digest, content)
			return disk
		})
		s.res.Bytes += int64(ref.Bytes)
		s.res.Pieces += len(places)
	} else {
		places, err = s.packPlaces(ctx, ref)
	}
	if disk != nil {
		return disk
	}
	if err != nil {
		return badPack(name, err)
	}
	if whole {
		s.p.o.Progress.Advance(0, int64(ref.Bytes))
	}
	return s.takePlaces(ctx, places, whole)
}

// opener is pack.Open or pack.OpenWhole.
type opener func(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n pack.Names, ref format.PackRef) (*pack.Reader, error)

// readPack gives the pieces of a pack to fn: with content those in spans, all when there are none.
func (s *step) readPack(ctx context.Context, open opener, ref format.PackRef, spans []format.BlockSpan, fn func(p storage.PlacedPiece, content []byte) error) error {
	r, err := open(ctx, s.p.o.Bucket, s.p.o.Sealer, s.p.o.Names, ref)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Each(ctx, spans, fn)
}

// packPlaces returns where the pieces of a pack stand.
func (s *step) packPlaces(ctx context.Context, ref format.PackRef) ([]storage.PlacedPiece, error) {
	r, err := pack.Open(ctx, s.p.o.Bucket, s.p.o.Sealer, s.p.o.Names, ref)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Places(), nil
}

// badPack returns the error of a pack that could not be read. One that is not there is gone:
// whoever announced it, or relies on it, has had it.
func badPack(name string, err error) error {
	if errors.Is(err, base.ErrNotFound) {
		return fmt.Errorf("read pack %s: %w: %w", name, base.ErrGone, err)
	}
	return badObject(name, fmt.Errorf("read pack %s: %w", name, err))
}

// packPart takes where the pieces of a pack are, and those that stand in some of its blocks.
func (s *step) packPart(ctx context.Context, ref format.PackRef, part *format.PartialPack) error {
	name := s.p.o.Names.Pack(ref.ID)
	var came, others []storage.PlacedPiece
	var disk error
	err := s.readPack(ctx, pack.Open, ref, part.Spans, func(p storage.PlacedPiece, content []byte) error {
		if content == nil {
			others = append(others, p)
			return nil
		}
		if err := checkPiece(p.Digest, content); err != nil {
			return err
		}
		came = append(came, p)
		s.res.Bytes += int64(len(content))
		disk = s.j.PutPiece(ctx, p.Digest, content)
		return disk
	})
	if disk != nil {
		return disk
	}
	if err != nil {
		return badPack(name, err)
	}
	s.res.Pieces += len(came)
	s.p.o.Progress.Advance(0, int64(ref.Bytes))
	if err := s.takePlaces(ctx, others, false); err != nil {
		return err
	}
	return s.takePlaces(ctx, came, true)
}

// takePlaces records where the pieces of a pack stand; held says that the journal got them.
func (s *step) takePlaces(ctx context.Context, places []storage.PlacedPiece, held bool) error {
	for _, p := range places {
		if err := s.place(p, held); err != nil {
			return err
		}
	}
	if len(s.b.Places) >= s.p.bounds.places {
		return s.flushPlaces(ctx)
	}
	return nil
}
