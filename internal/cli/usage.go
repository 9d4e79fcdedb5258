package cli

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"golang.org/x/term"
)

// kindsJSON is what takes space, in status --space --json.
type kindsJSON struct {
	Values  int64 `json:"values"`
	Nodes   int64 `json:"nodes"`
	Commits int64 `json:"commits"`
	Rest    int64 `json:"rest"`
	Index   int64 `json:"index"`
	Other   int64 `json:"other"`
	Garbage int64 `json:"garbage"`
}

func newKindsJSON(k admin.SpaceKinds, garbage int64) kindsJSON {
	return kindsJSON{k.Values, k.Nodes, k.Commits, k.Rest, k.Index, k.Other, garbage}
}

// usageJSON is the repository as status --space --json prints it, before its pages.
type usageJSON struct {
	Size int64 `json:"size"`
	kindsJSON
	Evictable int64  `json:"evictable"`
	Free      *int64 `json:"diskFree,omitempty"`
}

// pageUsageJSON is one page of status --space --json.
type pageUsageJSON struct {
	pageJSON
	kindsJSON
	Open      bool   `json:"open,omitempty"`
	Away      bool   `json:"inCloudOnly,omitempty"` // beside sizeBefore
	AwaySize  int64  `json:"sizeBefore,omitempty"`
	Unsynced  int    `json:"unsynced"`
	Evictable bool   `json:"evictable"`
	Bar       string `json:"bar,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newPageUsageJSON(p *admin.PageUsage) pageUsageJSON {
	j := pageUsageJSON{
		pageJSON: newPageJSON(p.PageInfo), kindsJSON: newKindsJSON(p.Kinds, p.Garbage), Open: p.State == ledger.PageOpen,
		Away: p.State == ledger.PageEvicted, AwaySize: p.EvictedBytes, Unsynced: p.Unsynced,
		Evictable: p.Bar == admin.EvictFree, Reason: p.Reason, Error: errText(p.Err),
	}
	if p.Bar != admin.EvictFree {
		j.Bar = p.Bar.String()
	}
	return j
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
	case !set.all && len(pages) == 0:
		return a.none(set)
	case a.json:
		return a.usageJSON(&u, pages)
	case bars:
		a.drawBars(pages)
		return nil
	}
	a.usageTable(pages)
	if set.all {
		a.usageSums(&u)
	}
	return nil
}

func (a *app) usageJSON(u *admin.RepositoryUsage, pages []admin.PageUsage) error {
	j := usageJSON{Size: u.SizeBytes, kindsJSON: newKindsJSON(u.Kinds, u.Garbage), Evictable: u.EvictableBytes}
	if u.FreeBytes >= 0 {
		j.Free = &u.FreeBytes
	}
	if err := a.emit(j); err != nil {
		return err
	}
	for i := range pages {
		if err := a.emit(newPageUsageJSON(&pages[i])); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) usageTable(pages []admin.PageUsage) {
	width := len("page")
	for _, p := range pages {
		width = max(width, len(nameOf(p.Ledger, p.Name, p.ID)))
	}
	if len(pages) > 0 {
		a.printf("%-*s  %10s  %-19s  %s\n", width, "page", "size", "last closed", "evict")
	}
	for i := range pages {
		p := &pages[i]
		closed := "-"
		switch {
		case p.State == ledger.PageOpen:
			closed = "open"
		case !p.LastClosed.IsZero():
			closed = p.LastClosed.UTC().Format("2006-01-02 15:04:05")
		}
		a.printf("%-*s  %10s  %-19s  %s\n", width, nameOf(p.Ledger, p.Name, p.ID), sizeText(p.SizeBytes), closed, evictText(p))
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
		if row.bytes > 0 {
			a.printf("  %-8s  %10s  %6s\n", row.name, sizeText(row.bytes), shareText(row.bytes, u.SizeBytes))
		}
	}
	if u.Garbage > 0 {
		a.printf("%-10s  %10s\n", "garbage", sizeText(u.Garbage))
	}
	a.printf("%-10s  %10s\n", "evictable", sizeText(u.EvictableBytes))
	if u.FreeBytes >= 0 {
		a.printf("%-10s  %10s\n", "disk free", sizeText(u.FreeBytes))
	}
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
