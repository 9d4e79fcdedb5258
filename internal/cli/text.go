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

// printf prints to the standard output, which keeps an error until Flush.
func (a *app) printf(format string, args ...any) {
	fmt.Fprintf(a.out, format, args...)
}

// printIf is printf if holds is true.
func (a *app) printIf(holds bool, format string, args ...any) {
	if holds {
		a.printf(format, args...)
	}
}

// summary prints, for people, a summary of results that were printed.
func (a *app) summary(format string, args ...any) { a.printIf(!a.json && !a.quiet, format, args...) }

// choose returns yes if holds is true, else no.
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

// counted returns how many of the conditions hold.
func counted(all ...bool) (n int) {
	for _, holds := range all {
		n += choose(holds, 1, 0)
	}
	return n
}

// errText formats an error for output; "" for none.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return printable(err.Error())
}

// sizeText formats a number of bytes for people: at most four digits and a binary unit.
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

// countText formats a number with its noun, which is in the plural.
func countText[N int | int64 | uint64](n N, nouns string) string {
	return fmt.Sprint(n) + " " + choose(n == 1, singular(nouns), nouns)
}

// plurals replaces the ending of a plural.
var plurals = strings.NewReplacer("ies\n", "y", "xes\n", "x", "s\n", "")

// singular returns the singular of words in the plural, and other words as they are.
func singular(words string) string { return strings.TrimSuffix(plurals.Replace(words+"\n"), "\n") }

// clockText formats a time for people, to the second in UTC; "-" for none.
func clockText(t time.Time) string {
	return choose(t.IsZero(), "-", t.UTC().Format("2006-01-02 15:04:05"))
}

// durationText formats a duration for people, such as "1:05" or "2:00:10".
func durationText(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	return choose(s >= 3600, fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60), fmt.Sprintf("%d:%02d", s/60, s%60))
}

// widest returns the width of a left-aligned column for the texts.
func widest(texts ...string) int {
	width := 0
	for _, text := range texts {
		width = max(width, utf8.RuneCountInString(text))
	}
	return -width
}

// maxValueText is the number of bytes of a value that a line shows.
const maxValueText = 64

// valueText formats an entry for people. It quotes an inline value, cut to maxValueText bytes. Of
// another value it has the size and the object. A nil entry has no value.
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

// valueObject is an entry as --json prints it, with the value itself if it is inline; nil for no
// entry.
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
