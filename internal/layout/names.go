package layout

import (
	"crypto/sha256"
	"encoding/base32"

	"github.com/ledgerd/ledger/internal/base"
)

// Page names a page within a repository.
type Page = base.Page

// lowerHex32 is the base32hex alphabet in lower case: it keeps the order, and no two names differ
// only in case.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	// maxPlainName is the greatest length of a ledger name that is encoded in its directory's name:
	// 240 characters, which every file system allows.
	maxPlainName = 150
	// hashedMark begins the directory name of a ledger with a longer name. It is no digit of the
	// encoding.
	hashedMark = "x"
)

// LedgerDirName returns the name of a ledger's directory.
func LedgerDirName(ledger string) string {
	if SpelledOut(ledger) {
		return lowerHex32.EncodeToString([]byte(ledger))
	}
	sum := sha256.Sum256([]byte(ledger))
	return hashedMark + lowerHex32.EncodeToString(sum[:])
}

// parseLedgerDirName returns the ledger of a directory. plain is false for a hashed name, whose
// ledger is in a file, and ok is false for other names.
func parseLedgerDirName(name string) (ledger string, plain, ok bool) {
	if len(name) > 1 && name[:1] == hashedMark {
		b, err := lowerHex32.DecodeString(name[1:])
		return "", false, err == nil && len(b) == sha256.Size
	}
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) == 0 || LedgerDirName(string(b)) != name {
		return "", false, false
	}
	return string(b), true, true
}

// SpelledOut reports whether the directory's name encodes the ledger's name. If not, a file
// LedgerName in the directory has it.
func SpelledOut(ledger string) bool { return len(ledger) <= maxPlainName }

// PageDirName returns the name of a page's directory within that of its ledger.
func PageDirName(id [16]byte) string { return lowerHex32.EncodeToString(id[:]) }

func parsePageDirName(name string) (id [16]byte, ok bool) {
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) != len(id) || PageDirName([16]byte(b)) != name {
		return id, false
	}
	return [16]byte(b), true
}
