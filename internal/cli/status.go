package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
	"golang.org/x/term"
)

type statusFlags struct {
	Pages pageSet `arg:""`
	Space bool    `flag:"space" usage:"show what takes space in each page"`
	Bars  bool    `flag:"bars" usage:"draw the sizes of pages as bars"`
}

func (a *app) status(ctx context.Context, f statusFlags) error {
	return a.read(ctx, func(repo *ledger.Repository) error {
		if f.Space || f.Bars {
			return a.usageOf(ctx, repo, &f.Pages, f.Bars)
		}
		return a.statusOf(ctx, repo, &f.Pages)
	})
}

// garbageObject is the garbage collected from a page since it was opened; nil for nothing.
func garbageObject(g admin.GarbageState) object {
	return when(!g.Last.IsZero(), "due", g.Due, "last", g.Last, "pieces", g.Pieces, "nodes", g.Nodes, "bytes", g.Bytes,
		"error?", g.Err)
}

func (a *app) garbage(g admin.GarbageState) {
	if g.Last.IsZero() {
		return
	}
	a.printf("  garbage   last collection %s; %s deleted since the page was opened\n", timeText(g.Last), sizeText(g.Bytes))
	a.printIf(g.Err != nil, "            not collected: %s\n", errText(g.Err))
}

func (a *app) statusOf(ctx context.Context, repo *ledger.Repository, set *pageSet) error {
	s, err := admin.Status(ctx, repo)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	s.Pages = slices.DeleteFunc(s.Pages, func(p admin.PageStatus) bool { return !set.has(p.PageRef) })
	switch {
	case set.some && len(s.Pages) == 0:
		return a.none(set)
	case set.some: // the user asked for pages only
	case a.json:
		a.emit(object{
			"dir", a.dir, "id", s.ID, "format", s.FormatVersion, "pages", len(s.Pages), "size", s.SizeBytes, "heads", s.Heads, "unsynced", s.Unsynced,
			"cloud?", cloudStatusObject(s.Cloud),
		})
	default:
		a.printf("repository  %s\nid          %s\nformat      %d\nsize        %s in %s\nunsynced    %s\n",
			quoted(a.dir), s.ID, s.FormatVersion, sizeText(s.SizeBytes), countText(len(s.Pages), "page"), countText(s.Unsynced, "commit"))
		a.cloudStatus(s.Cloud)
	}
	var bad error
	for _, p := range s.Pages {
		a.pageStatus(p, s.Cloud != nil)
		if p.Err != nil {
			bad = errors.Join(bad, fmt.Errorf("page %s: %w", nameOf(p.Ledger, p.Name, p.ID), p.Err))
		}
	}
	return bad
}

func (a *app) pageStatus(p admin.PageStatus, cloud bool) {
	if a.json {
		read := p.Err == nil
		a.emit(slices.Concat(pageObject(p.PageInfo), object{"heads", p.Heads},
			when(read, "newest", p.Newest.ID, "time", p.Newest.Time),
			object{"unsynced", p.Unsynced, "aheadSeconds?", p.Ahead.Seconds(), "torn?", objects(p.Torn, tornText)},
			object{"indexRebuilt?", p.IndexRebuilt, "error?", p.Err}, when(read, "collected?", garbageObject(p.Garbage)),
			when(read && cloud, "sync", syncStateObject(p.Sync))))
		return
	}
	a.printf("\n%s\n  size      %s\n", nameOf(p.Ledger, p.Name, p.ID), sizeText(p.SizeBytes))
	if p.Err != nil {
		a.printf("  error     %s\n", errText(p.Err))
		return
	}
	a.printf("  newest    %s, %s, generation %d\n", p.Newest.ID.Short(), timeText(p.Newest.Time), p.Newest.Generation)
	a.printIf(p.Heads > 1, "  heads     %d, not merged yet\n", p.Heads)
	a.printf("  unsynced  %s\n", countText(p.Unsynced, "commit"))
	if cloud {
		a.syncState(p.Sync)
	}
	a.printIf(p.Ahead > 0, "  ahead     the newest commit is %s ahead of this clock\n", durationText(p.Ahead))
	a.garbage(p.Garbage)
	a.printRecovery(p.Torn, p.IndexRebuilt)
}

// kindsMembers are the kinds of occupied space, as status --space --json prints them.
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
	a.emit(slices.Concat(object{"size", u.SizeBytes}, kindsMembers(u.Kinds, u.Garbage),
		object{"evictable", u.EvictableBytes},
		when(u.FreeBytes >= 0, "diskFree", u.FreeBytes)))
	for i := range pages {
		p := &pages[i]
		page := pageObject(p.PageInfo)
		away := len(page) - 2 // index of inCloudOnly?, to print next to sizeBefore?
		a.emit(append(slices.Concat(page[:away], kindsMembers(p.Kinds, p.Garbage), object{"open?", p.State == ledger.PageOpen}, page[away:]), "sizeBefore?", p.EvictedBytes,
			"unsynced", p.Unsynced, "evictable", p.Bar == admin.EvictFree, "bar?", barText(p.Bar), "reason?", p.Reason,
			"error?", p.Err))
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

// evictText says briefly whether a page can be evicted.
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

// plainWidth is the width of the bars, in columns, without a terminal.
const plainWidth = 80

// drawBars draws the pages as bars over the width of the terminal. Without a terminal the bars are
// ASCII.
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
	// minBar is the least width of the bars; longer names are cut for it.
	minBar = 10
	// sizeColumn is the width of the size, with the spaces around it.
	sizeColumn = 12
)

