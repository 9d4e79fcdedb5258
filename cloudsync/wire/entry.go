package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// These are bounds of entries. MaxBodyBytes bounds the plaintext of a body within its entry: a
// longer body is an object of its own.
const (
	MaxBodyBytes  = 8 << 20
	MaxEntryBytes = MaxEpochBytes + MaxEpochBytes/4 + 1<<20 // with padding
)

// Entry is an entry of a log, opened.
type Entry struct {
	Epoch  epoch.ID
	Number uint64
	Head
	// Closing is the epoch that a closing entry proposes, and Sealed its object; both are nil for
	// other entries.
	Closing *epoch.Proposal
	Sealed  []byte
	// Body is the stream of the body. It is nil for a closing entry, and for a body that is the
	// object Long with the hash LongHash.
	Body     []byte
	Long     epoch.ID
	LongHash epoch.Hash
	// KeyIndex is the index of the key of the sealed body. Stored is the length of the object.
	KeyIndex uint32
	Stored   int
}

// SealedBody is the part of an entry after its head. It is sealed once, for any number.
type SealedBody struct {
	kind   byte
	id     epoch.ID
	sealed []byte
	hash   epoch.Hash // of sealed, or of the object that is the body
	// KeyIndex is the index of its key.
	KeyIndex uint32
}

// The kinds of entries.
const (
	entryBody byte = iota + 1
	entryLong
	entryClosing
)

// The layout of an entry as stored:
//
//	4   length h of the sealed head
//	h   head, sealed with HeadLabel
//	    body, sealed with BodyLabel; nothing for one that is an object of its own; or the object
//	    of the epoch that a closing entry proposes
//
// and of the plaintext of a head:
//
//	1   version
//	1   kind
//	32  hash of the entry before, or of the epoch
//	16  id of the entry, or of the body that is an object of its own; zero in a closing entry
//	32  SHA-256 of the bytes after the head; without such, of the object that is the body
//	96  author: see author.go
//
// The hash of an entry is the SHA-256 of its bytes up to the end of the sealed head.
const (
	lengthBytes = 4
	headBytes   = 1 + 1 + 32 + 16 + 32 + authorBytes
	headSealed  = headBytes + seal.Overhead

	entryWhere = "log entry"
)

// HeadBytes is the length of the part of an entry that EntryHash needs.
const HeadBytes = lengthBytes + headSealed

// EntryHash returns the hash of an entry that begins with b. b has HeadBytes bytes, or all of a
// shorter object. ok is false if b cannot be the beginning of an entry.
func EntryHash(b []byte) (hash epoch.Hash, ok bool) {
	head, err := cutHead(b)
	return sha256.Sum256(head), err == nil
}

// cutHead returns the beginning of an entry up to the end of the sealed head.
func cutHead(b []byte) ([]byte, error) {
	if len(b) < lengthBytes {
		return nil, corrupt(entryWhere, fmt.Errorf("%d bytes, at least %d", len(b), lengthBytes))
	}
	size := uint64(binary.BigEndian.Uint32(b))
	if size > headSealed || lengthBytes+size > uint64(len(b)) {
		return nil, corrupt(entryWhere, fmt.Errorf("head of %d bytes in %d", size, len(b)))
	}
	return b[:lengthBytes+size], nil
}

// padBody returns the padded length of a sealed body for which the whole entry has a length of
// seal.Quarters.
func padBody(bytes int) int {
	const before = lengthBytes + headSealed
	return seal.Quarters(bytes+before) - before
}

// SealBody seals a stream of kind Body under a new random id. parts lists the parts that are
// compressed, each by itself, so that no length reveals anything about two commits together: see
// Writer.Parts. Errors: base.ErrInvalid, base.ErrTooLarge beyond MaxBodyBytes.
func SealBody(s *seal.Sealer, n Names, e, id epoch.ID, stream []byte, parts []seal.Part) (*SealedBody, error) {
	if id == (epoch.ID{}) {
		return nil, invalid(entryWhere, errors.New("id of a body is zero"))
	}
	if len(stream) > MaxBodyBytes {
		return nil, fmt.Errorf("seal body of %d bytes, at most %d: %w", len(stream), MaxBodyBytes, base.ErrTooLarge)
	}
	sealed, ref, err := s.Seal(n.BodyLabel(e, id), stream, seal.Form{Parts: parts, Pad: padBody})
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", entryWhere, err)
	}
	return &SealedBody{kind: entryBody, id: id, sealed: sealed, hash: sha256.Sum256(sealed), KeyIndex: ref.KeyIndex}, nil
}

// LongBody returns the reference in an entry to a body that is the object id in the packs of its
// epoch, with its hash.
func LongBody(id epoch.ID, hash epoch.Hash) *SealedBody {
	return &SealedBody{kind: entryLong, id: id, hash: hash}
}

// ClosingBody returns the content of a closing entry. sealed is the object of the epoch, as
// SealEpoch returns it, and is retained.
func ClosingBody(sealed []byte) *SealedBody {
	return &SealedBody{kind: entryClosing, sealed: sealed, hash: sha256.Sum256(sealed)}
}

