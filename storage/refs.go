package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// Rows of references have no checksum of their own. A missing row would have no other sign, and its
// destination would look like garbage. So a row of refsums holds, for each block of destinations,
// the sum modulo 2^64 of a hash of each reference. Every writer of references updates the sum in
// the same transaction. The collector trusts only blocks whose rows agree with their sum.

// sumBlock is the number of destinations that share a sum.
const sumBlock = 256

func blockOf(dest uint64) uint64 { return dest / sumBlock }

// mix is a bijection of 64-bit numbers that spreads every bit (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// refHash is the term of a reference from a piece in the sum of its block.
func refHash(k refKey, source uint64) uint64 {
	return mix(mix(k.dest<<8|uint64(k.typ)) + mix(source+0x9e3779b97f4a7c15))
}

// commitRefHash is the term of a reference from a commit.
func commitRefHash(dest uint64, id []byte) uint64 {
	h := mix(dest<<8 | refCommit)
	for ; len(id) >= 8; id = id[8:] {
		h = mix(h + binary.BigEndian.Uint64(id))
	}
	return h
}

// addSum adds to the sum of a block.
func addSum(tx index.Tx, block, sum uint64) error {
	if sum == 0 {
		return nil
	}
	b, k := tx.Bucket(bucketRefSums), appendNumber(nil, block)
	have, err := readSum(b, block)
	if err != nil {
		return err
	}
	if sum += have; sum == 0 {
		return b.Delete(k)
	}
	return b.Put(k, binary.BigEndian.AppendUint64(nil, sum))
}

func readSum(b index.Bucket, block uint64) (uint64, error) {
	k := appendNumber(nil, block)
	v := b.Get(k)
	switch {
	case v == nil:
		return 0, nil
	case len(v) != 8:
		return 0, badRow(bucketRefSums, hex.EncodeToString(k), "bad length")
	}
	return binary.BigEndian.Uint64(v), nil
}

// putCommitRef writes the reference from a commit to a node.
func putCommitRef(tx index.Tx, dest uint64, id commit.ID) error {
	b, k := tx.Bucket(bucketRefs), commitRefKey(dest, id)
	if b.Get(k) != nil {
		return nil
	}
	if err := b.Put(k, nil); err != nil {
		return err
	}
	return addSum(tx, blockOf(dest), commitRefHash(dest, id[:]))
}

// dropCommitRef removes the reference from a commit to a node.
func dropCommitRef(tx index.Tx, dest uint64, id commit.ID) error {
	b, k := tx.Bucket(bucketRefs), commitRefKey(dest, id)
	if b.Get(k) == nil {
		return nil
	}
	if err := b.Delete(k); err != nil {
		return err
	}
	return addSum(tx, blockOf(dest), -commitRefHash(dest, id[:]))
}

// dropBaseRef removes the reference from a difference to its base.
func dropBaseRef(tx index.Tx, dest, source uint64) error {
	sum, err := removeSources(tx.Bucket(bucketRefs), refKey{dest, refBase}, []uint64{source})
	if err != nil {
		return err
	}
	return addSum(tx, blockOf(dest), sum)
}

// refRow is a row of refcounts: references to one destination from a commit, or from pieces.
type refRow struct {
	refKey
	commit  []byte   // the id; nil unless typ is refCommit
	sources []uint64 // ascending
}

// parseRefRow reads a row of refcounts strictly. The id of a commit borrows from k.
func parseRefRow(k, v []byte) (r refRow, err error) {
	ok := len(k) > numberSize
	if ok {
		r.refKey = refKey{readNumber(k), k[numberSize]}
		switch source := k[numberSize+1:]; r.typ {
		case refCommit:
			r.commit, ok = source, len(source) == commit.IDSize && len(v) == 0
		case refEager, refLazy, refBase:
			if ok = len(source) == numberSize; ok {
				r.sources, ok = parseSources(nil, readNumber(source), v)
			}
		default:
			ok = false
		}
	}
	if !ok {
		err = badRow(bucketRefs, hex.EncodeToString(k), "bad row")
	}
	return r, err
}

// hash is the term of a row in the sum of its block.
func (r *refRow) hash() uint64 {
	if r.typ == refCommit {
		return commitRefHash(r.dest, r.commit)
	}
	return sumOf(r.refKey, r.sources)
}

// block is the content of the references of one block of destinations.
type block struct {
	referred [sumBlock]bool // the destination has a reference other than as a base
	base     [sumBlock]bool // a stored difference needs the destination
}

