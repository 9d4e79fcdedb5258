package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage/index"
)

// The rows of references have no checksum of their own, and a row that is missing shows by nothing:
// its destination would look like garbage. So the references of each block of destinations are
// summed up in a row of refsums: the sum, modulo 2^64, of a hash of each. Who writes references
// writes their sum in the same transaction. The collector believes only blocks whose rows agree
// with their sum.

// sumBlock is how many destinations share a sum.
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

// refHash is what a reference from a piece adds to the sum of its block.
func refHash(k refKey, source uint64) uint64 {
	return mix(mix(k.dest<<8|uint64(k.typ)) + mix(source+0x9e3779b97f4a7c15))
}

// commitRefHash is what a reference from a commit adds.
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

// dropCommitRef removes it.
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
	return addSum(tx, blockOf(dest), -sum)
}

// rowHash is what a row of refcounts adds to the sum of its block. Its key begins with a number and
// a type.
func rowHash(k, v []byte) (sum uint64, err error) {
	bad := func() (uint64, error) { return 0, badRow(bucketRefs, hex.EncodeToString(k), "bad row") }
	if len(k) <= numberSize {
		return bad()
	}
	key, source := refKey{readNumber(k), k[numberSize]}, k[numberSize+1:]
	switch key.typ {
	case refCommit:
		if len(source) != commit.IDSize || len(v) != 0 {
			return bad()
		}
		return commitRefHash(key.dest, source), nil
	case refEager, refLazy, refBase:
		if len(source) != numberSize {
			return bad()
		}
		sources, ok := parseSources(nil, readNumber(source), v)
		if !ok {
			return bad()
		}
		for _, s := range sources {
			sum += refHash(key, s)
		}
		return sum, nil
	}
	return bad()
}

// block is what the references of one block of destinations say.
type block struct {
	referred [sumBlock]bool // something refers to the destination, other than as to a base
	base     [sumBlock]bool // a stored difference needs the destination
}

// readBlock reads the references of a block and compares them with their sum.
func readBlock(tx index.Tx, c index.Cursor, n uint64) (out block, err error) {
	first := n * sumBlock
	sum := uint64(0)
	for k, v := c.Seek(appendNumber(nil, first)); k != nil; k, v = c.Next() {
		if len(k) > numberSize && readNumber(k) >= first+sumBlock {
			break
		}
		h, err := rowHash(k, v)
		if err != nil {
			return out, err
		}
		sum += h
		if at := readNumber(k) - first; k[numberSize] == refBase {
			out.base[at] = true
		} else {
			out.referred[at] = true
		}
	}
	want, err := readSum(tx.Bucket(bucketRefSums), n)
	if err == nil && sum != want {
		err = badRow(bucketRefs, fmt.Sprintf("%x-%x", first, first+sumBlock-1), "references that do not agree with their sum")
	}
	return out, err
}

// referred reports whether something refers to a destination, other than as to a base.
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

// removeSources takes sources, which ascend, out of the reference rows of one destination. It
// returns what that takes from the sum.
func removeSources(b index.Bucket, k refKey, sources []uint64) (sum uint64, err error) {
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
		if left := without(chunk, sources[:n]); len(left) < len(chunk) {
			for _, s := range sources[:n] {
				if _, ok := slices.BinarySearch(chunk, s); ok {
					sum += refHash(k, s)
				}
			}
			if len(left) == 0 || left[0] != chunk[0] {
				if err := b.Delete(appendNumber(slices.Clone(prefix), chunk[0])); err != nil {
					return 0, err
				}
			}
			if err := putSources(b, prefix, left); err != nil {
				return 0, err
			}
		}
		sources = sources[n:]
	}
	return sum, nil
}

// without returns the elements of a list that are not in another; both ascend.
func without(list, gone []uint64) (out []uint64) {
	for _, x := range list {
		if _, ok := slices.BinarySearch(gone, x); !ok {
			out = append(out, x)
		}
	}
	return out
}
