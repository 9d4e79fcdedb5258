package storage

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/storage/index"
)

// SpaceCount counts records and the bytes that their payloads take in the segments.
type SpaceCount struct {
	Count int
	Bytes int64
}

func (c *SpaceCount) add(n int) {
	c.Count++
	c.Bytes += int64(n)
}

// SegmentSpace says what a segment holds.
type SegmentSpace struct {
	ID uint32
	// Bytes is its length. Live are the bytes of the pieces and nodes in it that are held, Bases
	// those of deleted nodes that others are stored as differences to. The rest is garbage, or of
	// records that are small: commits, tags, what sync knows, frames.
	Bytes, Live, Bases int64
}

// SpaceReport says where the bytes of a page are.
type SpaceReport struct {
	// Pieces of values, nodes that are stored whole or as differences, and the parts of nodes that
	// are stored as several pieces, as far as they are held; Bases are deleted nodes that stay
	// because others are differences to them.
	Pieces, Nodes, Deltas, NodeParts, Bases SpaceCount
	// Placed counts pieces of which only the place in the bucket is here.
	Placed int
	// Commits counts commits; Transient pieces of journals that are not committed, which count
	// among Pieces.
	Commits, Transient SpaceCount
	// SegmentBytes is the length of all segments, and Other what is in them beside the above:
	// garbage, other records, frames.
	SegmentBytes, Other int64
	// IndexBytes is the length of page.db, 0 for a page in memory.
	IndexBytes int64
	Segments   []SegmentSpace
}

// Space says where the bytes of the page are. It reads all rows of pieces and commits, not their
// content, and folds first. Errors match base.ErrCorrupt or base.ErrClosed, or are those of the
// disk or of ctx.
func (s *Store) Space(ctx context.Context) (SpaceReport, error) {
	var r SpaceReport
	of := map[uint32]*SegmentSpace{}
	for _, g := range s.log.Segments() {
		r.Segments = append(r.Segments, SegmentSpace{ID: g.ID, Bytes: int64(g.SyncedEnd)})
		r.SegmentBytes += int64(g.SyncedEnd)
	}
	for i := range r.Segments {
		of[r.Segments[i].ID] = &r.Segments[i]
	}
	none := func() error { return nil }
	err := s.eachRow(ctx, bucketObjects, func(_ index.Tx, k, v []byte) error {
		d, ok := digestOf(k)
		row, good := parseObjectRow(v)
		if !ok || !good {
			return badRow(bucketObjects, fmt.Sprintf("%x", k), "bad row")
		}
		n := int(row.place.Length)
		seg := of[row.place.Segment]
		if seg == nil {
			seg = &SegmentSpace{} // begun since
		}
		switch {
		case row.dead:
			r.Bases.add(n)
			seg.Bases += int64(n)
			return nil
		case !row.held && !d.Kind().IsNode():
			r.Placed++
			return nil
		case !row.held:
			return nil
		case !d.Kind().IsNode():
			r.Pieces.add(n)
		case row.kind == recPiece:
			r.NodeParts.add(n)
		case row.kind == recNode:
			r.Nodes.add(n)
		default:
			r.Deltas.add(n)
		}
		seg.Live += int64(n)
		return nil
	}, none)
	if err == nil {
		err = s.eachRow(ctx, bucketCommits, func(_ index.Tx, _, v []byte) error {
			r.Commits.add(1 + len(v))
			return nil
		}, none)
	}
	if err == nil {
		err = s.eachRow(ctx, bucketTransient, func(tx index.Tx, k, _ []byte) error {
			if len(k) != 8+numberSize {
				return badRow(bucketTransient, fmt.Sprintf("%x", k), "bad key")
			}
			d, ok := numberDigest(tx, readNumber(k[8:]))
			if !ok {
				return badRow(bucketTransient, fmt.Sprintf("%x", k), "a number that stands for nothing")
			}
			row, _, err := readObjectRow(tx, &d)
			if err == nil && row.held {
				r.Transient.add(int(row.place.Length))
			}
			return err
		}, none)
	}
	if err != nil {
		return SpaceReport{}, fmt.Errorf("look where the bytes are: %w", err)
	}
	r.Other = r.SegmentBytes - r.Pieces.Bytes - r.Nodes.Bytes - r.Deltas.Bytes - r.NodeParts.Bytes - r.Bases.Bytes - r.Commits.Bytes
	r.IndexBytes = s.Stats().IndexBytes
	return r, nil
}
