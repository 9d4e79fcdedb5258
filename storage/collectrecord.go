package storage

import (
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/segment"
)

// The kinds of log records of deletion. A batch with a record of the first kind has only such
// records, and is folded alone.
//
//	kind       payload
//	deleted    digests 33, 1 to maxRecordEntries: of pieces and nodes that are gone from here on,
//	           unless something refers to them
//	pruned     count uvarint, so many commit ids 32 that are gone from here on, at most
//	           maxRecordEntries; then the ids of commits that stay and have one of them as parent,
//	           at most maxPrunedChildren
//	abandoned  journal uvarints, ascending, 1 to maxRecordEntries: they will never be committed,
//	           and lose their transient pieces
const (
	recDeleted   = 18
	recPruned    = 19
	recAbandoned = 20
)

// maxPrunedChildren bounds the remaining children named by one record of pruned commits.
const maxPrunedChildren = 1 << 14

// standsAlone reports whether records of a kind share their batch with no other kind.
func standsAlone(kind byte) bool {
	return kind == recForgotten || kind == recDeleted
}

// checkAlone refuses a batch with records that must not share a batch.
func checkAlone(records []segment.Record) error {
	for i := range records {
		k := records[i].Kind
		if standsAlone(k) && (k == recForgotten && len(records) > 1 || records[0].Kind != k) || standsAlone(records[0].Kind) && records[0].Kind != k {
			return &base.CorruptError{Where: placeString(records[i].Place), Got: "a record that must stand alone in its batch"}
		}
	}
	return nil
}
