package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// MetadataAdopted is the type of the row that is there, with the value 1, while the page may not
// know the places of pieces that the log tells of: it began with a checkpoint, or pieces that it
// did not need went with their places.
const MetadataAdopted = storage.MetadataAdopted

// MetadataUnplaced is the type of the row that is there, with the value 1, when pieces that are not
// held have lost their places, and may stand elsewhere: the log was not searched for them since.
const MetadataUnplaced = "unplaced"

// findPlace looks for the place of a piece that is neither held nor placed in what the present
// entry says that it relies on. A page that has read all of the log knows that already; one that
// began with a checkpoint does not, when the checkpoint did not need the piece and a later entry
// brings it back, nor one that has collected it as garbage. What is found nowhere nobody has sent:
// that is bad, unless the page is one that was uploaded anew by devices that had not all pieces.
// Then commits with values that only others hold, or nobody any more, must come all the same: else
// a page would end for all new devices with the first value that is lost.
func (s *step) findPlace(ctx context.Context, d object.Digest) (state, error) {
	if s.present != nil && !s.relied {
		s.relied = true
		if err := s.takeRelied(ctx, s.present); err != nil {
			return state{}, err
		}
		st, err := s.look(d)
		if err != nil || st.held || st.placed {
			return st, err
		}
	}
	if s.present != nil && s.rows.adopted {
		return state{}, &NeedsPlacesError{Piece: d}
	}
	if !s.rows.lacks {
		return state{}, bad("nobody has piece %s", d)
	}
	s.res.Missing++
	return state{bytes: -1}, nil
}

// takeRelied takes the places of pieces in the packs and entries that a body relies on, and in
// packs that it announces and that were passed over. What is not there any more is passed over,
// too.
func (s *step) takeRelied(ctx context.Context, b *format.Body) error {
	fill := s.fill
	s.fill = true
	defer func() { s.fill = fill }()
	for _, id := range slices.Concat(b.Relies, s.untaken) {
		name := s.p.o.Names.Pack(id)
		places, err := s.packPlaces(ctx, format.PackRef{ID: id})
		switch {
		case errors.Is(err, base.ErrNotFound):
			continue
		case err != nil:
			return badObject(name, fmt.Errorf("read pack %s: %w", name, err))
		}
		if err := s.takePlaces(ctx, places, false); err != nil {
			return err
		}
	}
	if s.p.o.Fetcher == nil || len(b.ReliesEntries) == 0 {
		return nil
	}
	return s.p.o.Fetcher.EachEntry(ctx, b.ReliesEntries, func(e *format.Entry) error {
		s.res.Bytes += int64(e.Stored)
		return s.pieces(ctx, e)
	})
}

// FindPlaces takes the places of all pieces that the log tells of and the page does not know, from
// all entries that are there. A log whose beginning was given up tells less. It is called for a
// NeedsPlacesError, or where there is the row MetadataUnplaced, and blocks as BuildTree does.
// Errors: an *EntryError, those of log, of the disk and of ctx.
func (p *Page) FindPlaces(ctx context.Context, log Past) error {
	b := &builder{p: p, log: log}
	s := p.begin(rows{})
	defer s.end()
	err := b.allPlaces(ctx, s)
	if err == nil {
		err = s.submit(ctx, []storage.Metadata{{Type: MetadataAdopted}, {Type: MetadataUnplaced}})
	}
	if err != nil {
		return fmt.Errorf("search the log for places: %w", err)
	}
	return nil
}
