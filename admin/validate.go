package admin

import "github.com/ledgerd/ledger/internal/session"

// ValidateLedgerName verifies the name of a ledger, which has 1 to 150 bytes. Errors: ErrInvalid,
// ErrTooLarge.
func ValidateLedgerName(name string) error { return session.ValidateLedgerName(name) }

// ValidatePageName verifies the name of a page, which has 1 to 1024 bytes. Errors: ErrInvalid,
// ErrTooLarge.
func ValidatePageName(name string) error { return session.ValidatePageName(name) }

// ValidateKey verifies a key of a page, which has up to 4096 bytes. Errors: ErrTooLarge.
func ValidateKey(key []byte) error { return session.ValidateKey(key) }

// ValidateMessage verifies the message of a commit, which has up to 16 KiB of UTF-8. Errors:
// ErrInvalid, ErrTooLarge.
func ValidateMessage(message string) error { return session.ValidateMessage(message) }

// ValidateDevice verifies Options.Device, which has up to 256 bytes of UTF-8. Errors: ErrInvalid,
// ErrTooLarge.
func ValidateDevice(name string) error { return session.ValidateDevice(name) }

// ValidateTag verifies the name of a tag; see Page.Tag. Errors: ErrInvalid, ErrTooLarge.
func ValidateTag(name string) error { return session.ValidateTag(name) }

// ValidateRevision verifies that a revision has the form that Page.Resolve reads. Errors:
// ErrInvalid.
func ValidateRevision(revision string) error { return session.ValidateRevision(revision) }
