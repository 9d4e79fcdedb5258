package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// DropOptions say which pieces DropCold drops.
type DropOptions struct {
	// Bytes is the amount that is enough; 0: everything that may go.
	Bytes int64
	// NotReadFor keeps pieces that were read more recently than that, as recorded in
	// Options.Recency; 0: none.
	NotReadFor time.Duration
	// DryRun changes nothing.
	DryRun bool
	// Spare returns a function that selects places that do not count as a copy: a piece at such a
	// place stays. DropCold calls Spare for some pieces at a time, after it has read their places.
	// nil: all places count.
	Spare func(context.Context) (func(*CloudPlace) bool, error)
}

// DropCold drops chunks of values that the bucket has, until Bytes of content will be free after
// compaction, and returns how many bytes. Pieces in the oldest segments go first, whether written
// there or moved there by compaction. It calls DropPieces, and ends with its errors; earlier drops
// stay. It reads the rows of all pieces that the bucket has, twice, in transactions of some
// thousands; its memory is proportional to the number of segments.
func (s *Store) DropCold(ctx context.Context, o DropOptions) (free int64, err error) {
	since := uint64(0)
	if o.NotReadFor > 0 {
		since = minuteOf(s.o.Clock.Now().Add(-o.NotReadFor))
	}
	of := map[uint32]int64{} // bytes by segment
	total := int64(0)
	err = s.eachCold(ctx, since, o.Spare, func(some []coldPiece) error {
		for _, c := range some {
			of[c.at.Segment] += pieceBytes(c.at)
			total += pieceBytes(c.at)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("look for cold values: %w", err)
	}
	want := o.Bytes
	if want <= 0 || want > total {
		want = total
	}
	if o.DryRun || want == 0 {
		return want, nil
	}
	last, sum := uint32(0), int64(0)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if last, sum = id, sum+of[id]; sum >= want {
			break
		}
	}
	left := of[last] - (sum - want) // the amount to drop from the last of these segments
	err = s.eachCold(ctx, since, o.Spare, func(some []coldPiece) error {
		var drop []object.Digest
		for _, c := range some {
			switch {
			case c.at.Segment > last:
				continue
			case c.at.Segment == last && left <= 0:
				continue
			case c.at.Segment == last:
				left -= pieceBytes(c.at)
			}
			drop = append(drop, c.Digest)
		}
		n, err := s.DropPieces(ctx, drop)
		free += n
		return err
	})
	if err != nil {
		return free, fmt.Errorf("drop cold values: %w", err)
	}
	return free, nil
}

// pieceBytes returns the length of the content of a held piece.
func pieceBytes(p segment.Place) int64 { return int64(p.Length) - object.DigestSize - 1 }

// coldPiece is a chunk that may be dropped, and the place of its record.
type coldPiece struct {
	PlacedPiece
	at segment.Place
}

// eachCold calls fn with chunks, some at a time. They are held, the bucket has them at a place that
// spare does not select, and, unless since is 0, no read at that minute or later is recorded.
func (s *Store) eachCold(ctx context.Context, since uint64, spare func(context.Context) (func(*CloudPlace) bool, error), fn func([]coldPiece) error) error {
	var some []coldPiece
	return s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err != nil {
			return err
		}
		if p.Digest.Kind() != object.Chunk || since > 0 && s.o.Recency.readSince(&p.Digest, since) {
			return nil
		}
		row, ok, err := readObjectRow(tx, &p.Digest)
		if err == nil && ok && row.held {
			some = append(some, coldPiece{p, row.place})
		}
		return err
	}, func() error {
		if spare != nil && len(some) > 0 {
			spared, err := spare(ctx)
			if err != nil {
				return err
			}
			some = slices.DeleteFunc(some, func(c coldPiece) bool { return spared(&c.Place) })
		}
		err := fn(some)
		some = some[:0]
		return err
	})
}

// DropPieces removes the content of synced pieces from the page; it can be fetched again. Index
// pieces stay, since they list the pieces of a value. Pieces that are not synced, or not held, are
// skipped, also if they become so before the drop is durable. It writes batches of 1024 pieces and
// returns about how many bytes of content will be free after compaction, also with an error. Errors
// match base.ErrClosed or base.ErrReadOnly, or are those of the disk or of ctx.
func (s *Store) DropPieces(ctx context.Context, pieces []object.Digest) (free int64, err error) {
	given := map[object.Digest]bool{}
	for len(pieces) > 0 {
		var batch []object.Digest
		var bytes int64
		for len(pieces) > 0 && len(batch) < s.maxTouches {
			d := pieces[0]
			pieces = pieces[1:]
			if d.Kind() != object.Chunk || given[d] {
				continue
			}
			given[d] = true
			st, err := s.stateOf(&d)
			if err != nil {
				return free, fmt.Errorf("drop pieces: %w", err)
			}
			if st.held && st.placed && st.at.content == nil {
				batch = append(batch, d)
				bytes += pieceBytes(st.at.place)
			}
		}
		if len(batch) == 0 {
			break
		}
		if err := s.submitOps(ctx, digestOps(nil, recDropped, batch), false); err != nil {
			return free, fmt.Errorf("drop pieces: %w", err)
		}
		free += bytes
	}
	return free, s.writable()
}
