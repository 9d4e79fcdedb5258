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
	// Bytes is how much is enough; 0: everything that may go.
	Bytes int64
	// NotReadFor leaves pieces that are known to have been read less than so long ago; 0: none.
	// What is known is in Options.Recency.
	NotReadFor time.Duration
	// DryRun only looks.
	DryRun bool
	// Spare returns a function that names places which do not count as a copy: a piece at such a
	// place stays. DropCold calls Spare for some pieces at a time, after it has read their places.
	// nil: all places count.
	Spare func(context.Context) (func(*CloudPlace) bool, error)
}

// DropCold drops chunks of values that the bucket has, until Bytes of content will be free after
// compaction, and returns how many. Those go first that lie in the oldest segments, into which they
// came first or have been compacted. It is made of DropPieces, with whose errors it ends; what was
// dropped until then stays so. It reads the rows of all pieces that the bucket has, twice, in
// transactions of some thousands; its memory follows the number of segments.
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
	left := of[last] - (sum - want) // what is wanted of the last of these segments
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

// pieceBytes returns how long the content of a held piece is.
func pieceBytes(p segment.Place) int64 { return int64(p.Length) - object.DigestSize - 1 }

// coldPiece is a chunk that may be dropped, and where its record is.
type coldPiece struct {
	PlacedPiece
	at segment.Place
}

// eachCold calls fn with chunks, some at a time, that are held, that the bucket has at a place
// which spare does not name, and that are not known to have been read since a minute, 0: whenever.
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

// DropPieces takes the content of synced pieces out of the page; it can be fetched again. Index
// pieces stay, since they say what a value refers to. Pieces that are not synced, or not held, are
// passed over, also when they become so before the drop is durable. It writes batches of 1024
// pieces and returns about how many bytes of content will be free after compaction, also when it
// ends with an error. Errors match base.ErrClosed or base.ErrReadOnly, or are those of the disk or
// of ctx.
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