// SealEntry returns the object of the entry with a body, and its hash. Errors: base.ErrInvalid.
func SealEntry(s *seal.Sealer, n Names, e epoch.ID, number uint64, previous epoch.Hash, body *SealedBody) ([]byte, epoch.Hash, error) {
	if number == 0 || number > MaxNumber || previous == (epoch.Hash{}) || (body.kind == entryClosing) != (body.id == epoch.ID{}) {
		return nil, epoch.Hash{}, invalid(entryWhere, fmt.Errorf("number %d, previous hash %x, id %s", number, previous[:4], body.id))
	}
	c := encode(entryWhere)
	(&Head{Previous: previous, kind: body.kind, id: body.id, sum: body.hash}).code(c)
	plain := sign(s, entryWhere, n, entryPlace(e, number), c.b)
	head, _, err := s.Seal(n.HeadLabel(e, number), plain, seal.Form{})
	if err != nil {
		return nil, epoch.Hash{}, fmt.Errorf("seal log entry %d: %w", number, err)
	}
	stored := binary.BigEndian.AppendUint32(make([]byte, 0, lengthBytes+len(head)+len(body.sealed)), uint32(len(head)))
	stored = append(stored, head...)
	return append(stored, body.sealed...), sha256.Sum256(stored), nil
}

// OpenEntry opens an entry, whose body and epoch may borrow stored. It does not read the stream of
// the body. Errors, with the name of the object: *base.CorruptError, *base.FormatError.
func OpenEntry(s *seal.Sealer, n Names, e epoch.ID, number uint64, stored []byte) (*Entry, error) {
	out := &Entry{Epoch: e, Number: number, Stored: len(stored)}
	if err := out.open(s, n, stored); err != nil {
		return nil, fmt.Errorf("open %s: %w", n.Entry(e, number), err)
	}
	return out, nil
}

func (e *Entry) open(s *seal.Sealer, n Names, stored []byte) error {
	if len(stored) > MaxEntryBytes {
		return corrupt(entryWhere, fmt.Errorf("%d bytes, at most %d", len(stored), MaxEntryBytes))
	}
	h, err := OpenHead(s, n, e.Epoch, e.Number, stored)
	if err != nil {
		return err
	}
	rest := stored[len(h.Bytes):]
	if h.kind != entryLong && h.sum != sha256.Sum256(rest) {
		return corrupt(entryWhere, errors.New("its head does not belong to what follows it"))
	}
	e.Head = h
	return e.follow(s, n, h.kind, h.id, rest)
}

// Head is the head of an entry. Its bytes prove to any member that the device has signed it for the
// number.
type Head struct {
	// Bytes are those of the entry up to the end of the sealed head.
	Bytes []byte
	// Previous is the hash of the entry before, or of the epoch for its first entry. Hash is that
	// of the entry.
	Previous, Hash epoch.Hash
	// Device is the device that has signed the entry. HeadKey is the index of the data key of the
	// head.
	Device  seal.ID
	HeadKey uint32

	kind byte
	id   epoch.ID
	sum  epoch.Hash
}

// code codes the plaintext of the head without its author.
func (h *Head) code(c *coder) {
	c.byte(&h.kind)
	c.fixed(h.Previous[:], h.id[:], h.sum[:])
}

// InspectHead returns the parts of a head (Head.Bytes) that are readable without a key. Errors:
// *base.CorruptError, *base.FormatError.
func InspectHead(n Names, e epoch.ID, number uint64, head []byte) (seal.Ref, error) {
	ref, _, err := seal.Inspect(n.HeadLabel(e, number), head[min(lengthBytes, len(head)):])
	return ref, err
}

// OpenHead opens the head of the entry that begins with stored, of which it keeps a copy. Errors:
// *base.CorruptError, *base.FormatError.
func OpenHead(s *seal.Sealer, n Names, e epoch.ID, number uint64, stored []byte) (h Head, err error) {
	head, err := cutHead(stored)
	if err != nil {
		return h, err
	}
	h.Bytes = bytes.Clone(head)
	sealed, ref, err := s.Open(n.HeadLabel(e, number), head[lengthBytes:], headBytes)
	if err != nil {
		return h, err
	}
	plain, device, err := verify(s, entryWhere, n, entryPlace(e, number), sealed)
	if err != nil {
		return h, err
	}
	c := decode(entryWhere, plain)
	h.code(c)
	if err := c.end(); err != nil {
		return h, err
	}
	if h.Previous == (epoch.Hash{}) || (h.kind == entryClosing) != (h.id == epoch.ID{}) {
		return h, corrupt(entryWhere, errors.New("it names nothing before it, or nothing behind its head"))
	}
	h.Hash, h.Device, h.HeadKey = sha256.Sum256(h.Bytes), device, ref.KeyIndex
	return h, nil
}

// follow reads the part after the head.
func (e *Entry) follow(s *seal.Sealer, n Names, kind byte, id epoch.ID, rest []byte) (err error) {
	switch kind {
	case entryBody:
		var ref seal.Ref
		e.Body, ref, err = s.Open(n.BodyLabel(e.Epoch, id), rest, MaxBodyBytes)
		e.KeyIndex = ref.KeyIndex
		return err
	case entryLong:
		if e.Long, e.LongHash = id, e.sum; len(rest) > 0 {
			return corrupt(entryWhere, fmt.Errorf("%d bytes behind the name of a body", len(rest)))
		}
		return nil
	case entryClosing:
		e.Sealed = bytes.Clone(rest)
		e.Closing, err = OpenEpoch(s, n, e.Sealed)
		return err
	}
	return corrupt(entryWhere, fmt.Errorf("kind %d", kind))
}
