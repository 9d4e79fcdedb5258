package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// CommitID names a commit: the SHA-256 of its canonical bytes. The zero CommitID names none and
// stands for "the handle's head" where a doc comment says so. String gives it as 64 hexadecimal
// digits, Short as 12.
type CommitID = commit.ID

// FirstCommit returns the id of the first commit, which every page has: it is empty and has no
// parents. It stays readable even after its page has given history up.
func FirstCommit() CommitID { return commit.First().ID }

// ParseCommitID reads the 64 hexadecimal digits of a commit id. Errors: ErrInvalid.
func ParseCommitID(s string) (CommitID, error) {
	var id CommitID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("parse commit id of %d characters, want %d hexadecimal digits: %w", len(s), 2*len(id), ErrInvalid)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return CommitID{}, fmt.Errorf("parse commit id: %v: %w", err, ErrInvalid)
	}
	return id, nil
}

// PageID names a page within its ledger. The zero PageID is the root page.
type PageID [16]byte

// String returns the id as 32 lower-case hexadecimal digits.
func (id PageID) String() string { return hex.EncodeToString(id[:]) }

// PageRef names a page of a repository: PageRef{"notes", DerivePageID("notes", "inbox")} for a page
// opened by name, and p.Ref() for an open page.
type PageRef struct {
	Ledger string
	ID     PageID
}

func (p PageRef) key() pageKey { return pageKey{Ledger: p.Ledger, ID: p.ID} }

// refOf is the public name of a page.
func refOf(k pageKey) PageRef { return PageRef{k.Ledger, k.ID} }

// ParsePageID reads the 32 hexadecimal digits of a page id. Errors: ErrInvalid.
func ParsePageID(s string) (PageID, error) {
	var id PageID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("parse page id of %d characters, want %d hexadecimal digits: %w", len(s), 2*len(id), ErrInvalid)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return PageID{}, fmt.Errorf("parse page id: %v: %w", err, ErrInvalid)
	}
	return id, nil
}

// DerivePageID returns the id of a page with a human name: the first 16 bytes of the SHA-256 of
// both names, each after its length (64-bit big-endian). All devices derive the same id.
func DerivePageID(ledger, page string) PageID {
	b := make([]byte, 0, 16+len(ledger)+len(page))
	b = binary.BigEndian.AppendUint64(b, uint64(len(ledger)))
	b = append(b, ledger...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(page)))
	b = append(b, page...)
	sum := sha256.Sum256(b)
	return PageID(sum[:16])
}

// Priority says when a value is downloaded from the cloud.
type Priority = object.Priority

const (
	// Eager values are downloaded together with their commit.
	Eager = object.Eager
	// Lazy values are downloaded on first use. A value that is short enough to be stored in its
	// tree entry is always Eager.
	Lazy = object.Lazy
)
