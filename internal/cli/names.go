package cli

import (
	"encoding/hex"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/base"
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
func parsePageName(text string) (pageName, error) {
	n := pageName{text: text}
	first, second, hasPage := strings.Cut(text, "/")
	var err error
	if n.ledger, err = unescape(first); err != nil {
		return n, usagef("read page %q: %w", text, err)
	}
	if n.ledger == "" {
		return n, usagef("read page %q: the name of the ledger is empty, want LEDGER or LEDGER/PAGE", text)
	}
	if err := admin.ValidateName(n.ledger); err != nil {
		return n, wrong(err)
	}
	if !hasPage {
		return n, nil
	}
	if second == "" {
		return n, usagef("read page %q: the name of the page is empty, the root page is named %q", text, first)
	}
	if id, err := ledger.ParsePageID(second); err == nil {
		n.id = &id
		return n, nil
	}
	if n.page, err = unescape(second); err != nil {
		return n, usagef("read page %q: %w", text, err)
	}
	return n, wrong(admin.ValidateName(n.page))
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

func (n *pageName) read(_ *app, text string) (err error) {
	*n, err = parsePageName(text)
	return err
}

// pageArg is that of verbs that are about one page.
type pageArg struct {
	Page pageName `arg:""`
}

func (p pageArg) page() pageName { return p.Page }

// pageRefs are the pages that a verb was given. It is remembered how the user has called them.
type pageRefs []ledger.PageRef

func (p *pageRefs) read(a *app, text string) error {
	name, err := parsePageName(text)
	a.named, *p = append(a.named, name), append(*p, name.ref())
	return err
}

// pageSet is a page, all pages of a ledger, or all pages of the repository, without an argument.
type pageSet struct {
	some   bool // not all of the repository
	ledger bool // all of the ledger of name
	name   pageName
}

// read reads LEDGER/PAGE, LEDGER for the root page, or LEDGER/ for all pages of a ledger.
func (s *pageSet) read(a *app, text string) (err error) {
	s.some = true
	text, s.ledger = strings.CutSuffix(text, "/")
	s.name, err = parsePageName(text)
	switch {
	case err != nil:
		return err
	case !s.ledger:
		a.named = []pageName{s.name}
	case s.name.page != "" || s.name.id != nil:
		return usagef("%q names a page, want LEDGER/ for all pages of a ledger", text+"/")
	}
	return nil
}

// has reports whether a page is in the set.
func (s *pageSet) has(page ledger.PageRef) bool {
	return !s.some || s.ledger && page.Ledger == s.name.ledger || !s.ledger && page == s.name.ref()
}

// none is the error of verbs that list pages when the set has none.
func (a *app) none(s *pageSet) error {
	if s.ledger {
		return withHint(classedf(ledger.ErrNotFound, "ledger %q has no pages in this repository", s.name.ledger), "%s", a.command("ls"))
	}
	return a.noPage(s.name)
}

// unescape replaces %XX by the byte with that number.
func unescape(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err != nil {
		return "", errors.New("a percent sign must be followed by two hexadecimal digits; the sign itself is written %25")
	}
	return text, nil
}

// nameOf returns the name by which the command line reaches a page.
func nameOf(ledgerName, page string, id ledger.PageID) string {
	return base.PageName(ledgerName, page, id)
}

// key reads a key of the command line: as it stands, or as hexadecimal digits with --hex.
func (a *app) key(text string) ([]byte, error) {
	key := []byte(text)
	if a.hex {
		var err error
		if key, err = hex.DecodeString(text); err != nil {
			return nil, usagef("read key %q as hexadecimal digits (--hex): %w", text, err)
		}
	}
	return key, wrong(admin.ValidateKey(key))
}

// prefix is an argument or flag that is what keys begin with, or a whole key.
type prefix struct {
	text  string
	bytes []byte
}

func (p *prefix) read(a *app, text string) (err error) {
	p.text = text
	p.bytes, err = a.key(text)
	return err
}

// oneKey is an argument that is one key. The empty key is refused, which is mostly a variable of a
// script that is not set; --hex has it.
type oneKey []byte

func (k *oneKey) read(a *app, text string) (err error) {
	if text == "" && !a.hex {
		return withHint(usagef("the key is empty"), "give a key; with --hex '' is the empty key")
	}
	*k, err = a.key(text)
	return err
}

// someKeys are arguments of which each is one key.
type someKeys []oneKey

func (s *someKeys) read(a *app, text string) error {
	var key oneKey
	err := key.read(a, text)
	*s = append(*s, key)
	return err
}

// keyText returns a key as it is printed: as it stands when it is printable, else quoted as in Go;
// or as hexadecimal digits with --hex.
func (a *app) keyText(key []byte) string {
	return choose(a.hex, hex.EncodeToString(key), quoted(string(key)))
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
