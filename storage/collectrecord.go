package storage

import (
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/segment"
)

// The kinds of log records of deleting. A batch that has one of them has only records of that kind,
// and is folded alone.
//
//	kind       payload
//	deleted    digests 33, 1 to maxRecordEntries: of pieces and nodes that are gone from here on,
//	           as far as nothing refers to them
//	pruned     count uvarint, so many commit ids 32 that are gone from here on, at most
//	           maxRecordEntries; then the ids of commits that stay and have one of them as parent,
//	           at most maxPrunedChildren
//	abandoned  journal uvarints, ascending, 1 to maxRecordEntries: they will never be committed,
//	           and their transient pieces are theirs no more
const (
	recDeleted   = 18
	recPruned    = 19
	recAbandoned = 20
)

// maxPrunedChildren bounds the commits that stay and are named by one record of pruned ones.
const maxPrunedChildren = 1 << 14

// standsAlone reports whether records of a kind share their batch with no other kind.
func standsAlone(kind byte) bool {
	return kind == recForgotten || kind >= recDeleted && kind <= recAbandoned
}

// checkAlone refuses a batch in which records stand together that must not.
func checkAlone(records []segment.Record) error {
	for i := range records {
		k := records[i].Kind
		if standsAlone(k) && (k == recForgotten && len(records) > 1 || records[0].Kind != k) || standsAlone(records[0].Kind) && records[0].Kind != k {
			return &base.CorruptError{Where: placeString(records[i].Place), Got: "a record that must stand alone in its batch"}
		}
	}
	return nil
}

// parseDeleting reads the payload of a record of deleting.
func parseDeleting(o op, p []byte, bad func(string) (op, error)) (op, error) {
	y := &syncOp{}
	o.sync = y
	switch o.kind {
	case recDeleted:
		if !y.parseDigests(p, true) {
			return bad("a bad list of deleted pieces")
		}
	case recPruned:
		if !y.parsePruned(p) {
			return bad("a bad list of pruned commits")
		}
	case recAbandoned:
		for last := uint64(0); len(p) > 0; {
			j, n := uvarint(p)
			if n <= 0 || j <= last || j > maxJournal || len(y.journals) == maxRecordEntries {
				return bad("a bad list of journals")
			}
			y.journals, last, p = append(y.journals, j), j, p[n:]
		}
		if len(y.journals) == 0 {
			return bad("an empty list of journals")
		}
	}
	return o, nil
}

func (y *syncOp) parsePruned(p []byte) bool {
	count, n := uvarint(p)
	if n <= 0 || count == 0 || count > maxRecordEntries {
		return false
	}
	p = p[n:]
	size := int(count) * commit.IDSize
	if len(p) < size || (len(p)-size)%commit.IDSize != 0 || (len(p)-size)/commit.IDSize > maxPrunedChildren {
		return false
	}
	y.ids, y.children = cutIDs(p[:size]), cutIDs(p[size:])
	return true
}

func cutIDs(p []byte) []commit.ID {
	ids := make([]commit.ID, len(p)/commit.IDSize)
	for i := range ids {
		copy(ids[i][:], p[i*commit.IDSize:])
	}
	return ids
}
