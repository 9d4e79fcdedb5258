package storage

import (
	"bytes"
	"encoding/hex"
	"slices"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// compareRows compares page.db with an index that was folded from scratch. Numbers may differ
// between the two after an interrupted fold, so rows are compared by the digests of the numbers.
func (c *checker) compareRows() error {
	return c.s.viewOnce(func(have index.Tx) error {
		return c.fresh.View(func(want index.Tx) error {
			for _, family := range []string{
				bucketCommits, bucketHeads, bucketMerges, bucketConflicts, bucketTreeless, bucketShallow, bucketTags, bucketUnsynced, bucketNewTags, bucketMetadata,
				bucketLocal, bucketCloud,
			} {
				c.compareFamily(family, have, want)
			}
			c.checkState(have)
			c.compareObjects(have, want)
			c.checkNumbers(have)
			c.checkSums(have)
			c.checkDestinations(have)
			return nil
		})
	})
}

// problemRow records that a row differs from the log.
func (c *checker) problemRow(family, key, what string) { c.record(badRow(family, key, what)) }

// compareFamily compares the rows of a family. Those whose keys are numbers of pieces are compared
// by the digests. Where compaction has retired segments, the log may give rows for pieces that are
// not held.
func (c *checker) compareFamily(family string, have, want index.Tx) {
	for k, v := range rowsOf(have, family) {
		c.report.Rows++
		what, key, name := "", k, hex.EncodeToString(k)
		if isNumbered(family) {
			var ok bool
			if key, name, ok = translate(k, have, want); !ok {
				what = "a number that stands for nothing"
			}
		}
		switch w := want.Bucket(family).Get(key); {
		case what != "":
		case w == nil:
			what = "a row that the log does not give"
		case !bytes.Equal(v, w):
			what = "a value that is not what the log gives"
		}
		if what != "" {
			c.problemRow(family, name, what)
		}
	}
	for k := range rowsOf(want, family) {
		key, name := k, hex.EncodeToString(k)
		if isNumbered(family) {
			key, name, _ = translate(k, want, have)
			if d, ok := numberDigest(want, readNumber(k)); ok && !holds(have, &d) {
				continue
			}
		}
		if have.Bucket(family).Get(key) == nil {
			c.report.Rows++
			c.problemRow(family, name, "the row is missing")
		}
	}
}

// isNumbered reports whether the keys of a family are numbers of pieces.
func isNumbered(family string) bool {
	return family == bucketLocal || family == bucketCloud
}

// translate returns the key in another index of a row whose key is the number of a piece, and the
// name of the piece. It returns false for a number that stands for nothing.
func translate(k []byte, from, to index.Tx) (key []byte, name string, ok bool) {
	if len(k) != numberSize {
		return nil, hex.EncodeToString(k), false
	}
	d, ok := numberDigest(from, readNumber(k))
	if !ok {
		return nil, hex.EncodeToString(k), false
	}
	row, _, err := readObjectRow(to, &d)
	return appendNumber(nil, row.number), d.String(), err == nil
}

// compareObjects compares the rows of objects and, for each, the references to it.
func (c *checker) compareObjects(have, want index.Tx) {
	hb, wb := have.Bucket(bucketObjects), want.Bucket(bucketObjects)
	for k := range rowsWith(hb, nil) {
		if wb.Get(k) == nil && !c.saysNothing(have, k) {
			c.problemRow(bucketObjects, hex.EncodeToString(k), "a row that the log does not give")
		}
	}
	for k, v := range rowsWith(wb, nil) {
		c.report.Rows++
		c.compareObject(k, v, have, want)
	}
}

// saysNothing reports whether a row only gives a number to a piece that is neither held nor
// referred to. Compaction removes records that mentioned such pieces.
func (c *checker) saysNothing(tx index.Tx, k []byte) bool {
	d, ok := digestOf(k)
	if !ok {
		return false
	}
	row, _, err := readObjectRow(tx, &d)
	return err == nil && !row.held && !row.dead && !hasPrefix(tx.Bucket(bucketRefs).Cursor(), appendNumber(nil, row.number))
}

func (c *checker) compareObject(k, wantRow []byte, have, want index.Tx) {
	d, ok := digestOf(k)
	if !ok {
		c.problemRow(bucketObjects, hex.EncodeToString(k), "no digest")
		return
	}
	haveRow := have.Bucket(bucketObjects).Get(k)
	if haveRow == nil {
		c.compareGarbage(d, have, want)
		return
	}
	h, hok := parseObjectRow(haveRow)
	w, wok := parseObjectRow(wantRow)
	if !hok || !wok {
		c.problemRow(bucketObjects, d.String(), "bad value")
		return
	}
	hd, ok := numberDigest(have, h.number)
	if !ok || hd != d {
		c.problemRow(bucketNumbers, d.String(), "a number that stands for another piece")
		return
	}
	c.comparePlace(d, &h, &w, have, want)
}

// compareGarbage compares a piece that page.db does not hold with the log: records of garbage stay
// until their segment is retired, although the record that made the piece garbage is gone.
func (c *checker) compareGarbage(d object.Digest, have, want index.Tx) {
	needed, err := needed(d, have, want, map[object.Digest]bool{})
	switch {
	case err != nil:
		c.record(err)
	case needed:
		c.problemRow(bucketObjects, d.String(), "the row is missing")
	}
}

// needed reports whether a commit with a tree needs a piece, by the references of the log from what
// page.db holds. A treeless commit may lack any part of its tree, but not the explanation of its
// merge.
func needed(d object.Digest, have, want index.Tx, seen map[object.Digest]bool) (bool, error) {
	seen[d] = true
	w, _, err := readObjectRow(want, &d)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(commitSources(want, w.number), func(id []byte) bool {
		explanation, err := parseConflictRow(id, have.Bucket(bucketConflicts).Get(id))
		return !hasKey(have.Bucket(bucketTreeless), id) || err == nil && explanation == d
	}) {
		return true, nil
	}
	for _, typ := range []byte{refEager, refLazy} {
		sources, err := objectSources(want, w.number, typ)
		if err != nil {
			return false, err
		}
		for _, s := range sources {
			if seen[s] || !holds(have, &s) {
				continue
			}
			if yes, err := needed(s, have, want, seen); yes || err != nil {
				return yes, err
			}
		}
	}
	return false, nil
}

func holds(tx index.Tx, d *object.Digest) bool {
	row, _, err := readObjectRow(tx, d)
	return err == nil && row.held
}

// comparePlace compares a piece that has a row. Of several records of a piece any may count, and a
// dropped or deleted piece may be there again: compaction may have removed the others.
func (c *checker) comparePlace(d object.Digest, h, w *objectRow, have, want index.Tx) {
	stored := h.held || h.dead
	switch {
	case h.held && !w.held, h.dead && !w.held && !w.dead:
		c.problemRow(bucketObjects, d.String(), "a piece that the log does not give")
		return
	case !h.held && w.held && d.Kind().IsNode() && !h.dead:
		c.compareGarbage(d, have, want)
	case stored && (h.place != w.place || h.kind != w.kind):
		var err error
		if h.kind == recDelta {
			_, _, err = c.s.loadLocated(c.ctx, d, rowLocator{have}, 1, nil)
		} else {
			_, err = c.s.stored(&d, &located{kind: h.kind, place: h.place})
		}
		if err != nil {
			c.problemRow(bucketObjects, d.String(), "a place that is not what the log gives")
			return
		}
	}
	if stored && h.kind == recDelta {
		base, ok := numberDigest(have, h.base)
		if !ok {
			c.problemRow(bucketObjects, d.String(), "a base that is not what the log gives")
			return
		}
		sources, err := objectSources(have, h.base, refBase)
		if err != nil {
			c.record(err)
			return
		}
		to, _, err := readObjectRow(have, &base)
		if _, found := slices.BinarySearchFunc(sources, d, object.Digest.Compare); err != nil || !found || !to.held && !to.dead {
			c.problemRow(bucketRefs+"/"+base.String()+"/object", "", "references that are not what the objects give")
			return
		}
	}
	c.compareRefs(d, have, want, h.number, w.number)
}

// rowLocator finds pieces by the rows of a transaction.
type rowLocator struct{ tx index.Tx }

func (r rowLocator) locate(d *object.Digest, dead bool) (located, bool, error) {
	return locateIn(r.tx, d, dead)
}

// checkState finds unexpected rows beside the state.
func (c *checker) checkState(have index.Tx) {
	for k := range rowsOf(have, bucketState) {
		if c.report.Rows++; !bytes.Equal(k, stateKey) {
			c.problemRow(bucketState, string(k), "a row that nothing has put there")
		}
	}
}

// checkNumbers finds numbers that were never given. compareObjects has checked the numbers of
// pieces.
func (c *checker) checkNumbers(have index.Tx) {
	st, err := parseState(have.Bucket(bucketState).Get(stateKey))
	if err != nil {
		c.record(err)
		return
	}
	for k, v := range rowsOf(have, bucketNumbers) {
		c.report.Rows++
		what := ""
		switch _, ok := digestOf(v); {
		case len(k) != numberSize || !ok:
			what = "no number of a piece"
		case readNumber(k) >= st.next:
			what = "a number that was not given"
		}
		if what != "" {
			c.problemRow(bucketNumbers, hex.EncodeToString(k), what)
		}
	}
}

// compareRefs compares the references to one destination.
func (c *checker) compareRefs(d object.Digest, have, want index.Tx, hn, wn uint64) {
	family := bucketRefs + "/" + d.String() + "/"
	hids, wids := commitSources(have, hn), commitSources(want, wn)
	if !slices.EqualFunc(hids, wids, bytes.Equal) {
		c.problemRow(family+"commit", "", "references that are not what the commits give")
	}
	for _, typ := range []byte{refEager, refLazy} { // comparePlace sees to bases
		hs, err := objectSources(have, hn, typ)
		if err != nil {
			c.record(err)
			return
		}
		ws, err := objectSources(want, wn, typ)
		if err != nil {
			c.record(err)
			return
		}
		ws = slices.DeleteFunc(ws, func(s object.Digest) bool {
			_, given := slices.BinarySearchFunc(hs, s, object.Digest.Compare)
			return !given && !holds(have, &s)
		})
		if !slices.Equal(hs, ws) {
			c.problemRow(family+"object", "", "references that are not what the objects give")
		}
	}
}

// checkSums compares the references of each block with their sum. It goes from one block that has
// rows to the next: a damaged row may name any block.
func (c *checker) checkSums(have index.Tx) {
	cur, sums := have.Bucket(bucketRefs).Cursor(), have.Bucket(bucketRefSums).Cursor()
	const end = (1 << (8 * numberSize)) / sumBlock // of blocks that rows can name
	if k, _ := cur.First(); k != nil && len(k) < numberSize {
		c.problemRow(bucketRefs, hex.EncodeToString(k), "bad key")
		return
	}
	for k, _ := sums.First(); k != nil; k, _ = sums.Next() {
		if len(k) != numberSize || readNumber(k) >= end {
			c.problemRow(bucketRefSums, hex.EncodeToString(k), "bad key")
			return
		}
	}
	for n := uint64(0); n < end; n++ {
		next := uint64(end)
		if k, _ := cur.Seek(appendNumber(nil, n*sumBlock)); len(k) >= numberSize {
			next = blockOf(readNumber(k))
		} else if k != nil {
			c.problemRow(bucketRefs, hex.EncodeToString(k), "bad key")
			return
		}
		if k, _ := sums.Seek(appendNumber(nil, n)); k != nil {
			next = min(next, readNumber(k))
		}
		if n = next; n == end {
			return
		}
		if _, err := readBlock(have, cur, n, nil); err != nil {
			c.record(err)
		}
	}
}

// checkDestinations finds references to destinations without a row of objects. compareRefs has
// checked the others.
func (c *checker) checkDestinations(have index.Tx) {
	var last []byte // the beginning of the key before: the destination and the type
	for k := range rowsOf(have, bucketRefs) {
		if len(k) <= numberSize {
			c.problemRow(bucketRefs, hex.EncodeToString(k), "bad key")
			return
		}
		if k[numberSize] == refCommit || !bytes.Equal(last, k[:numberSize+1]) {
			c.report.Rows++
		}
		seen := bytes.HasPrefix(last, k[:numberSize])
		if last = append(last[:0], k[:numberSize+1]...); seen {
			continue
		}
		d, ok := numberDigest(have, readNumber(k))
		row, _, err := readObjectRow(have, &d)
		if !ok || err != nil || row.number != readNumber(k) {
			c.problemRow(bucketRefs, hex.EncodeToString(k), "references of other destinations than the log gives")
		}
	}
}
