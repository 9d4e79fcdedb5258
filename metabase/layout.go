package metabase

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// The versions of the layout.
const (
	oldestVersion = 2
	graveVersion  = 3 // graves have expirations
	newestVersion = 4 // objects have metadata rows
)

// kind is the first byte of a bucket's name. In buckets of containers, the container follows it. In
// kindAttribute the attribute's key follows the container.
type kind byte

const (
	kindGraves            kind = 0
	kindGarbage           kind = 1
	kindToMove            kind = 2
	kindVolume            kind = 3
	kindLocked            kind = 4 // nested: a bucket for each container
	kindInfo              kind = 5
	kindRegular           kind = 6
	kindLock              kind = 7
	kindStorageGroup      kind = 8
	kindTombstone         kind = 9
	kindStorageID         kind = 10
	kindRoot              kind = 11
	kindOwner             kind = 12 // nested: a bucket for each owner
	kindAttribute         kind = 13 // nested: a bucket for each value
	kindPayloadHash       kind = 14
	kindParent            kind = 15
	kindSplitID           kind = 16
	kindGarbageContainers kind = 17
	kindLink              kind = 18
	kindFirst             kind = 19
	kindMetadata          kind = 255
)

// staticKinds are the buckets that every file has.
var staticKinds = []kind{kindGraves, kindGarbage, kindGarbageContainers, kindToMove, kindVolume, kindLocked, kindInfo}

// objectKinds are the buckets of objects, in the order in which Get searches them. kindOf maps
// types to these buckets.
var objectKinds = []kind{kindRegular, kindTombstone, kindStorageGroup, kindLock, kindLink}

// containerKinds are the kinds of buckets that each container has separately.
var containerKinds = []kind{
	kindRegular, kindLock, kindStorageGroup, kindTombstone, kindLink, kindStorageID, kindRoot, kindOwner, kindAttribute,
	kindPayloadHash, kindParent, kindSplitID, kindFirst, kindMetadata,
}

func kindOf(t Type) kind {
	return [...]kind{kindRegular, kindTombstone, kindStorageGroup, kindLock, kindLink}[t]
}

// lists reports whether the values of a derived bucket are lists of objects.
func (k kind) lists() bool {
	return k == kindPayloadHash || k == kindParent || k == kindSplitID || k == kindFirst
}

func typeOf(k kind) Type {
	return Type(slices.Index([]kind{kindRegular, kindTombstone, kindStorageGroup, kindLock, kindLink}, k))
}

// dummy is the value of rows whose key has all information.
var dummy = []byte{0xff}

// The keys of kindInfo.
const (
	infoShard    = "id"
	infoVersion  = "version"
	infoPhysical = "phy_counter"
	infoLogical  = "logic_counter"
	infoResync   = "last_resync_epoch"
)

// place is a bucket of the root, or a bucket nested in one of the root.
type place struct {
	bucket []byte
	nested []byte // nil for rows directly in bucket
}

// in returns a bucket of the root.
func in(k kind) place { return place{bucket: []byte{byte(k)}} }

// of returns a bucket of a container.
func of(k kind, container ID) place {
	return place{bucket: append(append(make([]byte, 0, 33), byte(k)), container[:]...)}
}

// at returns a bucket nested in p. name must not be empty.
func (p place) at(name []byte) place { return place{p.bucket, name} }

// lockedIn returns the bucket with the locks of a container.
func lockedIn(container ID) place { return in(kindLocked).at(container[:]) }

// attributeIn returns the bucket of the objects that have an attribute with the given value.
func attributeIn(container ID, key, value string) place {
	b := append(make([]byte, 0, 33+len(key)), byte(kindAttribute))
	b = append(append(b, container[:]...), key...)
	return place{b, []byte(value)}
}

func (p place) kind() kind { return kind(p.bucket[0]) }

// container returns the container to which p belongs. ok is false when p belongs to none.
func (p place) container() (id ID, ok bool) {
	if p.kind() == kindLocked {
		return idOf(p.nested)
	}
	if len(p.bucket) < 33 || !slices.Contains(containerKinds, p.kind()) {
		return id, false
	}
	return ID(p.bucket[1:33]), true
}

func (p place) String() string {
	if len(p.bucket) == 0 {
		return "root"
	}
	s := fmt.Sprintf("bucket %d", p.bucket[0])
	if id, ok := p.container(); ok {
		s += " of container " + id.String()
	}
	return s
}

// appendList appends a list of byte strings: the number of items, then each item after its length.
// Numbers are variable integers as in Neo.
func appendList(b []byte, items [][]byte) []byte {
	b = appendVarUint(b, uint64(len(items)))
	for _, item := range items {
		b = append(appendVarUint(b, uint64(len(item))), item...)
	}
	return b
}

func appendVarUint(b []byte, n uint64) []byte {
	switch {
	case n < 0xfd:
		return append(b, byte(n))
	case n <= 0xffff:
		return binary.LittleEndian.AppendUint16(append(b, 0xfd), uint16(n))
	case n <= 0xffffffff:
		return binary.LittleEndian.AppendUint32(append(b, 0xfe), uint32(n))
	}
	return binary.LittleEndian.AppendUint64(append(b, 0xff), n)
}

// decodeVarUint returns a number and the bytes that follow it.
func decodeVarUint(b []byte) (n uint64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	size := map[byte]int{0xfd: 2, 0xfe: 4, 0xff: 8}[b[0]]
	if size == 0 {
		return uint64(b[0]), b[1:], true
	}
	if len(b) < 1+size {
		return 0, nil, false
	}
	var full [8]byte
	copy(full[:], b[1:1+size])
	return binary.LittleEndian.Uint64(full[:]), b[1+size:], true
}

var errList = fmt.Errorf("decode list: %w", base.ErrCorrupt)

// decodeList decodes the output of appendList. Empty bytes are an empty list. Items are parts of b.
func decodeList(b []byte) ([][]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	n, b, ok := decodeVarUint(b)
	if !ok || n > uint64(len(b)) {
		return nil, errList
	}
	items := make([][]byte, 0, n)
	for range n {
		var size uint64
		if size, b, ok = decodeVarUint(b); !ok || size > uint64(len(b)) {
			return nil, errList
		}
		items = append(items, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, errList
	}
	return items, nil
}

// addToList returns list with item appended, or list itself when it contains item.
func addToList(list [][]byte, item []byte) [][]byte {
	if slices.ContainsFunc(list, func(have []byte) bool { return bytes.Equal(have, item) }) {
		return list
	}
	return append(list, item)
}

func removeFromList(list [][]byte, item []byte) [][]byte {
	return slices.DeleteFunc(list, func(have []byte) bool { return bytes.Equal(have, item) })
}

// grave is the value of a row in kindGraves.
type grave struct {
	tombstone  Address
	expiration uint64
}

func (g grave) bytes() []byte {
	return binary.LittleEndian.AppendUint64(g.tombstone.bytes(), g.expiration)
}

// decodeGrave decodes a grave. A grave of version 2 has no expiration and gets 0.
func decodeGrave(b []byte) (g grave, ok bool) {
	if len(b) != 64 && len(b) != 72 {
		return g, false
	}
	g.tombstone, _ = addressOf(b[:64])
	if len(b) == 72 {
		g.expiration = binary.LittleEndian.Uint64(b[64:])
	}
	return g, true
}
