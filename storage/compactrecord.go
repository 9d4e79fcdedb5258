package storage

import (
	"encoding/binary"

	"github.com/ledgerd/ledger/commit"
)

// recSummary is the kind of a record that compaction writes instead of others.
//
//	kind       payload
//	summary    journal uvarint: numbers of journals up to it were given; commit ids 32, at most
//	           maxRecordEntries: they have children that were pruned
const recSummary = 21

// parseSummary reads the payload of a summary.
func parseSummary(o op, p []byte, bad func(string) (op, error)) (op, error) {
	j, n := uvarint(p)
	if n <= 0 || j > maxJournal {
		return bad("a bad journal number")
	}
	p = p[n:]
	if len(p)%commit.IDSize != 0 || len(p)/commit.IDSize > maxRecordEntries {
		return bad("a bad list of commits")
	}
	o.journal, o.sync = j, &syncOp{ids: cutIDs(p)}
	return o, nil
}

func (o *op) appendSummary(b []byte) []byte {
	b = binary.AppendUvarint(b, o.journal)
	for i := range o.sync.ids {
		b = append(b, o.sync.ids[i][:]...)
	}
	return b
}
