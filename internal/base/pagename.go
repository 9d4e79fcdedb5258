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

// Text names the page for people; name is its human name, "" when that is not known.
func (p Page) Text(name string) string { return PageName(p.Ledger, name, p.ID) }

// Compare orders pages by their ledger, then by id.
func (p Page) Compare(other Page) int {
	return cmp.Or(strings.Compare(p.Ledger, other.Ledger), bytes.Compare(p.ID[:], other.ID[:]))
}

// PageName names a page for people as the command line does: LEDGER for the root page, whose id is
// zero, LEDGER/PAGE for a page with a human name, and LEDGER/ID else. A byte that would be read
// otherwise, or that is not printable, is written %XX, so that different pages have different
// names.
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

// escape writes every byte as %XX that is no part of a printable character, or is a space or a
// percent sign; a slash only where it does not stand by itself.
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
