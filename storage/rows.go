package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// The buckets of page.db (docs/format/rows.md). A row family is a bucket; its name is printed as
// the first part of a row's key. A number is a page-local piece number in numberSize bytes,
// big-endian, which replaces a repeated digest.
//
//	bucket            key                                    value
//	state             "state"                                version, page id, position, next
//	                                                         number, ... (see state)
//	objects           digest 33                              number; when held: place, kind,
//	                                                         base's number, delta depth
//	numbers           number                                 digest 33
//	commits           commit id 32                           FlatBuffers commit
//	heads             commit id 32                           timestamp, 8 bytes big-endian
//	merges            parent1 32, parent2 32, merge 32       empty
//	conflicts         merge commit id 32                     digest 33 of the root of its
//	                                                         explanation, CRC-32C of key and
//	                                                         digest
//	refcounts         destination, 'c', commit id 32         empty
//	refcounts         destination, 'e' or 'l', first source  further sources, as differences
//	                                                         (uvarint)
//	refcounts         base, 'd', first source                further nodes that are stored as
//	                                                         differences to the base, as above
//	refsums           block of destinations, a number        sum of the rows of refcounts in it, 8
//	                                                         bytes (see refs.go)
//	unsynced/commits  commit id 32                           generation, 8 bytes big-endian
//	treeless/commits  commit id 32                           empty
//	shallow/commits   pruned parent 32, commit id 32         empty
//	local/objects     number                                 empty
//	tags              name                                   commit id 32, CRC-32C of name and id
//	unsynced/tags     name                                   1, commit id 32, or 0; CRC-32C of
//	                                                         name and the bytes before
//	sync_metadata     type                                   value, CRC-32C of type and value
//	cloud             number                                 place in the bucket, CRC-32C of
//	                                                         digest and place (see cloudRow)
const (
	bucketState     = "state"
	bucketObjects   = "objects"
	bucketNumbers   = "numbers"
	bucketCommits   = "commits"
	bucketHeads     = "heads"
	bucketMerges    = "merges"
	bucketConflicts = "conflicts"
	bucketRefs      = "refcounts"
	bucketRefSums   = "refsums"
	bucketUnsynced  = "unsynced/commits"
	bucketTreeless  = "treeless/commits"
	bucketShallow   = "shallow/commits"
	bucketTransient = "transient/objects"
	bucketLocal     = "local/objects"
	bucketSynced    = "synced/objects"
	bucketTags      = "tags"
	bucketNewTags   = "unsynced/tags"
	bucketMetadata  = "sync_metadata"
	bucketCloud     = "cloud"
)

var allBuckets = []string{
	bucketState, bucketObjects, bucketNumbers, bucketCommits, bucketHeads, bucketMerges, bucketConflicts, bucketRefs, bucketRefSums, bucketUnsynced,
	bucketTreeless, bucketShallow, bucketLocal, bucketTags, bucketNewTags, bucketMetadata, bucketCloud,
}

// indexVersion is the version of the rows of page.db. Rows of an older version are rebuilt from the
// log: version 1 had no bucket conflicts, version 2 no state of sync, version 3 no sums of
// references, no references to bases and no state of deletion, version 4 had lost bases that no
// record had deleted, version 5 no checkpoint, version 6 the journals of pieces, version
// 7 the keys of pieces in rows of their own.
const indexVersion = 8

// errOldIndex marks an index with rows of an older version.
var errOldIndex = errors.New("rows of an older version")

// numberSize is the length of a piece number in a key. A commit of one key among a million mentions
// about 80 pieces: with digests their rows would be several times the nodes.
const numberSize = 6

// maxNumber is the greatest number of a piece: the number after it can still be written.
const maxNumber = 1<<(8*numberSize) - 2

// The types of reference rows.
const (
	refCommit = 'c'
	refEager  = 'e'
	refLazy   = 'l'
	refBase   = 'd' // a stored difference needs the bytes of the destination
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// withSum appends the CRC-32C of a row's name and value. The name is omitted for a row that never
// has another name.
func withSum(name, v []byte) []byte {
	return binary.BigEndian.AppendUint32(v, crc32.Update(crc32.Checksum(name, crcTable), crcTable, v))
}

// cutSum returns a value without its checksum, and reports whether the checksum is right.
func cutSum(name, v []byte) ([]byte, bool) {
	n := len(v) - 4
	if n < 0 || crc32.Update(crc32.Checksum(name, crcTable), crcTable, v[:n]) != binary.BigEndian.Uint32(v[n:]) {
		return nil, false
	}
	return v[:n], true
}

func appendNumber(b []byte, n uint64) []byte {
	return append(b, byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func readNumber(b []byte) uint64 {
	_ = b[numberSize-1]
	return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5])
}

func badRow(family, key, what string) error {
	return &base.CorruptError{Where: "page.db row " + family + "/", Key: key, Got: what}
}

// objectRow is the value of a row of bucket objects.
type objectRow struct {
	number uint64
	held   bool
	dead   bool // not held: a deleted node that is the base of other nodes' differences
	kind   byte // recPiece, recNode or recDelta
	place  segment.Place
	base   uint64 // number of the base of a delta
	depth  uint8
}

func (r *objectRow) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.number)
	switch {
	case r.held:
		b = append(b, r.kind)
	case r.dead:
		b = append(b, r.kind|deadKind)
	default:
		return b
	}
	b = binary.AppendUvarint(b, uint64(r.place.Segment))
	b = binary.AppendUvarint(b, r.place.Offset)
	b = binary.AppendUvarint(b, uint64(r.place.Length))
	if r.kind == recDelta {
		b = binary.AppendUvarint(b, r.base)
		b = append(b, r.depth)
	}
	return b
}

