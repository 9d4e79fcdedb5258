package storage

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/storage/index"
)

// garbageCount counts what is garbage.
type garbageCount struct {
	s    *Store
	sum  SpaceCount
	gone bitset // numbers of garbage
	end  uint64 // of the numbers that were given
}

// Garbage counts the held pieces and nodes that no commit reaches and no open journal has stored,
// and their size in the segments: a Collector will delete them. It folds first, and reads all rows
// of references, in transactions of some thousands, once for each level of garbage. It may count
// pieces that are deleted meanwhile. Errors match base.ErrCorrupt or base.ErrClosed, or are those
// of the disk or of ctx.
func (s *Store) Garbage(ctx context.Context) (SpaceCount, error) {
	g := &garbageCount{s: s, end: 1}
	err := s.readyRows(ctx)
	if err == nil {
		err = g.pass(ctx, g.walk)
	}
	for before := -1; err == nil && before < g.sum.Count; {
		before = g.sum.Count
		err = g.pass(ctx, g.follow)
	}
	if err != nil {
		return SpaceCount{}, fmt.Errorf("count garbage: %w", err)
	}
	return g.sum, nil
}

// pass calls fn with all numbers, some at a time.
func (g *garbageCount) pass(ctx context.Context, fn func(tx index.Tx, from uint64) (next uint64, err error)) error {
	for from := uint64(0); from < g.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := g.s.viewOnce(func(tx index.Tx) (err error) {
			from, err = fn(tx, from)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walk examines some numbers for pieces without references. It returns the next number.
func (g *garbageCount) walk(tx index.Tx, from uint64) (next uint64, err error) {
	w := g.s.wantedNow()
	st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
	if err != nil {
		return 0, err
	}
	g.end = st.next
	k := newJudge(tx, &w, true)
	if next, err = k.walk(from, g.end); err != nil {
		return 0, err
	}
	for i := range k.garbage {
		g.add(&k.garbage[i].row)
	}
	return next, nil
}

func (g *garbageCount) add(row *objectRow) {
	if row.held && !g.gone.set(row.number) {
		g.sum.add(int(row.place.Length))
	}
}

// follow examines some numbers for pieces to which only garbage refers. It returns the next number.
func (g *garbageCount) follow(tx index.Tx, from uint64) (next uint64, err error) {
	c := tx.Bucket(bucketRefs).Cursor()
	k, v := c.Seek(appendNumber(nil, from))
	for n := 0; k != nil; n++ {
		if len(k) < numberSize {
			return 0, badRow(bucketRefs, hex.EncodeToString(k), "bad key")
		}
		dest, referred, alive := readNumber(k), false, false
		if n == walkBlocks*sumBlock || dest >= g.end {
			return dest, nil
		}
		for ; len(k) >= numberSize && readNumber(k) == dest; k, v = c.Next() {
			r, err := parseRefRow(k, v)
			if err != nil {
				return 0, err
			}
			if r.typ == refBase {
				continue
			}
			referred = true
			alive = alive || r.typ == refCommit || slices.ContainsFunc(r.sources, func(s uint64) bool { return !g.gone.has(s) })
		}
		if d, ok := numberDigest(tx, dest); ok && referred && !alive && !g.gone.has(dest) {
			row, ok, err := readObjectRow(tx, &d)
			if err != nil {
				return 0, err
			}
			if ok && row.number == dest {
				g.add(&row)
			}
		}
	}
	return g.end, nil
}
