package format

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// Header precedes the body of a log entry.
type Header struct {
	Number   uint64 // by the name to which the header is bound
	ID       ID     // of the entry, random
	Previous Hash   // of entry Number-1; zero for 1
}

// Entry is an opened log entry.
type Entry struct {
	Header
	Hash     Hash
	Body     *Body
	KeyIndex uint32    // with which the body is sealed
	Stored   int       // bytes of the object
	Created  time.Time // by the bucket's clock; the reader sets it
}

// SealedBody is a body that has been sealed once and may go to any number.
type SealedBody struct {
	ID       ID
	KeyIndex uint32
	Sealed   []byte
	Body     *Body
}

// The layout of a log entry as stored:
//
//	offset  bytes  content
//	0       4      length h of the sealed head
//	4       h      head, sealed as single object with HeadLabel
//	4+h            body, sealed as single object with BodyLabel, to the end
//
// and of a head's plaintext:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       32     hash of the entry before; zero for entry 1, and for no other
//	33      16     id of the entry
//	49      32     SHA-256 of the sealed body
const (
	headLengthBytes = 4
	headBytes       = 1 + 32 + 16 + 32
	headSealed      = headBytes + seal.Overhead

	// HeaderBytes is the length of what stands before the body of an entry, as stored.
	HeaderBytes = headLengthBytes + headSealed

	entryWhere = "log entry"
	headWhere  = "head of log entry"
)

// padBody returns the length of a sealed body that makes that of the whole entry one of
// seal.Quarters.
func padBody(bytes int) int { return seal.Quarters(bytes+HeaderBytes) - HeaderBytes }

// SealBody seals a body under a new random id. It sorts the lists of b, which the SealedBody
// retains. Errors: as Body.Encode; those of the source of randomness.
func SealBody(s *seal.Sealer, n PageNames, id ID, b *Body) (*SealedBody, error) {
	if id.IsZero() {
		return nil, invalid(entryWhere, errors.New("its id is zero"))
	}
	plain, parts, err := b.encode()
	if err != nil {
		return nil, err
	}
	l := n.BodyLabel(id)
	sealed, _, err := s.Seal(l, plain, seal.Form{Parts: parts, Pad: padBody})
	if err != nil {
		return nil, fmt.Errorf("seal log entry: %w", err)
	}
	ref, _, err := seal.Inspect(l, sealed)
	if err != nil {
		return nil, fmt.Errorf("seal log entry: %w", err)
	}
	return &SealedBody{ID: id, KeyIndex: ref.KeyIndex, Sealed: sealed, Body: b}, nil
}

// SealEntry returns the bytes of the entry that has body at number, and their hash. Errors:
// base.ErrInvalid when number and previous do not go together; those of the source of randomness.
func SealEntry(s *seal.Sealer, n PageNames, number uint64, previous Hash, body *SealedBody) ([]byte, Hash, error) {
	if err := checkHead(number, Header{ID: body.ID, Previous: previous}); err != nil {
		return nil, Hash{}, invalid(entryWhere, err)
	}
	plain := make([]byte, 0, headBytes)
	plain = append(plain, formatVersion)
	plain = append(plain, previous[:]...)
	plain = append(plain, body.ID[:]...)
	sum := sha256.Sum256(body.Sealed)
	plain = append(plain, sum[:]...)
	if err := body.Body.checkNumber(number); err != nil {
		return nil, Hash{}, invalid(entryWhere, err)
	}
	head, _, err := s.Seal(n.HeadLabel(number), plain, seal.Form{})
	if err != nil {
		return nil, Hash{}, fmt.Errorf("seal log entry %d: %w", number, err)
	}
	if size := headLengthBytes + len(head) + len(body.Sealed); size > MaxEntryBytes {
		return nil, Hash{}, fmt.Errorf("seal log entry %d of %d bytes, at most %d: %w", number, size, MaxEntryBytes, base.ErrTooLarge)
	}
	stored := make([]byte, 0, headLengthBytes+len(head)+len(body.Sealed))
	stored = binary.BigEndian.AppendUint32(stored, uint32(len(head)))
	stored = append(append(stored, head...), body.Sealed...)
	return stored, headHash(stored[:headLengthBytes+len(head)]), nil
}

// headHash returns the hash of an entry, given its bytes up to the end of the sealed head. The head
// binds the number, the entry before and the body.
func headHash(stored []byte) Hash { return sha256.Sum256(stored) }

func checkHead(number uint64, h Header) error {
	switch {
	case number == 0 || number > MaxNumber:
		return fmt.Errorf("number %d is not 1 to 2^62", number)
	case (number == 1) != h.Previous.IsZero():
		return fmt.Errorf("number %d, and the entry before has hash %s", number, h.Previous)
	case h.ID.IsZero():
		return errors.New("its id is zero")
	}
	return nil
}

