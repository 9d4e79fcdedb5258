package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

const (
	// minBar is the shortest space for bars; names are cut for it.
	minBar = 10
	// sizeColumn is what the size takes, with the spaces around it.
	sizeColumn = 12
)

// barLines draws pages as bars, the largest first, in lines of at most width columns. A page that
// is in the cloud only is drawn, as what it took, with part.
func barLines(pages []admin.PageUsage, width int, full, part string) []string {
	type bar struct {
		name  string
		bytes int64
		glyph string
	}
	var bars []bar
	names, most := 0, int64(0)
	for _, p := range pages {
		b := bar{nameOf(p.Ledger, p.Name, p.ID), p.SizeBytes, full}
		if p.State == ledger.PageEvicted {
			b.bytes, b.glyph = p.EvictedBytes, part
		}
		names, most = max(names, utf8.RuneCountInString(b.name)), max(most, b.bytes)
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(b.bytes, a.bytes) })
	names = max(min(names, width-sizeColumn-minBar), 8)
	room := max(width-names-sizeColumn-1, 1)
	var lines []string
	for _, b := range bars {
		n := 0
		if b.bytes > 0 {
			n = max(1, int(float64(b.bytes)/float64(most)*float64(room)))
		}
		line := fmt.Sprintf("%-*s %*s %s", names, fit(b.name, names), sizeColumn-2, sizeText(b.bytes), strings.Repeat(b.glyph, n))
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// fit cuts a name to n characters, 4 or more.
func fit(name string, n int) string {
	if utf8.RuneCountInString(name) <= n {
		return name
	}
	return string([]rune(name)[:n-3]) + "..."
}
