package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"golang.org/x/term"
)

// kindsMembers are what takes space, as status --space --json prints it.
func kindsMembers(k admin.SpaceKinds, garbage int64) object {
	return object{"values", k.Values, "nodes", k.Nodes, "commits", k.Commits, "rest", k.Rest, "index", k.Index, "other", k.Other, "garbage", garbage}
}

func (a *app) usageOf(ctx context.Context, repo *ledger.Repository, set *pageSet, bars bool) error {
	u, err := admin.Usage(ctx, repo)
	if err != nil {
		return err
	}
	var pages []admin.PageUsage
	for _, p := range u.Pages {
		if set.has(p.PageRef) {
			pages = append(pages, p)
		}
		if p.Err != nil {
			a.warn(fmt.Errorf("page %s: %w", nameOf(p.Ledger, p.Name, p.ID), p.Err))
		}
	}
	switch {
	case set.some && len(pages) == 0:
		return a.none(set)
	case a.json:
		a.usageJSON(&u, pages)
		return nil
	case bars:
		a.drawBars(pages)
		return nil
	}
	a.usageTable(pages)
	if !set.some {
		a.usageSums(&u)
	}
	return nil
}

func (a *app) usageJSON(u *admin.RepositoryUsage, pages []admin.PageUsage) {
	o := append(object{"size", u.SizeBytes}, append(kindsMembers(u.Kinds, u.Garbage), "evictable", u.EvictableBytes)...)
	if u.FreeBytes >= 0 {
		o = append(o, "diskFree", u.FreeBytes)
	}
	a.emit(o)
	for i := range pages {
		p := &pages[i]
		page := pageObject(p.PageInfo)
		away := len(page) - 2 // stands beside the size that the page had
		a.emit(append(slices.Concat(page[:away], kindsMembers(p.Kinds, p.Garbage), object{"open?", p.State == ledger.PageOpen}, page[away:]), "sizeBefore?", p.EvictedBytes,
			"unsynced", p.Unsynced, "evictable", p.Bar == admin.EvictFree, "bar?", barText(p.Bar), "reason?", p.Reason, "error?", p.Err))
	}
}

func (a *app) usageTable(pages []admin.PageUsage) {
	names := objects(pages, func(p admin.PageUsage) string { return nameOf(p.Ledger, p.Name, p.ID) })
	columns := table{{"page", widest(append(names, "page")...)}, {"size", 10}, {"last closed", -19}, {"evict", 0}}
	if len(pages) > 0 {
		a.heads(columns)
	}
	for i := range pages {
		p := &pages[i]
		closed := choose(p.State == ledger.PageOpen, "open", clockText(p.LastClosed))
		a.row(columns, nil, names[i], sizeText(p.SizeBytes), closed, evictText(p))
	}
}

// evictText says in a few words whether a page could be evicted.
func evictText(p *admin.PageUsage) string {
	switch {
	case p.State == ledger.PageEvicted:
		return "in the cloud only, was " + sizeText(p.EvictedBytes)
	case p.Bar == admin.EvictFree:
		return "yes"
	}
	return "no: " + printable(p.Reason)
}

func (a *app) usageSums(u *admin.RepositoryUsage) {
	k := &u.Kinds
	a.printf("\n%-10s  %10s\n", "total", sizeText(u.SizeBytes))
	for _, row := range []struct {
		name  string
		bytes int64
	}{{"values", k.Values}, {"trees", k.Nodes}, {"commits", k.Commits}, {"rest", k.Rest}, {"index", k.Index}, {"other", k.Other}} {
		a.printIf(row.bytes > 0, "  %-8s  %10s  %6s\n", row.name, sizeText(row.bytes), shareText(row.bytes, u.SizeBytes))
	}
	a.printIf(u.Garbage > 0, "%-10s  %10s\n", "garbage", sizeText(u.Garbage))
	a.printf("%-10s  %10s\n", "evictable", sizeText(u.EvictableBytes))
	a.printIf(u.FreeBytes >= 0, "%-10s  %10s\n", "disk free", sizeText(u.FreeBytes))
}

// plainWidth is how wide bars are drawn where there is no terminal.
const plainWidth = 80

// drawBars draws the pages as bars that fill the width of the terminal; in ASCII when the output is
// none.
func (a *app) drawBars(pages []admin.PageUsage) {
	width, full, part := plainWidth, "#", "-"
	if f, ok := isTerminal(a.process.Stdout, term.IsTerminal); ok {
		full, part = "█", "░"
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width = w
		}
	}
	for _, line := range barLines(pages, width, full, part) {
		a.printf("%s\n", line)
	}
}

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
