package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

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
	return a.with(ctx, open, func(repo *ledger.Repository) error { return a.checkPages(ctx, repo, &f.Pages, o) })
}

func (a *app) checkPages(ctx context.Context, repo *ledger.Repository, set *pageSet, o admin.CheckOptions) error {
	p := a.startProgress(ctx, "checking", "pages")
	o.Progress = p.follow
	report, err := admin.Check(ctx, repo, &o)
	p.finish()
	if errors.Is(err, ledger.ErrNotFound) {
		return a.notHere(ctx, repo, set)
	}
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	for _, q := range report.Repository {
		a.show(problemObject(q))
	}
	var bytes int64
	for _, page := range report.Pages {
		bytes += page.Bytes
		a.printReport(page)
	}
	if n := report.Remaining(); n > 0 {
		return withHint(found(n, "problems"), "%s", a.repairHint(o, report))
	}
	a.summary("%s, %s: %s\n", countText(len(report.Pages), "pages"), sizeText(bytes), verifiedText(report))
	return nil
}

// notHere returns the error of check when no page of the set is on this device.
func (a *app) notHere(ctx context.Context, repo *ledger.Repository, set *pageSet) error {
	pages, err := repo.Pages(ctx)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if !slices.ContainsFunc(pages, func(p ledger.PageInfo) bool { return set.has(p.PageRef) }) {
		return a.none(set)
	}
	return withHint(classedf(ledger.ErrNotFound, "%s is in the cloud only: there is nothing to verify on this device", quoted(set.name.text)),
		"%s; %s", a.command("cloud", "check"), a.fetchHint())
}

// fetchHint is the hint for a page that is in the cloud only.
func (a *app) fetchHint() string { return a.command("fetch") + " LEDGER/PAGE brings a page back" }

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
		case o.Repair && p.Commits == 0 && len(p.Problems) > 0: // not even its log can be read
			name := nameOf(p.Ledger, p.Name, p.ID)
			return fmt.Sprintf("only a backup has the page, or the cloud: %s, and then %s",
				a.command("delete", name, "--discard-unsynced"), a.command("sync", name))
		}
	}
	return choose(o.Repair, "only a backup can have what is gone",
		a.command("check", "--repair")+", after a backup of the directory")
}

// problemObject is a problem as check --json prints it.
func problemObject(p admin.Problem) object {
	return object{
		"where", p.Where, "key?", plain(p.Key), "message", plain(p.Message), "fetchable", p.Fetchable, "repaired", p.Repaired,
	}
}

func (a *app) printReport(r admin.PageReport) {
	if a.quiet && !a.json && len(r.Problems) == 0 {
		return
	}
	a.show(object{
		"page", nameOf(r.Ledger, r.Name, r.ID), "id!", r.ID,
		"ok!", !slices.ContainsFunc(r.Problems, func(p admin.Problem) bool { return !p.Repaired }),
		"commits", r.Commits, "nodes", r.Nodes, "pieces", r.Pieces, "rows", r.Rows, "bytes", size(r.Bytes),
		"torn?", objects(r.Torn, tornText), "indexRebuilt?", r.IndexRebuilt, "moreProblems", r.More, "lostPieces", r.MissingPieces,
		"lostTrees?", objects(r.Holes, ledger.CommitID.String), "inUse", r.InUse, "cloudError?", r.CloudErr,
		"problems", objects(r.Problems, problemObject),
		"rescued?", objects(r.Rescued, func(s admin.Rescue) object {
			return object{"commit", s.Commit, "head", s.Head, "older", s.Older, "entries", s.Entries, "fromOlder", s.FromOlder}
		}),
	})
}

// verifiedText describes what a check without problems has verified.
func verifiedText(report *admin.CheckReport) string {
	if len(report.Pages) == 0 {
		return "there is no page on this device"
	}
	away := 0
	for _, page := range report.Pages {
		away += page.AwayPieces
	}
	here := "all local data verified; " + countText(away, "pieces") + " of values in the cloud only"
	return choose(away > 0, here, "everything verified")
}