// deadKind marks the kind of a node that is kept as a base only.
const deadKind = 0x80

func parseObjectRow(v []byte) (r objectRow, ok bool) {
	var n int
	next := func() uint64 {
		x, k := uvarint(v)
		if k <= 0 {
			n, v = -1, nil
			return 0
		}
		v = v[k:]
		return x
	}
	r.number = next()
	if n < 0 || r.number == 0 || r.number > maxNumber || len(v) == 0 {
		return r, n == 0 && r.number != 0 && r.number <= maxNumber
	}
	r.dead = v[0]&deadKind != 0
	r.held, r.kind, v = !r.dead, v[0]&^deadKind, v[1:]
	segmentID, offset, length := next(), next(), next()
	r.place = segment.Place{Segment: uint32(segmentID), Offset: offset, Length: uint32(length)}
	if r.kind == recDelta {
		r.base = next()
		if len(v) != 1 || r.base > maxNumber {
			return r, false
		}
		r.depth, v = v[0], v[1:]
	}
	good := n == 0 && len(v) == 0 && segmentID <= 1<<32-1 && length <= 1<<32-1 && (r.kind == recPiece || r.kind == recNode || r.kind == recDelta)
	return r, good
}

// state is the row that records what the index reflects (I3).
type state struct {
	page   [16]byte
	next   uint64 // next piece number
	heads  [32]byte
	nHeads uint64
	// checkpoint is the last one in the log.
	checkpoint checkpoint
	position   segment.Position
}

// clone returns a copy that shares nothing.
func (st *state) clone() state {
	c := *st
	c.position.Ends = slices.Clone(st.position.Ends)
	return c
}

var stateKey = []byte("state")

func (st *state) encode() []byte {
	c, version := coder{}, uint64(indexVersion)
	c.number(&version, indexVersion)
	st.code(&c, version)
	return withSum(nil, append(c.p, st.position.Encode()...))
}

// code writes or reads the fields between the version and the position.
func (st *state) code(c *coder, version uint64) {
	c.fixed(st.page[:])
	c.number(&st.next, maxNumber+1)
	c.refuse(st.next == 0)
	if version < 7 {
		journal := uint64(0)
		c.number(&journal, math.MaxUint64)
	}
	c.fixed(st.heads[:])
	c.number(&st.nHeads, math.MaxUint64)
	if version > 5 {
		c.number(&st.checkpoint.upTo, math.MaxUint64)
		c.number(&st.checkpoint.first, math.MaxUint64)
		c.number(&st.checkpoint.last, math.MaxUint64)
	}
}

// parseState reads the state row. It fails with a *base.CorruptError, with a *base.FormatError for
// a newer version, or with an error that matches errOldIndex for an older version; the state is
// then that of the older version.
func parseState(v []byte) (st state, err error) {
	bad := func(what string) (state, error) { return state{}, badRow(bucketState, "state", what) }
	v, ok := cutSum(nil, v)
	if !ok {
		return bad("bad checksum")
	}
	c, version := coder{p: v, reading: true}, uint64(0)
	c.number(&version, math.MaxUint64)
	switch {
	case version > indexVersion:
		return state{}, &base.FormatError{What: "page.db", Found: version, Supported: indexVersion}
	case version == 0:
		return bad("bad version")
	}
	if st.code(&c, version); c.bad {
		return bad("bad value")
	}
	if st.position, err = segment.DecodePosition(c.p); err != nil {
		return bad("bad position")
	}
	if version < indexVersion {
		return st, fmt.Errorf("page.db of version %d: %w", version, errOldIndex)
	}
	return st, nil
}

// addHead adds id to the checksum of the heads. The checksum is needed because a head that is
// missing from its family would show older content without any other sign.
func (st *state) addHead(id commit.ID) {
	st.xorHead(id)
	st.nHeads++
}

func (st *state) removeHead(id commit.ID) {
	st.xorHead(id)
	st.nHeads--
}

func (st *state) xorHead(id commit.ID) {
	for i := range st.heads {
		st.heads[i] ^= id[i]
	}
}

