package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// errFar ends the reading of the past.
var errFar = errors.New("the log is read far enough")

// past gives the entries of the page's past.
func (p *Page) past(ctx context.Context) ingest.Past {
	return ingest.Past{Entries: func(from format.Position, yield func(*format.Entry) error) error {
		return p.entriesBehind(ctx, from, yield)
	}}
}

// wholeLog is past with what the page has not read yet: of that only where pieces are may be taken,
// which is proved when they are fetched.
func (p *Page) wholeLog(ctx context.Context) ingest.Past {
	return ingest.Past{Entries: func(from format.Position, yield func(*format.Entry) error) error {
		return p.entriesUpTo(ctx, math.MaxUint64, from, yield)
	}}
}

// entriesBehind gives the entries behind a position up to the page's position, read anew. Where a
// floor has passed what is missing, it goes on behind the floor's checkpoint, so that there may be
// gaps: what stood there is gone. The error matches base.ErrGone where nothing leads on from a
// position that the log does not have (any more).
func (p *Page) entriesBehind(ctx context.Context, from format.Position, yield func(*format.Entry) error) error {
	return p.entriesUpTo(ctx, p.ses.log.Position().Number, from, yield)
}

// entriesUpTo is entriesBehind up to the entry of a number, or the end of the log.
func (p *Page) entriesUpTo(ctx context.Context, last uint64, from format.Position, yield func(*format.Entry) error) error {
	from.Bucket = format.ID(p.s.o.Keyring.BucketID())
	for from.Number < last {
		log := cloudlog.New(cloudlog.Options{Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Clock: p.s.o.Clock, Jitter: p.s.random64, At: from})
		_, err := log.CatchUp(ctx, true, func(_ context.Context, entries []*format.Entry, _ format.Position) error {
			for _, e := range entries {
				if e.Number > last {
					return errFar
				}
				if err := yield(e); err != nil {
					return err
				}
			}
			return nil
		})
		switch floor, _ := log.Floor(); {
		case errors.Is(err, errFar):
			return nil
		case wrongBucket(err) && from != p.ses.log.Position(): // a checkpoint of a log that went on otherwise, as where an entry was lost and its place filled
			return fmt.Errorf("read the log from entry %d on: %w: %v", from.Number+1, base.ErrGone, err)
		case !errors.Is(err, cloudlog.ErrPassed):
			return err
		case floor.Checkpoint <= log.Position().Number:
			return fmt.Errorf("read the log from entry %d on: %w", log.Position().Number+1, base.ErrGone)
		default:
			c, err := p.readCheckpoint(ctx, floor.Checkpoint)
			if err != nil {
				return fmt.Errorf("read the log from entry %d on: %w: checkpoint %d: %w", log.Position().Number+1, base.ErrGone, floor.Checkpoint, err)
			}
			from = c.At
		}
	}
	return nil
}

// supplyPlaces searches the log for a piece that an entry needs: all of it when the piece is gone
// from its place, since what moved it may come later than the entry.
func (p *Page) supplyPlaces(ctx context.Context, e *ingest.NeedsPlacesError) error {
	if e.Gone == nil {
		return p.in.FindPlaces(ctx, p.past(ctx))
	}
	p.s.o.Logger.Warn("pieces are not where they were: the log is searched for them", "ledger", p.o.Ledger, "page", p.pageID(), "error", e)
	floor, _ := p.ses.log.Floor()
	if err := p.loseGone(ctx, floor); err != nil {
		return err
	}
	p.ses.resend = true
	return p.in.FindPlaces(ctx, p.wholeLog(ctx))
}

// findPlaces searches the log, read to its end, for pieces that are not held and have lost their
// places. A page that forgets the bucket and begins anew with a checkpoint learns what that needs:
// but trees of older commits may be here already, and nobody asks for the places of what they have.
// And a pack that was condemned, and is deleted before the page reads that, may have had what
// stands in entries too. A log of which something cannot be read is searched again by the next
// session.
func (p *Page) findPlaces(ctx context.Context) error {
	v, err := p.store.Metadata(ctx, ingest.MetadataUnplaced)
	if err != nil {
		return fmt.Errorf("read whether places were lost: %w", err)
	}
	if v == nil {
		return nil
	}
	errOne := errors.New("one is enough")
	err = p.store.MissingPieces(ctx, func(object.Digest) error { return errOne })
	if errors.Is(err, errOne) {
		err = p.in.FindPlaces(ctx, p.past(ctx))
	}
	if unreadable(err) {
		p.s.o.Logger.Warn("the log cannot be searched for pieces that have lost their places", "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return p.keep(ctx, storage.Metadata{Type: ingest.MetadataUnplaced})
}

// findPlaceOf searches the log, read to its end, for a piece of which the page knows no place,
// where it does not know all places: trees that are built from the log bring those of the values
// that are in them, but not always of the pieces that these consist of. Where the log cannot be
// read it is searched once in a session.
func (p *Page) findPlaceOf(ctx context.Context, d object.Digest) error {
	st, err := p.store.PieceState(d)
	if err != nil || st.Held || st.Synced || p.ses.searched {
		return err
	}
	if v, err := p.store.Metadata(ctx, ingest.MetadataAdopted); err != nil || v == nil {
		return err
	}
	err = p.in.FindPlaces(ctx, p.past(ctx))
	if unreadable(err) {
		p.ses.searched = true
		p.s.o.Logger.Warn("the log cannot be searched for a piece whose place is not known", "ledger", p.o.Ledger, "page", p.pageID(), "piece", d.Short(), "error", err)
		return nil
	}
	return err
}
