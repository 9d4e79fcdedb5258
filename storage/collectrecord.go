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
const (
	recDeleted = 18
	recPruned  = 19
)

// maxPrunedChildren bounds the remaining children named by one record of pruned commits.
const maxPrunedChildren = 1 << 14

// checkAlone refuses a batch with deletions and other records.
func checkAlone(records []segment.Record) error {
	for i := range records {
		if (records[i].Kind == recDeleted) != (records[0].Kind == recDeleted) {
			return &base.CorruptError{Where: placeString(records[i].Place), Got: "a record that must not share its batch with a deletion"}
		}
	}
	return nil
}

// deletes reports whether batches have deletions, and so nothing else.
func deletes(parts [][]op) bool {
	for _, ops := range parts {
		if len(ops) > 0 {
			return ops[0].kind == recDeleted
		}
	}
	return false
}
