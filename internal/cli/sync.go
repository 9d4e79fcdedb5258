package cli

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
)

type syncFlags struct {
	Pages pageRefs `arg:"..."`
	passphraseFlag
	spaceFlags
	paceFlags
	Reupload bool `flag:"reupload" usage:"send everything that the bucket lacks"`
}

func (a *app) sync(ctx context.Context, f syncFlags) error {
	o := ledger.Options{MustExist: true}
	f.bound(&o)
	f.limit(&o)
	if a.process.served != nil && (f.spaceFlags != spaceFlags{} || f.paceFlags != paceFlags{}) {
		a.ofServe("limits of space and rates")
	}
	return a.with(ctx, o, func(repo *ledger.Repository) error {
		p := a.startProgress(ctx, "syncing", "values")
		before := admin.Metrics(repo) // in a serve, earlier syncs count too
		total := syncTotal{}
		p.look(func(c *counters) { *c = total.add(repo.SyncStates()) })
		do := repo.Sync
		if f.Reupload {
			do = func(ctx context.Context, only ...ledger.PageRef) ([]ledger.PageSync, error) {
				return admin.Reupload(ctx, repo, only...)
			}
		}
		pages, err := do(ctx, f.Pages...)
		p.finish()
		return errors.Join(a.synced(repo, before, pages, err), f.keep(ctx, repo))
	})
}

// syncTotal is the latest progress of every page that was synced since the map was made, including
// pages that were closed since.
type syncTotal map[ledger.PageRef][2]cloudsync.Progress

// add records the present states, and returns the sum of both directions over all pages.
func (t syncTotal) add(states []ledger.SyncState) (c counters) {
	for _, s := range states {
		t[ledger.PageRef{Ledger: s.Ledger, ID: s.Page}] = [2]cloudsync.Progress{s.Up, s.Down}
		if s.Upload == ledger.SyncInProgress || s.Download == ledger.SyncInProgress {
			c.what = nameOf(s.Ledger, s.Name, s.Page)
		}
	}
	for _, page := range t {
		for _, p := range page {
			c.files, c.totalFiles = c.files+p.Values, c.totalFiles+p.TotalValues
			c.bytes, c.totalBytes = c.bytes+p.Bytes, c.totalBytes+p.TotalBytes
		}
	}
	return c
}

// synced prints the results of a sync. err joins the errors of the pages.
func (a *app) synced(repo *ledger.Repository, before admin.SyncMetrics, pages []ledger.PageSync, err error) error {
	failed := 0
	for _, p := range pages {
		if p.Err != nil {
			failed++
		}
		a.syncedPage(p)
	}
	m := admin.Metrics(repo)
	up, down, classA, classB := m.Up-before.Up, m.Down-before.Down, m.A-before.A, m.B-before.B
	if a.json || !a.quiet && (failed < len(pages) || err == nil) {
		a.show(object{
			"inSync~", plain("in sync"), "pages~", len(pages) - failed, "pages!", len(pages), "failed", failed, "upBytes", size(up), "downBytes", size(down), "classA!", classA,
			"classB!", classB, "requests~", classA + classB, "retries", m.Retries - before.Retries,
		})
	}
	return partly(err, 0 < failed && failed < len(pages) && !errors.Is(err, context.Canceled))
}

func (a *app) syncedPage(p ledger.PageSync) {
	if a.json || !a.quiet && p.Err == nil && (p.Missing > 0 || p.Created) {
		a.show(object{
			"page", nameOf(p.Ledger, p.Name, p.ID), "id!", p.ID, "created", p.Created, "position!", p.State.Position, "unsynced!", p.State.Unsynced,
			"missingPieces", p.Missing, "error?", p.Err,
		})
	}
}

// spaceFlags bound the disk space of pages.
type spaceFlags struct {
	Quota  size `flag:"quota" usage:"maximum size of the pages, such as 20G (default: no limit)"`
	Free   size `flag:"keep-free" usage:"minimum size of free disk space, such as 5G (default: no limit)"`
	Values size `flag:"keep-values" usage:"maximum size of local values that the cloud has, such as 10G (default: no limit)"`
}

// bound copies the bounds to o.
func (f *spaceFlags) bound(o *ledger.Options) {
	o.Quota, o.FreeSpaceFloor, o.ValueBytes = int64(f.Quota), int64(f.Free), int64(f.Values)
}

// keep enforces the bounds of the open repository before a verb ends.
func (f *spaceFlags) keep(ctx context.Context, repo *ledger.Repository) error {
	if *f == (spaceFlags{}) {
		return nil
	}
	return partly(admin.KeepSpace(ctx, repo), true)
}

// paceFlags bound the rates of sync.
type paceFlags struct {
	Up   rate `flag:"upload-limit" usage:"maximum upload in a second, a size such as 512K (default: no limit)"`
	Down rate `flag:"download-limit" usage:"maximum download in a second, a size such as 2M (default: no limit)"`
}

// limit copies the bounds to o.
func (f *paceFlags) limit(o *ledger.Options) {
	o.Sync.Limits.UploadBytesPerSecond, o.Sync.Limits.DownloadBytesPerSecond = int64(f.Up), int64(f.Down)
}
