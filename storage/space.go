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

// SpaceReport is the use of a page's bytes.
type SpaceReport struct {
	// Pieces of values, and Nodes, whole or as differences, that are held; Bases are
	// deleted nodes that stay because others are differences to them.
	Pieces, Nodes, Bases, Commits SpaceCount
	// SegmentBytes is the length of all segments, and Other the rest of it beside the above:
	// garbage, other records, frames.
	SegmentBytes, Other int64
	// IndexBytes is the length of page.db, 0 for a page in memory.
	IndexBytes int64
}

// Space reports the use of the page's bytes. It reads all rows of pieces and commits, not their
// content, and folds first. Errors match base.ErrCorrupt or base.ErrClosed, or are those of the
// disk or of ctx.
func (s *Store) Space(ctx context.Context) (SpaceReport, error) {
	var r SpaceReport
	for _, g := range s.log.Segments() {
		r.SegmentBytes += int64(g.SyncedEnd)
	}
	err := s.eachRow(ctx, bucketObjects, func(_ index.Tx, k, v []byte) error {
		d, ok := digestOf(k)
		row, good := parseObjectRow(v)
		if !ok || !good {
			return badRow(bucketObjects, fmt.Sprintf("%x", k), "bad row")
		}
		switch n := int(row.place.Length); {
		case row.dead:
			r.Bases.add(n)
		case !row.held:
		case d.Kind().IsNode():
			r.Nodes.add(n)
		default:
			r.Pieces.add(n)
		}
		return nil
	}, nil)
	if err == nil {
		err = s.eachRow(ctx, bucketCommits, func(_ index.Tx, _, v []byte) error {
			r.Commits.add(1 + len(v))
			return nil
		}, nil)
	}
	if err != nil {
		return SpaceReport{}, fmt.Errorf("look where the bytes are: %w", err)
	}
	r.Other = r.SegmentBytes - r.Pieces.Bytes - r.Nodes.Bytes - r.Bases.Bytes - r.Commits.Bytes
	r.IndexBytes = s.Stats().IndexBytes
	return r, nil
}