// barLines draws pages as bars, the largest first, in lines of at most width columns. The bar of a
// page that is away has the size before eviction, and consists of part in place of full.
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
		line := fmt.Sprintf("%-*s %*s %s", names, fit(b.name, names), sizeColumn-2, sizeText(b.bytes),
			strings.Repeat(b.glyph, n))
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// fit cuts a name to n characters; n is at least 4.
func fit(name string, n int) string {
	if utf8.RuneCountInString(name) <= n {
		return name
	}
	return string([]rune(name)[:n-3]) + "..."
}

// Prices of Google Cloud Storage in US dollars, standard class, one region, for the estimate of
// status. They cover requests and downloads, not storage.
const (
	priceClassA  = 0.005 / 1000  // a put or list
	priceClassB  = 0.0004 / 1000 // a get
	priceDownGiB = 0.12          // of egress to the Internet, first TiB of a month
)

// costOf estimates the cost of the requests and downloads, in US dollars.
func costOf(c *admin.CloudStatus) float64 {
	return float64(c.A)*priceClassA + float64(c.B)*priceClassB + float64(c.Down)/(1<<30)*priceDownGiB
}

// cloudStatusObject is the cloud in status --json; nil for none.
func cloudStatusObject(c *admin.CloudStatus) object {
	if c == nil {
		return nil
	}
	return append(cloudObject(c.CloudInfo), "lastSuccess?", c.LastSuccess, "oldestUnsynced?", c.OldestUnsynced, "since?", c.Since,
		"classA", c.A, "classB", c.B, "free", c.Free, "upBytes", c.Up, "downBytes", c.Down, "retries", c.Retries,
		"entries", c.Entries, "applied", c.Applied, "checkpoints", c.Checkpoints, "costEstimateDollars", costOf(c))
}

// agoText formats a time and its distance from now, for people; "never" for none.
func (a *app) agoText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	text := clockText(t)
	if ago := a.process.Clock.Now().Sub(t); ago >= 0 {
		text += ", " + ago.Round(time.Second).String() + " ago"
	}
	return text
}

// cloudStatus prints the state of the cloud.
func (a *app) cloudStatus(c *admin.CloudStatus) {
	if c == nil {
		a.printf("cloud       none\n")
		return
	}
	a.printCloud(c.CloudInfo)
	a.printf("last sync   %s\n", a.agoText(c.LastSuccess))
	a.printIf(!c.OldestUnsynced.IsZero(), "oldest unsynced %s\n", a.agoText(c.OldestUnsynced))
	if c.Since.IsZero() {
		return // the recorded figures are damaged
	}
	a.printf("requests    %d of class A (put, list), %d of class B (get), %d free, %d repeated, since %s\n",
		c.A, c.B, c.Free, c.Retries, c.Since.UTC().Format("2006-01-02"))
	a.printf("bytes       %s up, %s down\n", sizeText(c.Up), sizeText(c.Down))
	a.printf("cost        about $%.6f at the prices of Google Cloud Storage, without storage\n", costOf(c))
}

// syncProgressObject is the progress of one direction of sync, in status --json; nil when nothing
// is in flight.
func syncProgressObject(a cloudsync.Activity, p cloudsync.Progress) object {
	return when(a == ledger.SyncInProgress, "values", p.Values, "totalValues", p.TotalValues, "bytes", p.Bytes,
		"totalBytes", p.TotalBytes)
}

// syncErr is the error that keeps a page from being in sync, nil for none.
func syncErr(s ledger.SyncState) error { return cmp.Or(s.UploadErr, s.DownloadErr) }

// syncStateObject is the sync state of a page, in status --json.
func syncStateObject(s ledger.SyncState) object {
	return object{
		"upload", s.Upload, "download", s.Download, "position", s.Position, "oldestUnsynced?", s.OldestUnsynced, "lastSuccess?", s.LastSuccess,
		"serverTime?", s.ServerTime, "paused?", s.Paused, "syncError?", syncErr(s),
		"up?", syncProgressObject(s.Upload, s.Up), "down?", syncProgressObject(s.Download, s.Down),
	}
}

// syncProgress prints the progress of one direction of sync, if it is in progress.
func (a *app) syncProgress(where string, activity cloudsync.Activity, p cloudsync.Progress) {
	a.printIf(activity == ledger.SyncInProgress, "  %-9s %d of %s, %s of %s\n",
		where, p.Values, countText(int(p.TotalValues), "value"), sizeText(p.Bytes), sizeText(p.TotalBytes))
}

// syncState prints the sync state of a page.
func (a *app) syncState(s ledger.SyncState) {
	a.printf("  sync      upload %s, download %s, entry %d, last %s\n", s.Upload, s.Download, s.Position, a.agoText(s.LastSuccess))
	a.syncProgress("up", s.Upload, s.Up)
	a.syncProgress("down", s.Download, s.Down)
	a.printIf(!s.ServerTime.IsZero(), "  received  newest entry of others written %s\n", a.agoText(s.ServerTime))
	a.printIf(!s.OldestUnsynced.IsZero(), "  oldest    unsynced since %s\n", a.agoText(s.OldestUnsynced))
	a.printIf(syncErr(s) != nil, "  problem   the last sync: %s\n", errText(syncErr(s)))
}
