package session

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

// ValidateKey verifies a key of a page, which has up to 4096 bytes. Errors: ErrTooLarge.
func ValidateKey(key []byte) error {
	if len(key) > limits.MaxKeyBytes {
		return fmt.Errorf("key has %d bytes, at most %d are allowed: %w", len(key), limits.MaxKeyBytes, base.ErrTooLarge)
	}
	return nil
}

// ValidateMessage verifies the message of a commit, which has up to 16 KiB of UTF-8. Errors:
// ErrInvalid, ErrTooLarge.
func ValidateMessage(message string) error {
	if len(message) > limits.MaxMessageBytes {
		return fmt.Errorf("message has %d bytes, at most %d are allowed: %w", len(message), limits.MaxMessageBytes, base.ErrTooLarge)
	}
	if !utf8.ValidString(message) {
		return fmt.Errorf("message is not UTF-8: %w", base.ErrInvalid)
	}
	return nil
}

// ValidateDevice verifies Options.Device, which has up to 256 bytes of UTF-8. Errors: ErrInvalid,
// ErrTooLarge.
func ValidateDevice(name string) error {
	if len(name) > limits.MaxDeviceBytes {
		return fmt.Errorf("check options: Device has %d bytes, at most %d are allowed: %w", len(name), limits.MaxDeviceBytes, base.ErrTooLarge)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("check options: Device is not UTF-8: %w", base.ErrInvalid)
	}
	return nil
}

// ValidateTag verifies the name of a tag; see Page.Tag. Errors: ErrInvalid, ErrTooLarge.
func ValidateTag(name string) error {
	switch {
	case name == "" || name == headRevision:
		return fmt.Errorf("tag %q: that name is reserved or empty: %w", name, base.ErrInvalid)
	case len(name) > limits.MaxTagBytes:
		return fmt.Errorf("tag of %d bytes, at most %d are allowed: %w", len(name), limits.MaxTagBytes, base.ErrTooLarge)
	case !utf8.ValidString(name):
		return fmt.Errorf("tag %q is not UTF-8: %w", name, base.ErrInvalid)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '~' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return fmt.Errorf("tag %q contains a '~', a space or a control character: %w", name, base.ErrInvalid)
	case name == noRevision:
		return fmt.Errorf("tag %q: that name stands for no commit: %w", name, base.ErrInvalid)
	case isIDPrefix(name):
		return fmt.Errorf("tag %q reads like the id of a commit: %w", name, base.ErrInvalid)
	}
	if _, ok := parseRevisionTime(name); ok {
		return fmt.Errorf("tag %q reads like a time: %w", name, base.ErrInvalid)
	}
	return nil
}

// isIDPrefix reports whether name has the form of a commit id or its prefix.
func isIDPrefix(name string) bool {
	if len(name) < minPrefix || len(name) > 2*commit.IDSize {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') })
}

// ValidateRevision verifies that a revision has the form that Page.Resolve reads. Errors:
// ErrInvalid.
func ValidateRevision(revision string) error {
	_, _, err := parseRevision(revision)
	return err
}

// ValidateLedgerName verifies the name of a ledger, which has 1 to 150 bytes. Errors: ErrInvalid,
// ErrTooLarge.
func ValidateLedgerName(name string) error {
	return validateName("ledger", name, limits.MaxLedgerNameBytes)
}

// ValidatePageName verifies the name of a page, which has 1 to 1024 bytes. Errors: ErrInvalid,
// ErrTooLarge.
func ValidatePageName(name string) error { return validateName("page", name, limits.MaxPageNameBytes) }

func validateName(what, name string, most int) error {
	if name == "" {
		return fmt.Errorf("the name of a %s is empty: %w", what, base.ErrInvalid)
	}
	if len(name) > most {
		return fmt.Errorf("the name of a %s has %d bytes, at most %d are allowed: %w", what, len(name), most, base.ErrTooLarge)
	}
	return nil
}