// readBlock reads the references of a block and compares them with their sum. Sources in gone do
// not count.
func readBlock(tx index.Tx, c index.Cursor, n uint64, gone bitset) (out block, err error) {
	first := n * sumBlock
	sum := uint64(0)
	for k, v := c.Seek(appendNumber(nil, first)); k != nil; k, v = c.Next() {
		if len(k) > numberSize && readNumber(k) >= first+sumBlock {
			break
		}
		r, err := parseRefRow(k, v)
		if err != nil {
			return out, err
		}
		sum += r.hash()
		if r.typ == refBase {
			out.base[r.dest-first] = true
		} else if r.typ == refCommit || slices.ContainsFunc(r.sources, func(s uint64) bool { return !gone.has(s) }) {
			out.referred[r.dest-first] = true
		}
	}
	want, err := readSum(tx.Bucket(bucketRefSums), n)
	if err == nil && sum != want {
		err = badRow(bucketRefs, fmt.Sprintf("%x-%x", first, first+sumBlock-1), "references that do not agree with their sum")
	}
	return out, err
}

// referred reports whether a destination has a reference other than as a base.
func referred(tx index.Tx, dest uint64) bool {
	c, number := tx.Bucket(bucketRefs).Cursor(), appendNumber(nil, dest)
	k, _ := c.Seek(number)
	if bytes.HasPrefix(k, number) && len(k) > numberSize && k[numberSize] == refBase {
		k, _ = c.Seek(refPrefix(dest, refBase+1))
	}
	return bytes.HasPrefix(k, number)
}

// neededAsBase reports whether a stored difference needs a destination.
func neededAsBase(tx index.Tx, dest uint64) bool {
	return hasPrefix(tx.Bucket(bucketRefs).Cursor(), refPrefix(dest, refBase))
}

// addSources adds sources, which ascend, to the reference rows of one destination. It returns the
// change of the sum.
func addSources(b index.Bucket, k refKey, sources []uint64) (sum uint64, err error) {
	return changeSources(b, k, sources, func(row, more []uint64) []uint64 {
		all := slices.Concat(row, more)
		slices.Sort(all)
		return slices.Compact(all)
	})
}

// removeSources removes sources, which ascend, from the rows. It returns the change of the sum.
func removeSources(b index.Bucket, k refKey, sources []uint64) (sum uint64, err error) {
	return changeSources(b, k, sources, without)
}