// conflictRow is the value of a row of bucket conflicts.
func conflictRow(merge commit.ID, root *object.Digest) []byte {
	return withSum(merge[:], slices.Clone(root[:]))
}

func parseConflictRow(k, v []byte) (object.Digest, error) {
	bad := func(what string) (object.Digest, error) {
		return object.Digest{}, badRow(bucketConflicts, hex.EncodeToString(k), what)
	}
	b, ok := cutSum(k, v)
	if !ok || len(k) != commit.IDSize || len(b) != object.DigestSize {
		return bad("bad checksum")
	}
	id := commit.ID(k)
	root, ok := digestOf(b)
	if !ok {
		return bad("bad digest")
	}
	if checkExplanation(id, &root) != nil {
		return bad("no explanation")
	}
	return root, nil
}

func mergeKey(a, b, m commit.ID) []byte {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	k := append([]byte(nil), a[:]...)
	k = append(k, b[:]...)
	return append(k, m[:]...)
}

// maxSources is the greatest number of sources in one reference row.
const maxSources = 512

func digestOf(v []byte) (object.Digest, bool) {
	d, err := object.ParseDigest(v)
	return d, err == nil
}

// rowsOf yields the rows of a family in the order of their keys. Keys and values are valid as long
// as the transaction.
func rowsOf(tx index.Tx, family string) iter.Seq2[[]byte, []byte] {
	return rowsWith(tx.Bucket(family), nil)
}

// rowsWith yields the rows whose keys begin with a prefix, in order. The caller may change rows
// during the iteration.
func rowsWith(b index.Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// eachRow folds and then calls fn with the rows of a family, in transactions of some rows. It calls
// after, if not nil, after each transaction. A transaction is repeated when the index is rebuilt
// during it, so that fn may see a row more than once.
func (s *Store) eachRow(ctx context.Context, family string, fn func(tx index.Tx, k, v []byte) error, after func() error) error {
	if err := s.readyRows(ctx); err != nil {
		return err
	}
	for from := []byte{}; from != nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var next []byte
		err := s.view(func(tx index.Tx) error {
			var rows []row
			rows, next = someRows(tx.Bucket(family), from, planChunk)
			for _, r := range rows {
				if err := fn(tx, r.key, r.value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if after != nil {
			if err := after(); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// hasKey reports whether the key exists; its value may be empty.
func hasKey(b index.Bucket, k []byte) bool {
	found, _ := b.Cursor().Seek(k)
	return bytes.Equal(found, k)
}

// keyDigest returns the digest of the piece whose number is the key of a row.
func keyDigest(tx index.Tx, family string, k []byte) (object.Digest, error) {
	if len(k) != numberSize {
		return object.Digest{}, badRow(family, hex.EncodeToString(k), "bad key")
	}
	d, ok := numberDigest(tx, readNumber(k))
	if !ok {
		return d, badRow(family, hex.EncodeToString(k), "a number that stands for nothing")
	}
	return d, nil
}

func numberDigest(tx index.Tx, n uint64) (object.Digest, bool) {
	return digestOf(tx.Bucket(bucketNumbers).Get(appendNumber(nil, n)))
}

// setRow puts or deletes a row. It does not write a row that is right already.
func setRow(b index.Bucket, k []byte, set bool, v []byte) error {
	old := b.Get(k)
	switch {
	case !set && old == nil || set && old != nil && bytes.Equal(old, v):
		return nil
	case set:
		return b.Put(k, v)
	}
	return b.Delete(k)
}

func hasPrefix(c index.Cursor, prefix []byte) bool {
	k, _ := c.Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// someRows returns up to most rows from a key on, and the next key, nil at the end.
func someRows(b index.Bucket, from []byte, most int) (rows []row, next []byte) {
	c := b.Cursor()
	k, v := c.First()
	if len(from) > 0 {
		k, v = c.Seek(from)
	}
	for ; k != nil; k, v = c.Next() {
		if len(rows) == most {
			return rows, bytes.Clone(k)
		}
		rows = append(rows, row{key: bytes.Clone(k), value: bytes.Clone(v)})
	}
	return rows, nil
}

// eachPiece calls fn, with no transaction open, for the pieces that pick selects from the rows of a
// family. Rows are read as by eachRow.
func (s *Store) eachPiece(ctx context.Context, family string, pick func(tx index.Tx, k, v []byte) (object.Digest, bool, error), fn func(object.Digest) error) error {
	var some []object.Digest
	return s.eachRow(ctx, family, func(tx index.Tx, k, v []byte) error {
		d, ok, err := pick(tx, k, v)
		if ok && err == nil {
			some = append(some, d)
		}
		return err
	}, func() error {
		for _, d := range some {
			if err := fn(d); err != nil {
				return err
			}
		}
		some = some[:0]
		return nil
	})
}
