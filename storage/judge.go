package storage

import (
	"encoding/hex"
	"fmt"

	"github.com/ledgerd/ledger/storage/index"
)

// judge decides from the rows which pieces are garbage.
type judge struct {
	tx      index.Tx
	refs    index.Cursor
	numbers index.Cursor
	w       *wantedNow
	local   bool   // local pieces may be deleted: all references to them are known
	gone    bitset // sources whose references do not count
	garbage []candidate
}

func newJudge(tx index.Tx, w *wantedNow, local bool) *judge {
	return &judge{tx: tx, w: w, refs: tx.Bucket(bucketRefs).Cursor(), numbers: tx.Bucket(bucketNumbers).Cursor(), local: local}
}

func (c *Collector) judge(tx index.Tx, w *wantedNow) *judge {
	placed := hasKey(tx.Bucket(bucketMetadata), []byte(MetadataPlaced)) && w.oldest > c.journal
	return newJudge(tx, w, placed || !syncs(tx) && hasTrees(tx))
}

// syncs reports whether a page has to do with a bucket: it then has places, or metadata of sync
// beyond the types that any page may have.
func syncs(tx index.Tx) bool {
	if k, _ := tx.Bucket(bucketCloud).Cursor().First(); k != nil {
		return true
	}
	rows := tx.Bucket(bucketMetadata).Cursor()
	for typ, _ := rows.First(); typ != nil; typ, _ = rows.Next() {
		if t := string(typ); t != MetadataErasing && !staysForgotten(t) {
			return true
		}
	}
	return false
}

// walk examines some blocks, from the one at or after a number, and returns the next number. It
// moves from one block that has numbers to the next, because the end is read from a row and may be
// anywhere.
func (k *judge) walk(from, end uint64) (next uint64, err error) {
	for range walkBlocks {
		key, _ := k.numbers.Seek(appendNumber(nil, from))
		switch {
		case from >= end || key == nil:
			return max(from, end), nil
		case len(key) != numberSize:
			return from, badNumber(key)
		case readNumber(key) >= end:
			return end, nil
		}
		if err := k.block(blockOf(readNumber(key)), nil); err != nil {
			return from, err
		}
		from = (blockOf(readNumber(key)) + 1) * sumBlock
	}
	return from, nil
}

// walkBlocks is the number of blocks examined in one transaction.
const walkBlocks = 64

func badNumber(key []byte) error { return badRow(bucketNumbers, hex.EncodeToString(key), "bad key") }

// block examines the numbers of a block, or only the given ones, which ascend.
func (k *judge) block(n uint64, only []uint64) error {
	b, err := readBlock(k.tx, k.refs, n, k.gone)
	if err != nil {
		return err
	}
	first := n * sumBlock
	if only != nil {
		for _, number := range only {
			key := appendNumber(nil, number)
			if v := k.tx.Bucket(bucketNumbers).Get(key); v != nil {
				if err := k.number(&b, number, number-first, v); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for key, v := k.numbers.Seek(appendNumber(nil, first)); key != nil; key, v = k.numbers.Next() {
		if len(key) != numberSize {
			return badNumber(key)
		}
		number := readNumber(key)
		if number >= first+sumBlock {
			break
		}
		if err := k.number(&b, number, number-first, v); err != nil {
			return err
		}
	}
	return nil
}

// number examines one piece.
func (k *judge) number(b *block, number, at uint64, v []byte) error {
	d, ok := digestOf(v)
	if !ok {
		return badRow(bucketNumbers, fmt.Sprint(number), "no digest")
	}
	if b.referred[at] {
		return nil
	}
	row, ok, err := readObjectRow(k.tx, &d)
	if err != nil {
		return err
	}
	switch {
	case !ok || row.number != number: // an unfinished fold has given the number
		return nil
	case row.dead && b.base[at], row.held && inSpans(k.w.spans, row.place):
		return nil
	case !d.Kind().IsNode() && !k.local && hasKey(k.tx.Bucket(bucketLocal), appendNumber(nil, number)):
		return nil
	case !row.held && isPlaced(k.tx, &d, number):
		return nil
	}
	k.garbage = append(k.garbage, candidate{d, number, row})
	return nil
}

// hasTrees reports whether all commits have their trees.
func hasTrees(tx index.Tx) bool {
	k, _ := tx.Bucket(bucketTreeless).Cursor().First()
	return k == nil
}
