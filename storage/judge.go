package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// maxAncestry bounds the pieces read to decide whether one index piece is live. A piece with more
// ancestors counts as live.
const maxAncestry = 1024

// isLive reports whether a node or a journal may reach an index piece that is not held. A piece
// that only garbage refers to is not live. Otherwise a lazy value that was read in part would, once
// it is garbage, keep all other garbage that the bucket has. Every index piece above a live one, up
// to the first that is not held, has its references in the rows. So when no unheld index piece is
// live, no live piece lacks a reference.
func (k *judge) isLive(number uint64) (bool, error) {
	seen := map[uint64]bool{number: true}
	for open := []uint64{number}; len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		if k.inJournal(n) {
			return true, nil
		}
		// A missing row must not make the piece look dead.
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

// judge decides from the rows which pieces are garbage.
type judge struct {
	c       *Collector
	tx      index.Tx
	refs    index.Cursor
	numbers index.Cursor
	w       *wantedNow
	local   bool // pieces of commits may be deleted: this collector has seen no unknown references
	placed  bool // and so may those that the bucket has
	drop    bool // chunks that the bucket has may be dropped when they must not be deleted
	idle    []object.Digest
	garbage []candidate
	strays  []uint64
	blind   bool
}

func (c *Collector) judge(tx index.Tx, w *wantedNow) *judge {
	k := &judge{c: c, tx: tx, w: w, refs: tx.Bucket(bucketRefs).Cursor(), numbers: tx.Bucket(bucketNumbers).Cursor()}
	s := c.s
	s.mu.Lock()
	calm := c.lastQuiet.known && s.syncs == c.lastQuiet.syncs
	s.mu.Unlock()
	if !calm {
		return k
	}
	noOlder := w.oldest > c.lastQuiet.journal
	if !hasTrees(tx) || c.lastBlind || c.blind {
		k.drop = noOlder
		k.local = noOlder && hasKey(tx.Bucket(bucketMetadata), []byte(MetadataPlaced))
		return k
	}
	k.placed = noOlder
	k.local = k.placed || !syncs(tx) // without sync, journals state what they rely on
	return k
}

// syncs reports whether a page has to do with a bucket: it then has metadata of sync beyond the
// types that any page may have.
func syncs(tx index.Tx) bool {
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
	b, err := readBlock(k.tx, k.refs, n)
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
	if b.referred[at] && (d.Kind() != object.IndexBit || k.blind) {
		return nil
	}
	row, ok, err := readObjectRow(k.tx, &d)
	if err != nil {
		return err
	}
	switch {
	case b.referred[at]:
		if !ok || !row.held {
			k.blind, err = k.isLive(number)
		}
		return err
	case !ok || row.number != number:
		if !b.base[at] {
			k.strays = append(k.strays, number)
		}
		return nil
	case row.dead && b.base[at], row.held && inSpans(k.w.spans, row.place):
		return nil
	case !d.Kind().IsNode() && !k.local && hasKey(k.tx.Bucket(bucketLocal), appendNumber(nil, number)):
		return nil
	case !d.Kind().IsNode() && !k.placed && hasKey(k.tx.Bucket(bucketCloud), appendNumber(nil, number)):
		if k.drop && row.held && d.Kind() == object.Chunk && !k.inJournal(number) {
			k.idle = append(k.idle, d)
		}
		return nil
	}
	if k.inJournal(number) {
		return nil
	}
	k.garbage = append(k.garbage, candidate{d, number, row})
	return nil
}

// inJournal reports whether a piece belongs to an uncommitted journal.
func (k *judge) inJournal(number uint64) bool {
	for _, j := range k.w.journals {
		if hasKey(k.tx.Bucket(bucketTransient), transientKey(j, number)) {
			return true
		}
	}
	return false
}

// mendTrees corrects treeless commits that have their trees: each would keep all garbage that the
// bucket has, or may have, for good. The caller does not hold the fold turn, and has folded.
func (c *Collector) mendTrees(ctx context.Context) error {
	_, err := c.s.mendTrees(ctx, false)
	if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
		return err
	}
	return c.s.Fold(ctx)
}

// hasTrees reports whether all commits have their trees.
func hasTrees(tx index.Tx) bool {
	k, _ := tx.Bucket(bucketTreeless).Cursor().First()
	return k == nil
}