// changeSources calls change for each row of one destination that concerns some of the sources,
// with the row's sources and those, and replaces the row by the result.
func changeSources(b index.Bucket, k refKey, sources []uint64, change func(row, some []uint64) []uint64) (sum uint64, err error) {
	prefix := refPrefix(k.dest, k.typ)
	for len(sources) > 0 {
		chunk, next, err := sourceChunk(b, prefix, sources[0])
		if err != nil {
			return 0, err
		}
		n := len(sources)
		if next != 0 {
			n, _ = slices.BinarySearch(sources, next)
		}
		row := change(chunk, sources[:n])
		sources = sources[n:]
		if len(row) == len(chunk) {
			continue
		}
		sum += sumOf(k, row) - sumOf(k, chunk)
		if len(chunk) > 0 && (len(row) == 0 || row[0] != chunk[0]) {
			if err := b.Delete(appendNumber(bytes.Clone(prefix), chunk[0])); err != nil {
				return 0, err
			}
		}
		if err := putSources(b, prefix, row); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// without returns the elements of list that are not in gone; both ascend.
func without(list, gone []uint64) (out []uint64) {
	for _, x := range list {
		if _, ok := slices.BinarySearch(gone, x); !ok {
			out = append(out, x)
		}
	}
	return out
}

type refKey struct {
	dest uint64
	typ  byte
}

// plannedRef is a reference from a source to a destination. A plan has many: a dozen for each node.
type plannedRef struct {
	packed uint64 // the key: destination, which has numberSize bytes, and type
	source uint64
}

func newRef(k refKey, source uint64) plannedRef { return plannedRef{k.dest<<8 | uint64(k.typ), source} }

func (r plannedRef) dest() uint64 { return r.packed >> 8 }

func (r plannedRef) key() refKey { return refKey{r.dest(), byte(r.packed)} }

func compareRefs(a, b plannedRef) int {
	return cmp.Or(cmp.Compare(a.packed, b.packed), cmp.Compare(a.source, b.source))
}

// eachKey calls fn for each destination and type in refs, which are sorted and of one block, with
// the ascending sources. It adds the results to the sum of the block.
func eachKey(tx index.Tx, refs []plannedRef, fn func(index.Bucket, refKey, []uint64) (uint64, error)) error {
	block, sum := blockOf(refs[0].dest()), uint64(0)
	for len(refs) > 0 {
		n := 1
		for n < len(refs) && refs[n].packed == refs[0].packed {
			n++
		}
		sources := make([]uint64, n)
		for i, r := range refs[:n] {
			sources[i] = r.source
		}
		more, err := fn(tx.Bucket(bucketRefs), refs[0].key(), slices.Compact(sources))
		if err != nil {
			return err
		}
		sum, refs = sum+more, refs[n:]
	}
	return addSum(tx, block, sum)
}

func sumOf(k refKey, sources []uint64) (sum uint64) {
	for _, s := range sources {
		sum += refHash(k, s)
	}
	return sum
}

// putSources writes sources in rows of at most maxSources.
func putSources(b index.Bucket, prefix []byte, sources []uint64) error {
	for len(sources) > 0 {
		part := sources[:min(maxSources, len(sources))]
		if err := b.Put(appendNumber(bytes.Clone(prefix), part[0]), appendSources(nil, part)); err != nil {
			return err
		}
		sources = sources[len(part):]
	}
	return nil
}

// sourceChunk returns the sources of the row for source, the last row that does not begin after
// source; nil when there is none. next is where the following row begins (0: there is none).
func sourceChunk(b index.Bucket, prefix []byte, source uint64) (chunk []uint64, next uint64, err error) {
	first, row := uint64(0), []byte(nil)
	for k, v := range rowsWith(b, prefix) {
		if len(k) != len(prefix)+numberSize {
			return nil, 0, badRow(bucketRefs, hex.EncodeToString(k), "bad key")
		}
		n := readNumber(k[len(prefix):])
		if n > source {
			next = n
			break
		}
		first, row = n, v
	}
	if row == nil {
		return nil, next, nil
	}
	chunk, ok := parseSources(nil, first, row)
	if !ok {
		return nil, 0, badRow(bucketRefs, hex.EncodeToString(appendNumber(bytes.Clone(prefix), first)), "bad sources")
	}
	return chunk, next, nil
}

func commitSources(tx index.Tx, dest uint64) [][]byte {
	prefix := refPrefix(dest, refCommit)
	var ids [][]byte
	for k := range rowsWith(tx.Bucket(bucketRefs), prefix) {
		ids = append(ids, k[len(prefix):])
	}
	return ids
}

// objectSources returns the digests of the pieces that refer to a destination, sorted.
func objectSources(tx index.Tx, dest uint64, typ byte) ([]object.Digest, error) {
	var out []object.Digest
	for k, v := range rowsWith(tx.Bucket(bucketRefs), refPrefix(dest, typ)) {
		r, err := parseRefRow(k, v)
		if err != nil {
			return nil, err
		}
		for _, n := range r.sources {
			d, ok := numberDigest(tx, n)
			if !ok {
				return nil, badRow(bucketRefs, hex.EncodeToString(k), "a source that no number stands for")
			}
			out = append(out, d)
		}
	}
	slices.SortFunc(out, object.Digest.Compare)
	return out, nil
}

// refPrefix is the start of the key of the reference rows of one destination and type.
func refPrefix(dest uint64, typ byte) []byte { return append(appendNumber(nil, dest), typ) }

func commitRefKey(dest uint64, id commit.ID) []byte {
	return append(refPrefix(dest, refCommit), id[:]...)
}

// appendSources encodes the sources after the first of a sorted list.
func appendSources(b []byte, sources []uint64) []byte {
	for i := 1; i < len(sources); i++ {
		b = binary.AppendUvarint(b, sources[i]-sources[i-1])
	}
	return b
}

// parseSources appends the sources of a row to dst.
func parseSources(dst []uint64, first uint64, v []byte) ([]uint64, bool) {
	dst = append(dst, first)
	for n := 1; len(v) > 0; n++ {
		d, k := uvarint(v)
		if k <= 0 || d == 0 || n >= maxSources || first > maxNumber || d > maxNumber-first {
			return dst, false
		}
		first += d
		dst = append(dst, first)
		v = v[k:]
	}
	return dst, true
}
