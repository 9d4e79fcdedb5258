package cli

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/spf13/cobra"
)

// pageName is a page as it is named on the command line: LEDGER, or LEDGER/PAGE.
type pageName struct {
	text   string // as it was written
	ledger string
	page   string         // the human name; "" for the root page and when id is set
	id     *ledger.PageID // when PAGE was 32 hexadecimal digits
}

// parsePageName reads LEDGER or LEDGER/PAGE: the first slash divides, then %XX in either part
// stands for a byte.
func parsePageName(cmd *cobra.Command, text string) (pageName, error) {
	n := pageName{text: text}
	first, second, hasPage := strings.Cut(text, "/")
	var err error
	if n.ledger, err = unescape(first); err != nil {
		return n, usagef(cmd, "read page %q: %w", text, err)
	}
	if n.ledger == "" {
		return n, usagef(cmd, "read page %q: the name of the ledger is empty, want LEDGER or LEDGER/PAGE", text)
	}
	if err := admin.ValidateName(n.ledger); err != nil {
		return n, wrong(cmd, err)
	}
	if !hasPage {
		return n, nil
	}
	if second == "" {
		return n, usagef(cmd, "read page %q: the name of the page is empty, the root page is named %q", text, first)
	}
	if id, err := ledger.ParsePageID(second); err == nil {
		n.id = &id
		return n, nil
	}
	if n.page, err = unescape(second); err != nil {
		return n, usagef(cmd, "read page %q: %w", text, err)
	}
	return n, wrong(cmd, admin.ValidateName(n.page))
}

// pageID returns the id of the page.
func (n pageName) pageID() ledger.PageID {
	switch {
	case n.id != nil:
		return *n.id
	case n.page != "":
		return ledger.DerivePageID(n.ledger, n.page)
	}
	return ledger.PageID{} // the root page
}

// ref returns the page as the library names it.
func (n pageName) ref() ledger.PageRef { return ledger.PageRef{Ledger: n.ledger, ID: n.pageID()} }

// pageRefs reads the pages that a verb was given, and remembers how the user has called them.
func (a *app) pageRefs(cmd *cobra.Command, args []string) ([]ledger.PageRef, error) {
	var refs []ledger.PageRef
	for _, arg := range args {
		name, err := parsePageName(cmd, arg)
		if err != nil {
			return nil, err
		}
		a.named = append(a.named, name)
		refs = append(refs, name.ref())
	}
	return refs, nil
}

// pageSet is a page, all pages of a ledger, or all pages of the repository.
type pageSet struct {
	all    bool // of the repository
	ledger bool // of the ledger of name
	name   pageName
}

// parsePageSet reads LEDGER/PAGE, LEDGER for the root page, or LEDGER/ for all pages of a ledger.
// Without an argument it is all pages.
func (a *app) parsePageSet(cmd *cobra.Command, args []string) (pageSet, error) {
	if len(args) == 0 {
		return pageSet{all: true}, nil
	}
	text, whole := strings.CutSuffix(args[0], "/")
	name, err := parsePageName(cmd, text)
	if err != nil {
		return pageSet{}, err
	}
	if whole && (name.page != "" || name.id != nil) {
		return pageSet{}, usagef(cmd, "%q names a page, want LEDGER/ for all pages of a ledger", args[0])
	}
	if !whole {
		a.named = []pageName{name}
	}
	return pageSet{ledger: whole, name: name}, nil
}

// has reports whether a page is in the set.
func (s *pageSet) has(page ledger.PageRef) bool {
	return s.all || s.ledger && page.Ledger == s.name.ledger || !s.ledger && page == s.name.ref()
}

// none is the error of verbs that list pages when the set has none.
func (a *app) none(s *pageSet) error {
	if s.ledger {
		return withHint(classedf(ledger.ErrNotFound, "ledger %q has no pages in this repository", s.name.ledger), "%s", a.command("ls"))
	}
	return a.noPage(s.name)
}

var errEscape = errors.New("a percent sign must be followed by two hexadecimal digits; the sign itself is written %25")

// unescape replaces %XX by the byte with that number.
func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errEscape
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", errEscape
		}
		b.WriteByte(byte(v))
		i += 2
	}
	return b.String(), nil
}

// nameOf returns the name by which the command line reaches a page.
func nameOf(ledgerName, page string, id ledger.PageID) string {
	return base.PageName(ledgerName, page, id)
}

// key reads a key of the command line: as it stands, or as hexadecimal digits with --hex.
func (a *app) key(cmd *cobra.Command, text string) ([]byte, error) {
	key := []byte(text)
	if a.hex {
		var err error
		if key, err = hex.DecodeString(text); err != nil {
			return nil, usagef(cmd, "read key %q as hexadecimal digits (--hex): %w", text, err)
		}
	}
	return key, wrong(cmd, admin.ValidateKey(key))
}

// oneKey reads an argument that is one key. It refuses the empty key, which is mostly a variable of
// a script that is not set; --hex has it.
func (a *app) oneKey(cmd *cobra.Command, text string) ([]byte, error) {
	if text == "" && !a.hex {
		return nil, withHint(usagef(cmd, "the key is empty"), "give a key; with --hex '' is the empty key")
	}
	return a.key(cmd, text)
}

// keyText returns a key as it is printed: as it stands when it is printable, else quoted as in Go;
// or as hexadecimal digits with --hex.
func (a *app) keyText(key []byte) string {
	if a.hex {
		return hex.EncodeToString(key)
	}
	return quoted(string(key))
}

// maxKeyText is how many characters of a key an error shows.
const maxKeyText = 80

// shortKey is keyText for errors and messages, where a long key would hide what is said.
func (a *app) shortKey(key []byte) string {
	s := a.keyText(key)
	if utf8.RuneCountInString(s) <= maxKeyText {
		return s
	}
	return string([]rune(s)[:maxKeyText]) + "..."
}

// quoted returns s as it stands when every character is printable and it cannot be taken for
// something else, and quoted otherwise.
func quoted(s string) string {
	if s == "" || s[0] == '"' || s[0] == ' ' || s[len(s)-1] == ' ' || !isPrintable(s) {
		return strconv.Quote(s)
	}
	return s
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// printable returns s with everything that is not printable escaped, line breaks too.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
