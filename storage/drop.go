package storage

import (
	"context"
	"errors"
	"fmt"
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

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// DropCold drops chunks of values that the bucket has, until Bytes of content will be free after
// compaction, and returns how many bytes. The pieces that the page has had for the longest time go
// first. It calls DropPieces, and ends with its errors; earlier drops stay. It reads the rows of
// pieces that the bucket has in transactions of some hundreds. On a full disk it uses the reserve.
func (s *Store) DropCold(ctx context.Context, o DropOptions) (free int64, err error) {
	err = s.WithReserve(ctx, func(bool) error { return s.dropCold(ctx, &o, &free) })
	if err != nil && !errors.Is(err, errEnough) {
		return free, fmt.Errorf("drop cold values: %w", err)
	}
	return free, nil
}

// dropCold is DropCold that adds to free, and returns errEnough when that is enough.
func (s *Store) dropCold(ctx context.Context, o *DropOptions, free *int64) error {
	since := uint64(0)
	if o.NotReadFor > 0 {
		since = minuteOf(s.o.Clock.Now().Add(-o.NotReadFor))
	}
	var some []coldPiece
	return s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err != nil || p.Digest.Kind() != object.Chunk || since > 0 && s.o.Recency.readSince(&p.Digest, since) {
			return err
		}
		row, ok, err := readObjectRow(tx, &p.Digest)
		if err == nil && ok && row.held {
			some = append(some, coldPiece{p.Digest, p.Place, pieceBytes(row.place)})
		}
		return err
	}, func() (err error) {
		spared := func(*CloudPlace) bool { return false }
		if o.Spare != nil && len(some) > 0 {
			if spared, err = o.Spare(ctx); err != nil {
				return err
			}
		}
		var drop []object.Digest
		bytes := int64(0)
		for _, c := range some {
			if !spared(&c.place) && (o.Bytes <= 0 || *free+bytes < o.Bytes) {
				drop, bytes = append(drop, c.digest), bytes+c.bytes
			}
		}
		if some = nil; !o.DryRun {
			bytes, err = s.DropPieces(ctx, drop)
		}
		if *free += bytes; err == nil && o.Bytes > 0 && *free >= o.Bytes {
			err = errEnough
		}
		return err
	})
}

// pieceBytes returns the length of the content of a held piece.
func pieceBytes(p segment.Place) int64 { return int64(p.Length) - object.DigestSize }

// coldPiece is a chunk that may be dropped, its place in the bucket, and the length of its content.
type coldPiece struct {
	digest object.Digest
	place  CloudPlace
	bytes  int64
}

// DropPieces removes the content of synced pieces from the page; it can be fetched again. Index
// pieces stay, since they list the pieces of a value. Pieces that are not synced, or not held, are
// skipped. It writes batches of 1024 pieces and
// returns about how many bytes of content will be free after compaction, also with an error. Errors
// match base.ErrClosed or base.ErrReadOnly, or are those of the disk or of ctx.
func (s *Store) DropPieces(ctx context.Context, pieces []object.Digest) (free int64, err error) {
	s.drops.Lock() // until the drop is submitted, no place goes (I7)
	defer s.drops.Unlock()
	given := map[object.Digest]bool{}
	for len(pieces) > 0 {
		var batch []object.Digest
		var bytes int64
		epoch := s.epochNow() // the places may be submitted only
		for len(pieces) > 0 && len(batch) < maxRecordEntries {
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
		if err := s.submitOps(ctx, digestOps(nil, recDropped, batch), submission{late: true, check: func() error { return s.epochLocked(epoch) }}); err != nil {
			return free, fmt.Errorf("drop pieces: %w", err)
		}
		free += bytes
	}
	return free, s.writable()
}
