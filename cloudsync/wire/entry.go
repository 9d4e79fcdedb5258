package wire

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// These are bounds of entries. MaxBodyBytes bounds the plaintext of a body within its entry: a
// longer body is an object of its own. MaxEntryBytes bounds the object of an entry or an epoch.
const (
	MaxBodyBytes  = 8 << 20
	MaxEntryBytes = 12 << 20
)

// Entry is an entry of a log, opened.
type Entry struct {
	Epoch  epoch.ID
	Number uint64
	// Previous is the hash of the entry before, or of the epoch for its first entry. Hash is that
	// of the entry.
	Previous, Hash epoch.Hash
	// Device is the device that has signed the entry. KeyIndex is the index of its data key.
	Device   seal.ID
	KeyIndex uint32
	// Closing is the epoch that a closing entry proposes, and Sealed its object; both are nil for
	// other entries.
	Closing *epoch.Proposal
	Sealed  []byte
	// Body is the stream of the body. It is nil for a closing entry, and for a body that is the
	// object Long with the hash LongHash.
	Body     []byte
	Long     epoch.ID
	LongHash epoch.Hash
	// Stored is the length of the object.
	Stored int
}

// EntryBody is what an entry says, for any number.
type EntryBody struct {
	kind    byte
	content []byte
	parts   []seal.Part // of content
}

// The kinds of entries.
const (
	entryBody byte = iota + 1
	entryLong
	entryClosing
)

// The layout of an entry's plaintext:
//
//	1   version
//	1   kind
//	32  hash of the entry before, or of the epoch
//	    the stream of the body; or the id (16) and the SHA-256 of the object that is the body; or
//	    the object of the epoch that a closing entry proposes
//	96  author: see author.go
//
// The hash of an entry is the SHA-256 of its object.
const (
	beforeContent = 1 + 1 + 32

	entryWhere = "log entry"
)

// InlineBody returns a body of a stream of kind Body, at most MaxBodyBytes. parts lists the parts
// that are compressed, each by itself, so that no length reveals anything about two commits
// together: see Writer.Parts. Both are retained.
func InlineBody(stream []byte, parts []seal.Part) *EntryBody {
	return &EntryBody{kind: entryBody, content: stream, parts: parts}
}

// LongBody returns a body that is the object id in the packs of its epoch, with its hash.
func LongBody(id epoch.ID, hash epoch.Hash) *EntryBody {
	return &EntryBody{kind: entryLong, content: append(id[:], hash[:]...)}
}

// ClosingBody returns the content of a closing entry. sealed is the object of the epoch, as
// SealEpoch returns it, and is retained.
func ClosingBody(sealed []byte) *EntryBody { return &EntryBody{kind: entryClosing, content: sealed} }

// SealEntry returns the object of the entry with a body, and its hash. Errors: base.ErrInvalid.
func SealEntry(s *seal.Sealer, n Names, e epoch.ID, number uint64, previous epoch.Hash, body *EntryBody) ([]byte, epoch.Hash, error) {
	if number == 0 || number > MaxNumber || previous == (epoch.Hash{}) || body.kind == entryBody && len(body.content) > MaxBodyBytes {
		return nil, epoch.Hash{}, invalid(entryWhere, fmt.Errorf("number %d, previous hash %x, %d bytes", number, previous[:4], len(body.content)))
	}
	c := encode(entryWhere)
	kind := body.kind
	c.byte(&kind)
	c.fixed(previous[:], body.content)
	form := seal.Form{Pad: seal.Quarters}
	for _, p := range body.parts {
		form.Parts = append(form.Parts, seal.Part{To: beforeContent + p.To, Compress: p.Compress})
	}
	stored, _, err := s.Seal(n.EntryLabel(e, number), sign(s, entryWhere, n, entryPlace(e, number), c.b), form)
	if err != nil {
		return nil, epoch.Hash{}, fmt.Errorf("seal log entry %d: %w", number, err)
	}
	return stored, sha256.Sum256(stored), nil
}

// OpenEntry opens an entry. It does not read the stream of the body. Errors, with the name of the
// object: *base.CorruptError, *base.FormatError.
func OpenEntry(s *seal.Sealer, n Names, e epoch.ID, number uint64, stored []byte) (*Entry, error) {
	out := &Entry{Epoch: e, Number: number, Hash: sha256.Sum256(stored), Stored: len(stored)}
	if err := out.open(s, n, stored); err != nil {
		return nil, fmt.Errorf("open %s: %w", n.Entry(e, number), err)
	}
	return out, nil
}

func (e *Entry) open(s *seal.Sealer, n Names, stored []byte) error {
	if len(stored) > MaxEntryBytes {
		return corrupt(entryWhere, fmt.Errorf("%d bytes, at most %d", len(stored), MaxEntryBytes))
	}
	sealed, ref, err := s.Open(n.EntryLabel(e.Epoch, e.Number), stored, MaxEntryBytes)
	if err != nil {
		return err
	}
	plain, device, err := verify(s, entryWhere, n, entryPlace(e.Epoch, e.Number), sealed)
	if err != nil {
		return err
	}
	e.Device, e.KeyIndex = device, ref.KeyIndex
	c := decode(entryWhere, plain)
	var kind byte
	c.byte(&kind)
	c.fixed(e.Previous[:])
	c.refuse(e.Previous == epoch.Hash{}, "it names nothing before it")
	switch kind {
	case entryBody:
		c.refuse(len(c.b) > MaxBodyBytes, "body of %d bytes, at most %d", len(c.b), MaxBodyBytes)
		c.rest(&e.Body)
	case entryLong:
		c.ids(&e.Long)
		c.fixed(e.LongHash[:])
	case entryClosing:
		if c.rest(&e.Sealed); c.err == nil {
			e.Sealed = bytes.Clone(e.Sealed)
			e.Closing, c.err = OpenEpoch(s, n, e.Sealed)
		}
	default:
		c.failf("kind %d", kind)
	}
	return c.end()
}
