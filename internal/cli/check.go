package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// printRecovery prints what opening a page has repaired.
func (a *app) printRecovery(torn []admin.TornTail, rebuilt string) {
	for _, t := range torn {
		a.printf("  torn      %s\n", printable(tornText(t)))
	}
	a.printIf(rebuilt != "", "  index     rebuilt from the log: %s\n", printable(rebuilt))
}

func tornText(t admin.TornTail) string {
	return fmt.Sprintf("segment %d from byte %d: %s of an unfinished batch set aside%s",
		t.Segment, t.Offset, sizeText(int64(t.Bytes)), choose(t.SavedAs != "", " as "+t.SavedAs, ""))
}

type checkFlags struct {
	Pages  pageSet `arg:""`
	Repair bool    `flag:"repair" usage:"repair damage, also with data from the cloud"`
}

func (a *app) check(ctx context.Context, f checkFlags) error {
	o := admin.CheckOptions{Repair: f.Repair, Ledger: f.Pages.name.ledger}
	if f.Pages.some && !f.Pages.ledger {
		id := f.Pages.name.pageID()
		o.Page = &id
	}
	open := ledger.Options{ReadOnly: !f.Repair, Mend: f.Repair, MustExist: true}
	return a.with(ctx, open, func(repo *ledger.Repository) error { return a.checkPages(ctx, repo, o) })
}

func (a *app) checkPages(ctx context.Context, repo *ledger.Repository, o admin.CheckOptions) error {
	p := a.startProgress(ctx, "checking", "pages")
	o.Progress = func(now admin.CheckProgress) {
		p.update(func(c *counters) {
			c.files, c.totalFiles, c.bytes, c.totalBytes = int64(now.Index), int64(now.Pages), now.Done, now.Total
			c.what = nameOf(now.Ledger, "", now.Page) + " " + now.Step
		})
	}
	report, err := admin.Check(ctx, repo, &o)
	p.finish()
	if err != nil {
		return hintFor(fmt.Errorf("check: %w", err), ledger.ErrNotFound, "%s", a.command("ls"))
	}
	for _, q := range report.Repository {
		a.print(problemObject(q), "problem     %s\n", printable(q.String()))
	}
	var bytes int64
	for _, page := range report.Pages {
		bytes += page.Bytes
		a.printReport(page)
	}
	if n := report.Remaining(); n > 0 {
		return withHint(found(n, "problem"), "%s", a.repairHint(o, report))
	}
	a.summary("%s, %s: %s\n", countText(len(report.Pages), "page"), sizeText(bytes), verifiedText(report))
	return nil
}

func (a *app) repairHint(o admin.CheckOptions, report *admin.CheckReport) string {
	for _, q := range report.Repository {
		if !q.Repaired {
			return a.command("cloud", "set", "URL", "--key-file", "FILE") + ", with its former cloud"
		}
	}
	for _, p := range report.Pages {
		switch {
		case p.InUse:
			return "close " + nameOf(p.Ledger, p.Name, p.ID) + " where it is in use, and check again"
		case p.CloudErr != nil:
			return a.command("check", "--repair") + ", when the cloud can be reached"
		}
	}
	return choose(o.Repair, "only a backup can have what is gone",
		a.command("check", "--repair")+", after a backup of the directory")
}

// problemObject is a problem as check --json prints it.
func problemObject(p admin.Problem) object {
	return object{"where", p.Where, "key?", p.Key, "message", p.Message, "fetchable?", p.Fetchable, "repaired", p.Repaired}
}

func (a *app) printReport(r admin.PageReport) {
	name := nameOf(r.Ledger, r.Name, r.ID)
	if a.json {
		a.emit(object{
			"page", name, "id", r.ID, "ok", !slices.ContainsFunc(r.Problems, func(p admin.Problem) bool { return !p.Repaired }),
			"commits", r.Commits, "nodes", r.Nodes, "pieces", r.Pieces, "rows", r.Rows, "bytes", r.Bytes, "torn?", objects(r.Torn, tornText),
			"indexRebuilt?", r.IndexRebuilt, "problems", objects(r.Problems, problemObject), "missing?", r.MissingPieces,
			"holes?", objects(r.Holes, ledger.CommitID.String), "inUse?", r.InUse,
			"rescued?", objects(r.Rescued, func(s admin.Rescue) object {
				return object{"head", s.Head, "commit", s.Commit, "older", s.Older, "entries", s.Entries, "fromOlder", s.FromOlder}
			}), "cloudError?", r.CloudErr,
		})
		return
	}
	if a.quiet && len(r.Problems) == 0 {
		return
	}
	a.printf("%s: %s, %s, %s, %s, %s\n", name, countText(r.Commits, "commit"), countText(r.Nodes, "node"),
		countText(r.Pieces, "piece"), countText(r.Rows, "row"), sizeText(r.Bytes))
	a.printRecovery(r.Torn, r.IndexRebuilt)
	for _, p := range r.Problems {
		a.printf("  problem   %s\n", printable(p.String()))
	}
	a.printIf(r.More, "  problem   and more\n")
	a.printIf(r.MissingPieces > 0,
		"  gone      %s of values, which neither this device nor the cloud has\n",
		countText(r.MissingPieces, "piece"))
	a.printIf(len(r.Holes) > 0, "  gone      a part of the tree of %s; the cloud may have it\n",
		countText(len(r.Holes), "version"))
	for _, s := range r.Rescued {
		a.printf("  rescued   commit %s has what is left of commit %s: %s", s.Commit.Short(), s.Head.Short(), countText(s.Entries, "entry"))
		a.printIf(s.FromOlder > 0, ", %d of them as they were in commit %s", s.FromOlder, s.Older.Short())
		a.printf("\n")
	}
	a.printIf(r.CloudErr != nil, "  cloud     could not be reached: %s\n", errText(r.CloudErr))
	a.printIf(r.InUse, "  in use    not repaired\n")
}

// verifiedText describes what a check without problems has verified.
func verifiedText(report *admin.CheckReport) string {
	away := 0
	for _, page := range report.Pages {
		away += page.AwayPieces
	}
	here := "all local data verified; " + countText(away, "piece") + " of values in the cloud only"
	return choose(away > 0, here, "everything verified")
}
