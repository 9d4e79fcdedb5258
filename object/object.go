package object

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
)

// DigestSize is the length of a digest in bytes.
const DigestSize = 1 + sha256.Size

// Kind is the prefix byte of a digest.
type Kind uint8

// The kinds. All others are reserved.
const (
	// Chunk is a piece of content of a value.
	Chunk Kind = 0
	// Index is a piece of a value that lists other pieces.
	Index Kind = 1
	// Node is a tree node.
	Node Kind = 2
)

// IsIndex reports whether the object is a piece that lists other pieces.
func (k Kind) IsIndex() bool { return k == Index }

// IsNode reports whether the object is a tree node.
func (k Kind) IsNode() bool { return k == Node }

// String returns "chunk", "index" or "node".
func (k Kind) String() string {
	switch k {
	case Chunk:
		return "chunk"
	case Index:
		return "index"
	case Node:
		return "node"
	}
	return fmt.Sprintf("kind %#x", uint8(k))
}

// Digest names a piece. The zero Digest stands for "none": no content has it in practice.
type Digest [DigestSize]byte

var hashers = sync.Pool{New: func() any { return &hasher{h: sha256.New()} }}

type hasher struct {
	h   hash.Hash
	buf [sha256.Size]byte
}

// Sum returns the digest of content as a piece of the given kind. It does not retain content.
func Sum(kind Kind, content []byte) Digest {
	h := hashers.Get().(*hasher)
	h.h.Reset()
	h.buf[0] = byte(kind)
	h.h.Write(h.buf[:1])
	h.h.Write(content)
	var d Digest
	d[0] = byte(kind)
	copy(d[1:], h.h.Sum(h.buf[:0]))
	hashers.Put(h)
	return d
}

// Kind returns the kind of the piece.
func (d Digest) Kind() Kind { return Kind(d[0]) }

// IsZero reports whether d is the zero Digest.
func (d Digest) IsZero() bool { // called for every entry that is put: comparing with Digest{} is a call
	n := binary.NativeEndian
	return n.Uint64(d[0:])|n.Uint64(d[8:])|n.Uint64(d[16:])|n.Uint64(d[24:])|uint64(d[32]) == 0
}

// Valid reports whether the prefix byte is a known kind.
func (d Digest) Valid() bool { return d.Kind() <= Node }

// Verify returns nil when content has the digest d, and a *base.CorruptError that names d
// otherwise.
func (d Digest) Verify(content []byte) error {
	if got := Sum(d.Kind(), content); got != d {
		return &base.CorruptError{Where: "piece", Key: d.String(), Got: "content with digest " + got.String()}
	}
	return nil
}

// String returns the digest as 66 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short returns the first 12 hexadecimal digits after the kind, for people.
func (d Digest) Short() string { return hex.EncodeToString(d[1:7]) }

// Compare orders digests by their bytes.
func (d Digest) Compare(e Digest) int { return bytes.Compare(d[:], e[:]) }

// ParseDigest reads a digest from its 33 bytes. It fails with an error that matches base.ErrInvalid
// when the length is wrong or the kind is unknown.
func ParseDigest(b []byte) (Digest, error) {
	var d Digest
	if len(b) != DigestSize {
		return d, fmt.Errorf("parse digest of %d bytes, want %d: %w", len(b), DigestSize, base.ErrInvalid)
	}
	copy(d[:], b)
	if !d.Valid() {
		return Digest{}, fmt.Errorf("parse digest with prefix %#02x: %w", b[0], base.ErrInvalid)
	}
	return d, nil
}

// Identifier names an object: the digest of its root piece, and the index of the key that seals it
// in the cloud.
type Identifier struct {
	Digest   Digest
	KeyIndex uint64
}

// Append appends the encoding of id to b: the digest, then the key index as uvarint, so that the
// digest is a prefix of the encoding.
func (id Identifier) Append(b []byte) []byte {
	return binary.AppendUvarint(append(b, id.Digest[:]...), id.KeyIndex)
}

// String returns the hexadecimal form of the encoding.
func (id Identifier) String() string { return hex.EncodeToString(id.Append(nil)) }

// Priority says when a value is fetched from the cloud.
type Priority uint8

// The priorities. Their numbers are part of the format of tree nodes.
const (
	// Eager values are fetched together with their commit.
	Eager Priority = 0
	// Lazy values are fetched on first use.
	Lazy Priority = 1
)

// String returns "eager" or "lazy".
func (p Priority) String() string {
	switch p {
	case Eager:
		return "eager"
	case Lazy:
		return "lazy"
	}
	return fmt.Sprintf("priority %d", uint8(p))
}
