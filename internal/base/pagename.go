package base

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Page names a page within a repository.
type Page struct {
	Ledger string // the full name of its ledger
	ID     [16]byte
}

// Text formats the page for users; name is its human name, "" when unknown.
func (p Page) Text(name string) string { return PageName(p.Ledger, name, p.ID) }

// Compare orders pages by their ledger, then by id.
func (p Page) Compare(other Page) int {
	return cmp.Or(strings.Compare(p.Ledger, other.Ledger), bytes.Compare(p.ID[:], other.ID[:]))
}

// PageName formats a page for users as the command line does: LEDGER for the root page, whose id is
// zero, LEDGER/PAGE for a page with a human name, and LEDGER/ID otherwise. A byte that is ambiguous
// or not printable is written %XX, so that different pages have different names.
func PageName(ledger, page string, id [16]byte) string {
	name := escape(ledger, false)
	switch {
	case id == [16]byte{}:
		return name
	case page == "":
		return name + "/" + hex.EncodeToString(id[:])
	}
	second := escape(page, true)
	if _, err := hex.DecodeString(second); err == nil && len(second) == 2*len(id) {
		second = fmt.Sprintf("%%%02X", second[0]) + second[1:] // a name that looks like an id
	}
	return name + "/" + second
}

// escape writes spaces, percent signs and bytes outside printable characters as %XX, and slashes
// unless slash is set.
func escape(s string, slash bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		plain := r != '%' && r != ' ' && (r != '/' || slash) && strconv.IsPrint(r) && (r != utf8.RuneError || size > 1)
		for ; size > 0; size-- {
			if plain {
				b.WriteByte(s[i])
			} else {
				fmt.Fprintf(&b, "%%%02X", s[i])
			}
			i++
		}
	}
	return b.String()
}
