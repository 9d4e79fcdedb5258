package layout

import (
	"encoding/base32"

	"github.com/ledgerd/ledger/internal/base"
)

// Page names a page within a repository.
type Page = base.Page

// lowerHex32 is the base32hex alphabet in lower case: it keeps the order, and no two names differ
// only in case.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// LedgerDirName returns the name of a ledger's directory.
func LedgerDirName(ledger string) string { return lowerHex32.EncodeToString([]byte(ledger)) }

// parseLedgerDirName returns the ledger of a directory. ok is false for other names.
func parseLedgerDirName(name string) (ledger string, ok bool) {
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) == 0 || LedgerDirName(string(b)) != name {
		return "", false
	}
	return string(b), true
}

// PageDirName returns the name of a page's directory within that of its ledger.
func PageDirName(id [16]byte) string { return lowerHex32.EncodeToString(id[:]) }

func parsePageDirName(name string) (id [16]byte, ok bool) {
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) != len(id) || PageDirName([16]byte(b)) != name {
		return id, false
	}
	return [16]byte(b), true
}
