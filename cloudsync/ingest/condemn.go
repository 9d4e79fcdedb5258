package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/storage"
)

// condemn takes a condemnation: pieces whose place is condemned lose it, so that those held here
// are sent again. Pieces that are not held, though something here refers to them, are fetched
// before, while they can be.
func (s *step) condemn(ctx context.Context, e *format.Entry) error {
	c := e.Body.Condemned
	if c == nil {
		return nil
	}
	if c.Below > e.Number {
		return bad("it condemns entries up to %d", c.Below-1)
	}
	for _, n := range c.Checkpoints {
		if n > e.Number {
			return bad("it condemns checkpoint %d", n)
		}
	}
	for _, ref := range e.Body.Packs {
		if slices.Contains(c.Packs, ref.ID) {
			return bad("it condemns pack %s, which it announces", ref.ID)
		}
	}
	s.res.Condemned = true
	return s.condemnPlaces(ctx, c)
}

func (s *step) condemnPlaces(ctx context.Context, c *format.Condemnation) error {
	packs := make(map[format.ID]struct{}, len(c.Packs))
	for _, id := range c.Packs {
		packs[id] = struct{}{}
	}
	return s.losePlaces(ctx, func(p storage.CloudPlace) bool {
		if p.Pack == ([16]byte{}) {
			return p.Entry < c.Below
		}
		_, ok := packs[p.Pack]
		return ok
	}, func(placed []storage.PlacedPiece) ([]storage.PlacedPiece, error) {
		return placed, s.rescue(ctx, placed)
	})
}

// LosePlaces takes the places of pieces that stand where in says: such as are held become local,
// and are sent again; others that are needed here are fetched before, as far as they can be. It is
// durable when it returns nil. Errors: those of the bucket, of the disk and of ctx.
func (p *Page) LosePlaces(ctx context.Context, in func(storage.CloudPlace) bool) error {
	s := p.begin(rows{})
	defer s.end()
	if err := s.losePlaces(ctx, in, func(placed []storage.PlacedPiece) ([]storage.PlacedPiece, error) {
		return placed, s.rescue(ctx, placed)
	}); err != nil {
		return err
	}
	return s.submit(ctx, nil)
}

// ForgetPlaces takes the places of pieces that stand where in says, and fetches none. Such as are
// held become local, others are missing. It is durable when it returns nil. Errors: those of the
// disk and of ctx.
func (p *Page) ForgetPlaces(ctx context.Context, in func(storage.CloudPlace) bool) error {
	s := p.begin(rows{})
	defer s.end()
	err := s.losePlaces(ctx, in, func(placed []storage.PlacedPiece) ([]storage.PlacedPiece, error) { return placed, nil })
	if err != nil {
		return err
	}
	return s.submit(ctx, nil)
}

// Condemn does for a condemnation of this device what Apply does for those of others. Errors: those
// of LosePlaces.
func (p *Page) Condemn(ctx context.Context, c *format.Condemnation) error {
	s := p.begin(rows{})
	defer s.end()
	if err := s.condemnPlaces(ctx, c); err != nil {
		return err
	}
	return s.submit(ctx, nil)
}

// losePlaces takes the places of pieces, those of what is placed so that choose returns.
func (s *step) losePlaces(ctx context.Context, in func(storage.CloudPlace) bool, choose func([]storage.PlacedPiece) ([]storage.PlacedPiece, error)) error {
	placed, err := s.p.o.Store.PlacedIn(ctx, in)
	if err != nil {
		return fmt.Errorf("look for pieces that are condemned: %w", err)
	}
	// What the step has placed elsewhere keeps that place.
	placed = slices.DeleteFunc(placed, func(p storage.PlacedPiece) bool { _, ok := s.mine[p.Digest]; return ok })
	if placed, err = choose(placed); err != nil {
		return err
	}
	for _, p := range placed {
		s.b.Condemned = append(s.b.Condemned, p.Digest)
		if len(s.b.Condemned) < s.p.bounds.places {
			continue
		}
		// That a part of them goes ahead does no harm: what has no place is sent again, and the
		// rest follows when the entry is taken.
		pending, err := s.p.o.Store.SubmitSync(ctx, nil, &storage.SyncBatch{Condemned: s.b.Condemned})
		if err == nil {
			err = pending.Wait()
		}
		if err != nil {
			return fmt.Errorf("take the place of %d pieces: %w", len(s.b.Condemned), err)
		}
		s.b.Condemned = nil
	}
	return nil
}
