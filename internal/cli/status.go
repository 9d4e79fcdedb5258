package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
)

type statusFlags struct {
	Pages pageSet `arg:""`
	Space bool    `flag:"space" usage:"show what takes space in each page"`
}

func (a *app) status(ctx context.Context, f statusFlags) error {
	return a.read(ctx, func(repo *ledger.Repository) error {
		if f.Space {
			return a.usageOf(ctx, repo, &f.Pages)
		}
		return a.statusOf(ctx, repo, &f.Pages)
	})
}

// garbageObject is the garbage collected from a page since it was opened; nil for nothing.
func garbageObject(g admin.GarbageState) object {
	return when(!g.Last.IsZero(), "due", g.Due, "last", g.Last, "pieces", g.Pieces, "nodes", g.Nodes, "bytes", size(g.Bytes),
		"error?", g.Err)
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
	case !set.some: // otherwise the user asked for pages only
		a.block("", object{
			"dir", a.dir, "id", s.ID, "format", s.FormatVersion, "pages", len(s.Pages), "size", size(s.SizeBytes), "heads", s.Heads,
			"unsynced", s.Unsynced, "cloud?", cloudStatusObject(s.Cloud),
		})
	}
	var bad error
	said := ""
	for _, p := range s.Pages {
		if err := syncErr(p.Sync); err != nil && !a.json {
			if err.Error() == said { // mostly an error of the bucket
				p.Sync.UploadErr = errAsAbove
			}
			said = err.Error()
		}
		a.pageStatus(p, s.Cloud != nil)
		bad = errors.Join(bad, errorOf(p.PageInfo, p.Err))
	}
	return bad
}

// errorOf names the page of an error; nil for none.
func errorOf(p ledger.PageInfo, err error) error {
	if err == nil {
		return nil
	}
	return &ledger.PageError{Page: p.PageRef, Name: p.Name, Err: err}
}

func (a *app) pageStatus(p admin.PageStatus, cloud bool) {
	read := p.Err == nil && p.State != ledger.PageEvicted
	a.printIf(!a.json, "\n")
	a.block("", slices.Concat(pageObject(p.PageInfo), object{"heads", p.Heads},
		when(read, "newest", p.Newest.ID, "time", p.Newest.Time),
		object{"unsynced", p.Unsynced, "aheadSeconds?", p.Ahead.Seconds(), "torn?", objects(p.Torn, tornText)},
		object{"indexRebuilt?", p.IndexRebuilt, "error?", p.Err}, when(read, "collected?", garbageObject(p.Garbage)),
		when(read && cloud, "sync", syncStateObject(p.Sync))))
}

// kindsMembers are the kinds of occupied space, as status --space prints them.
func kindsMembers(k admin.SpaceKinds, garbage int64, mark string) object {
	return object{
		"values" + mark, size(k.Values), "nodes" + mark, size(k.Nodes), "commits" + mark, size(k.Commits), "rest" + mark, size(k.Rest),
		"index" + mark, size(k.Index), "other" + mark, size(k.Other), "garbage" + mark, size(garbage),
	}
}

func (a *app) usageOf(ctx context.Context, repo *ledger.Repository, set *pageSet) error {
	u, err := admin.Usage(ctx, repo)
	if err != nil {
		return err
	}
	var rows []object
	var bad error
	most := int64(1)
	for _, p := range u.Pages {
		if set.has(p.PageRef) {
			most = max(most, p.SizeBytes, p.EvictedBytes)
		}
	}
	for i := range u.Pages {
		p := &u.Pages[i]
		if set.has(p.PageRef) {
			bar := strings.Repeat("#", int((p.SizeBytes*barWidth+most-1)/most))
			if p.State == ledger.PageEvicted {
				bar = strings.Repeat("-", int((p.EvictedBytes*barWidth+most-1)/most))
			}
			rows = append(rows, slices.Concat(pageObject(p.PageInfo), kindsMembers(p.Kinds, p.Garbage, "!"), object{
				"bar~", bar, "open?", p.State == ledger.PageOpen, "sizeBefore?", size(p.EvictedBytes), "unsynced!", p.Unsynced,
				"evictable", p.Bar == admin.EvictFree, "bar!?", barText(p.Bar), "reason?", p.Reason, "error?", p.Err,
			}))
			bad = errors.Join(bad, errorOf(p.PageInfo, p.Err))
		}
	}
	if set.some && len(rows) == 0 {
		return a.none(set)
	}
	if !set.some {
		a.block("", slices.Concat(object{"size", size(u.SizeBytes)}, kindsMembers(u.Kinds, u.Garbage, ""),
			object{"evictable", size(u.EvictableBytes)}, when(u.FreeBytes >= 0, "diskFree", size(u.FreeBytes))))
		a.printIf(!a.json, "\n")
	}
	a.table(rows)
	return bad
}

// barWidth is the width of the bar of the largest page in status --space.
const barWidth = 20

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

// cloudStatusObject is the cloud in status; nil for none.
func cloudStatusObject(c *admin.CloudStatus) object {
	if c == nil {
		return nil
	}
	return append(cloudObject(c.CloudInfo), "lastSuccess?", c.LastSuccess, "oldestUnsynced?", c.OldestUnsynced, "since?", c.Since,
		"classA", c.A, "classB", c.B, "free", c.Free, "upBytes", size(c.Up), "downBytes", size(c.Down), "retries", c.Retries,
		"entries", c.Entries, "applied", c.Applied, "checkpoints", c.Checkpoints, "costEstimateDollars", costOf(c))
}

// syncProgressObject is the progress of one direction of sync, in status --json; nil when nothing
// is in flight.
func syncProgressObject(a cloudsync.Activity, p cloudsync.Progress) object {
	return when(a == ledger.SyncInProgress, "values", p.Values, "totalValues", p.TotalValues, "bytes", size(p.Bytes),
		"totalBytes", size(p.TotalBytes))
}

// errAsAbove stands for the error of the page before.
var errAsAbove = errors.New("as above")

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
