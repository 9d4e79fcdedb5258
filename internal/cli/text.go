package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// printf prints to the standard output. An error is kept by the output and comes back from its
// Flush.
func (a *app) printf(format string, args ...any) {
	fmt.Fprintf(a.out, format, args...)
}

// printIf is printf where a condition holds.
func (a *app) printIf(holds bool, format string, args ...any) {
	if holds {
		a.printf(format, args...)
	}
}

// summary prints for people what a verb comes to that has printed its results.
func (a *app) summary(format string, args ...any) { a.printIf(!a.json && !a.quiet, format, args...) }

// choose returns yes where a condition holds, and no otherwise.
func choose[T any](holds bool, yes, no T) T {
	if holds {
		return yes
	}
	return no
}

// joined joins the texts that are not empty.
func joined(between string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), between)
}

// counted is how many of several conditions hold.
func counted(all ...bool) (n int) {
	for _, holds := range all {
		n += choose(holds, 1, 0)
	}
	return n
}

// errText is an error as it is printed; "" for none.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return printable(err.Error())
}

// sizeText is a number of bytes for people: at most four digits and a binary unit.
func sizeText(n int64) string {
	if n < 1024 && n > -1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for (v >= 1023.95 || v <= -1023.95) && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[0]
}

// countText is a number with its noun in the plural unless the number is 1: commits, keys, entries.
func countText[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shareText is part of whole in per cent.
func shareText(part, whole int64) string {
	return choose(whole == 0, "-", strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64)+"%")
}

// clockText is a time for people, to the second in UTC; "-" for none.
func clockText(t time.Time) string {
	return choose(t.IsZero(), "-", t.UTC().Format("2006-01-02 15:04:05"))
}

// durationText is a duration for people, such as "1:05" or "2:00:10".
func durationText(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	return choose(s >= 3600, fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60), fmt.Sprintf("%d:%02d", s/60, s%60))
}

// table is the columns of lines that are printed as they come.
type table []column

// column has its heading, and its width as fmt takes it: below 0 the text begins at the left.
type column struct {
	head  string
	width int
}

// heads prints the headings.
func (a *app) heads(t table) {
	a.printIf(!a.json, "%s\n", t.line(objects(t, func(c column) any { return c.head })...))
}

// row prints j with --json, else a line of the table.
func (a *app) row(t table, j object, cells ...any) {
	a.print(j, "%s\n", t.line(cells...))
}

// line puts a cell into each column.
func (t table) line(cells ...any) string {
	texts := make([]string, len(t))
	for i, c := range t {
		texts[i] = fmt.Sprintf("%*v", c.width, cells[i])
	}
	return strings.Join(texts, "  ")
}

// widest is the width of a column of texts that begin at the left.
func widest(texts ...string) int {
	width := 0
	for _, text := range texts {
		width = max(width, utf8.RuneCountInString(text))
	}
	return -width
}

// maxValueText is how many bytes of a value a line shows.
const maxValueText = 64

// valueText is what a key has, for people: a short value quoted, of a longer one size and object or
// beginning; nil is no entry.
func valueText(ctx context.Context, e *ledger.Entry) (string, error) {
	switch {
	case e == nil:
		return "no value", nil
	case !e.Inline:
		return sizeText(e.Size) + " " + e.Object[:16] + "...", nil
	}
	value, err := e.Value(ctx)
	if err != nil {
		return "", fmt.Errorf("read value: %w", err)
	}
	shown, long := value[:min(len(value), maxValueText)], len(value) > maxValueText
	return strconv.Quote(string(shown)) + choose(long, "... ("+sizeText(e.Size)+")", ""), nil
}

// valueObject is what a key has, as --json prints it: with the value itself when it is short. It is
// nil for no entry.
func valueObject(ctx context.Context, e *ledger.Entry) (object, error) {
	if e == nil || !e.Inline {
		return sideObject(e), nil
	}
	value, err := e.Value(ctx)
	if err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	return append(sideObject(e), "value", jsonBytes(value)), nil
}