// checkNumber returns what is wrong with a body at a number: it relies on, and condemns, only what
// is before it.
func (b *Body) checkNumber(number uint64) error {
	if n := len(b.ReliesEntries); n > 0 && b.ReliesEntries[n-1] >= number {
		return fmt.Errorf("entry %d relies on entry %d", number, b.ReliesEntries[n-1])
	}
	if b.Since >= number {
		return fmt.Errorf("entry %d is built on the log as of entry %d", number, b.Since)
	}
	if b.Condemned != nil && b.Condemned.reach() > number {
		return fmt.Errorf("entry %d condemns what is not before it", number)
	}
	return nil
}

// OpenEntry opens the entry of a number. stored is not retained. Errors, with the name of the
// object: *base.CorruptError, *base.FormatError.
func OpenEntry(s *seal.Sealer, n PageNames, number uint64, stored []byte) (*Entry, error) {
	e, err := openEntry(s, n, number, stored)
	if err != nil {
		return nil, fmt.Errorf("open log entry %s: %w", n.Entry(number), err)
	}
	return e, nil
}

func openEntry(s *seal.Sealer, n PageNames, number uint64, stored []byte) (*Entry, error) {
	h, body, err := openWhole(s, n, number, stored)
	if err != nil {
		return nil, err
	}
	plain, ref, err := openBody(s, n, h.ID, body)
	if err != nil {
		return nil, err
	}
	b, err := ParseBody(plain)
	if err != nil {
		return nil, err
	}
	if err := b.checkNumber(number); err != nil {
		return nil, corrupt(bodyWhere, err)
	}
	return &Entry{Header: h, Hash: headHash(stored[:len(stored)-len(body)]), Body: b, KeyIndex: ref.KeyIndex, Stored: len(stored)}, nil
}

// openWhole opens the head, and returns the sealed body, which is the one that the head names.
func openWhole(s *seal.Sealer, n PageNames, number uint64, stored []byte) (Header, []byte, error) {
	h, want, body, err := openHead(s, n, number, stored)
	if err == nil && sha256.Sum256(body) != want {
		err = corrupt(entryWhere, errors.New("its body is not the one that its head names"))
	}
	return h, body, err
}

// openHead opens the head, and returns the hash of the sealed body that belongs to it, and what
// stands behind the head.
func openHead(s *seal.Sealer, n PageNames, number uint64, stored []byte) (h Header, bodyHash Hash, body []byte, err error) {
	if len(stored) < headLengthBytes || len(stored) > MaxEntryBytes {
		return h, bodyHash, nil, corrupt(entryWhere, fmt.Errorf("%d bytes, not %d to %d", len(stored), headLengthBytes, MaxEntryBytes))
	}
	length := binary.BigEndian.Uint32(stored)
	if length > headSealed || int(length) > len(stored)-headLengthBytes {
		return h, bodyHash, nil, corrupt(entryWhere, fmt.Errorf("head of %d bytes in %d", length, len(stored)))
	}
	head, body := stored[headLengthBytes:headLengthBytes+length], stored[headLengthBytes+length:]
	plain, _, err := s.Open(n.HeadLabel(number), head, headBytes)
	if err != nil {
		return h, bodyHash, nil, err
	}
	d := decode(headWhere, plain)
	h = Header{Number: number, Previous: d.hash(), ID: d.id()}
	bodyHash = d.hash()
	if err := d.end(); err != nil {
		return h, bodyHash, nil, err
	}
	if err := checkHead(number, h); err != nil {
		return h, bodyHash, nil, corrupt(headWhere, err)
	}
	return h, bodyHash, body, nil
}

func openBody(s *seal.Sealer, n PageNames, id ID, sealed []byte) ([]byte, seal.Ref, error) {
	l := n.BodyLabel(id)
	plain, _, err := s.Open(l, sealed, MaxBodyBytes)
	if err != nil {
		return nil, seal.Ref{}, err
	}
	ref, _, err := seal.Inspect(l, sealed)
	return plain, ref, err
}

// OpenHeader opens the header alone and computes the hash, for who only looks which entry it is.
// The first HeaderBytes of an entry are enough. Errors: as OpenEntry.
func OpenHeader(s *seal.Sealer, n PageNames, number uint64, stored []byte) (Header, Hash, error) {
	h, _, body, err := openHead(s, n, number, stored)
	if err != nil {
		return Header{}, Hash{}, fmt.Errorf("open log entry %s: %w", n.Entry(number), err)
	}
	return h, headHash(stored[:len(stored)-len(body)]), nil
}
