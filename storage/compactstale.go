package storage

import (
	"context"
	"encoding/binary"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// staleNames are pieces, nodes and commits that are gone, or nodes that are there as a base only,
// and of which there is a record in the log none the less: in segments that are worth keeping as
// they are. Only for these must the records stay that took them away. A name that looks like
// another one stays with it.
//
// Of a base its burial must stay even if it goes before that is judged: bases go in any order, and
// the deletion of one that was held until then would take nothing while another refers to it.
type staleNames struct {
	names map[uint64]struct{}
	upTo  uint64 // what was taken away by batches up to this number
}

const (
	// maxStale bounds the names that are kept in memory. When there are more, all deletions stay.
	maxStale = 1 << 18
	// minDeletions is how many bytes of deletions must stay for what they are about to be looked
	// for, which reads the whole log.
	minDeletions = 256 << 10
)

func shortName(b []byte) uint64 { return binary.BigEndian.Uint64(b[len(b)-8:]) }

// takesNothing reports whether a record that takes a name away, with a number, is about nothing
// that the log has.
func (n *staleNames) takesNothing(name []byte, number uint64) bool {
	if n == nil || number > n.upTo {
		return false
	}
	_, stale := n.names[shortName(name)]
	return !stale
}

// findStale reads the log and finds what is stale in it. It returns nil when that is too much. What
// goes or comes meanwhile, behind upTo, has later records.
func (s *Store) findStale(ctx context.Context, upTo uint64) (*staleNames, error) {
	out := &staleNames{names: map[uint64]struct{}{}, upTo: upTo}
	for _, g := range s.log.Segments() {
		if g.SyncedEnd <= emptyBytes {
			continue
		}
		err := s.log.Scan(ctx, g.ID, func(info segment.BatchInfo, recs []segment.Record) error {
			if info.Number > upTo || len(out.names) > maxStale {
				return nil
			}
			ops, err := parseRecords(recs, info)
			if err != nil {
				return err
			}
			return s.viewOnce(func(tx index.Tx) error {
				for i := range ops {
					out.add(tx, &ops[i])
				}
				return nil
			})
		})
		if err != nil || len(out.names) > maxStale {
			return nil, err
		}
	}
	return out, nil
}

func (n *staleNames) add(tx index.Tx, o *op) {
	piece := func(d *object.Digest) {
		if row, ok := parseObjectRow(tx.Bucket(bucketObjects).Get(d[:])); !ok || row.dead {
			n.names[shortName(d[:])] = struct{}{}
		}
	}
	switch o.kind {
	case recPiece, recUse, recNode, recDelta, recSplitNode:
		piece(&o.digest)
	case recPlaces:
		for i := range o.sync.places {
			piece(&o.sync.places[i].Digest)
		}
	case recCommit:
		if tx.Bucket(bucketCommits).Get(o.commit.ID[:]) == nil {
			n.names[shortName(o.commit.ID[:])] = struct{}{}
		}
	}
}
