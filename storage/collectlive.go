package storage

import (
	"encoding/hex"

	"github.com/ledgerd/ledger/storage/index"
)

// maxAncestry bounds the pieces that are looked at to tell whether one index piece is alive. One
// with more above it counts as alive.
const maxAncestry = 1024

// isLive reports whether an index piece that is not held may be reached from a node or a journal.
// What only garbage refers to is not: without that a lazy value which was read in part would keep,
// once it is garbage, all other garbage of the page that the bucket has. Every index piece above a
// live one, up to the first that is not held, has its references in the rows: so when none of those
// that are not held is live, no piece that is alive lacks a reference.
func (k *judge) isLive(number uint64) (bool, error) {
	seen := map[uint64]bool{number: true}
	for open := []uint64{number}; len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		if k.inJournal(n) {
			return true, nil
		}
		// A row that is missing must not make it look dead.
		if _, err := readBlock(k.tx, k.tx.Bucket(bucketRefs).Cursor(), blockOf(n)); err != nil {
			return false, err
		}
		above, ok, err := valueSources(k.tx, n)
		if err != nil || !ok {
			return true, err
		}
		for _, a := range above {
			if seen[a] {
				continue
			}
			if seen[a] = true; len(seen) > maxAncestry {
				return true, nil
			}
			open = append(open, a)
		}
	}
	return false, nil
}

// valueSources returns the index pieces that refer to a piece, and false when something else does,
// or too many.
func valueSources(tx index.Tx, dest uint64) (above []uint64, ok bool, err error) {
	prefix := appendNumber(nil, dest)
	for key, v := range rowsWith(tx.Bucket(bucketRefs), prefix) {
		bad := func() error { return badRow(bucketRefs, hex.EncodeToString(key), "bad row") }
		if len(key) != numberSize+1+numberSize || key[numberSize] == refCommit {
			return nil, false, nil
		}
		sources, good := parseSources(nil, readNumber(key[numberSize+1:]), v)
		if !good {
			return nil, false, bad()
		}
		if above = append(above, sources...); len(above) > maxAncestry {
			return nil, false, nil
		}
		for _, s := range sources {
			d, known := numberDigest(tx, s)
			if !known {
				return nil, false, bad()
			}
			if d.Kind().IsNode() {
				return nil, false, nil
			}
		}
	}
	return above, true, nil
}
