package cli

import (
	"cmp"
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

// pageName is a page in the form of the command line: LEDGER, or LEDGER/PAGE.
type pageName struct {
	text   string // as the user wrote it
	ledger string
	page   string         // name of the page; "" for the root page and when id is set
	id     *ledger.PageID // set when PAGE is 32 hexadecimal digits
}

// parsePageName parses LEDGER or LEDGER/PAGE. It splits at the first slash, and then replaces each
// %XX by its byte.
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
	if err := admin.ValidateLedgerName(n.ledger); err != nil {
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
	return n, wrong(admin.ValidatePageName(n.page))
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

// pageArg is the argument of verbs on one page.
type pageArg struct {
	Page pageName `arg:""`
}

func (p pageArg) page() pageName { return p.Page }

// pageRefs are the pages among the arguments. read records in app.named how the user wrote them.
type pageRefs []ledger.PageRef

func (p *pageRefs) read(a *app, text string) error {
	name, err := parsePageName(text)
	a.named, *p = append(a.named, name), append(*p, name.ref())
	return err
}

// pageSet is a page, all pages of a ledger or, without an argument, all pages of the repository.
type pageSet struct {
	some   bool // an argument restricts the set
	ledger bool // all pages of name's ledger
	name   pageName
}

// read parses LEDGER/PAGE, LEDGER for the root page, or LEDGER/ for all pages of a ledger.
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

// none returns the error of a verb that lists pages when the set is empty.
func (a *app) none(s *pageSet) error {
	if s.ledger {
		return withHint(classedf(ledger.ErrNotFound, "ledger %q has no pages in this repository", s.name.ledger), "%s", a.command("ls"))
	}
	return a.noPage(s.name)
}

// unescape replaces each %XX by its byte.
func unescape(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err != nil {
		return "", errors.New("a percent sign must be followed by two hexadecimal digits; the sign itself is written %25")
	}
	return text, nil
}

// nameOf returns the name of a page on the command line.
func nameOf(ledgerName, page string, id ledger.PageID) string {
	return base.PageName(ledgerName, page, id)
}

// key parses a key of the command line: literal text, or hexadecimal digits with --hex.
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

// prefix is an argument or flag with a prefix of keys, or with a whole key.
type prefix struct {
	text  string
	bytes []byte
}

func (p *prefix) read(a *app, text string) (err error) {
	p.text = text
	p.bytes, err = a.key(text)
	return err
}

// oneKey is an argument with one key. The empty key is an error without --hex, because an empty
// argument is mostly an unset variable of a script.
type oneKey []byte

func (k *oneKey) read(a *app, text string) (err error) {
	if text == "" && !a.hex {
		return withHint(usagef("the key is empty"), "give a key, or --hex '' for the empty key")
	}
	*k, err = a.key(text)
	return err
}

// someKeys are arguments with one key each.
type someKeys []oneKey

func (s *someKeys) read(a *app, text string) error {
	var key oneKey
	err := key.read(a, text)
	*s = append(*s, key)
	return err
}

// keyText formats a key: as it is if it is printable, else quoted as in Go; as hexadecimal digits
// with --hex.
func (a *app) keyText(key []byte) string {
	return choose(a.hex, hex.EncodeToString(key), quoted(string(key)))
}

// maxKeyText is the number of characters of a key that a message shows.
const maxKeyText = 80

// shortKey is keyText for errors and messages: cut to maxKeyText characters, and never empty.
func (a *app) shortKey(key []byte) string {
	s := cmp.Or(a.keyText(key), `""`) // no digits stand for the empty key
	if utf8.RuneCountInString(s) <= maxKeyText {
		return s
	}
	return string([]rune(s)[:maxKeyText]) + "..."
}

// quoted returns s unchanged if every character is printable and s is not ambiguous in a message.
// Otherwise it returns s quoted as in Go.
func quoted(s string) string {
	if s == "" || s[0] == '"' || s[0] == ' ' || s[len(s)-1] == ' ' || !isPrintable(s) {
		return strconv.Quote(s)
	}
	return s
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}

// printable returns s with all unprintable characters escaped, including line breaks.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
