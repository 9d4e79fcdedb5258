package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"golang.org/x/term"
)

type statusFlags struct {
	Pages pageSet `arg:""`
	Space bool    `flag:"space" usage:"show what takes space, page by page"`
	Bars  bool    `flag:"bars" usage:"draw what takes space as bars"`
}

func (a *app) status(ctx context.Context, f statusFlags) error {
	return a.read(ctx, func(repo *ledger.Repository) error {
		if f.Space || f.Bars {
			return a.usageOf(ctx, repo, &f.Pages, f.Bars)
		}
		return a.statusOf(ctx, repo, &f.Pages)
	})
}

// garbageObject is what was collected of a page since it was opened; nil for nothing.
func garbageObject(g admin.GarbageState) object {
	if g.Last.IsZero() {
		return nil
	}
	return object{"due", g.Due, "last", g.Last, "pieces", g.Pieces, "nodes", g.Nodes, "bytes", g.Bytes, "error?", g.Err}
}

func (a *app) garbage(g admin.GarbageState) {
	if g.Last.IsZero() {
		return
	}
	a.printf("  garbage   looked for at %s; %s deleted since the page was opened\n", timeText(g.Last), sizeText(g.Bytes))
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
	case set.some: // the repository was not asked for
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
		o := append(pageObject(p.PageInfo), "heads", p.Heads)
		if p.Err == nil {
			o = append(o, "newest", p.Newest.ID, "time", p.Newest.Time)
		}
		o = append(o, "unsynced", p.Unsynced, "aheadSeconds?", p.Ahead.Seconds(), "torn?", objects(p.Torn, tornText), "indexRebuilt?", p.IndexRebuilt, "error?", p.Err)
		if p.Err == nil {
			o = append(o, "collected?", garbageObject(p.Garbage))
			if cloud {
				o = append(o, "sync", syncStateObject(p.Sync))
			}
		}
		a.emit(o)
		return
	}
	a.printf("\n%s\n  size      %s\n", nameOf(p.Ledger, p.Name, p.ID), sizeText(p.SizeBytes))
	if p.Err != nil {
		a.printf("  error     %s\n", errText(p.Err))
		return
	}
	a.printf("  newest    %s, %s, generation %d\n", p.Newest.ID.Short(), timeText(p.Newest.Time), p.Newest.Generation)
	a.printIf(p.Heads > 1, "  heads     %d, waiting to be merged\n", p.Heads)
	a.printf("  unsynced  %s\n", countText(p.Unsynced, "commit"))
	if cloud {
		a.syncState(p.Sync)
	}
	a.printIf(p.Ahead > 0, "  ahead     the newest commit is %s ahead of this clock\n", durationText(p.Ahead))
	a.garbage(p.Garbage)
	a.printRecovery(p.Torn, p.IndexRebuilt)
}

// printRecovery says what was mended when a page was opened.
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
	Repair bool    `flag:"repair" usage:"mend what is damaged, with what the cloud has"`
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
			return a.command("cloud", "set", "URL", "--key-file", "FILE") + ", with the cloud that it had"
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
	if o.Repair {
		return "what is gone is in a backup or nowhere"
	}
	return a.command("check", "--repair") + ", after a backup of the directory"
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
	a.printIf(r.MissingPieces > 0, "  gone      %s of values, of which neither this device nor the cloud has the content\n",
		countText(r.MissingPieces, "piece"))
	a.printIf(len(r.Holes) > 0, "  gone      a part of the tree of %s; the cloud may have it\n",
		countText(len(r.Holes), "version"))
	for _, s := range r.Rescued {
		a.printf("  rescued   commit %s has what is left of commit %s: %s", s.Commit.Short(), s.Head.Short(), countText(s.Entries, "entry"))
		a.printIf(s.FromOlder > 0, ", %d of them as they were in commit %s", s.FromOlder, s.Older.Short())
		a.printf("\n")
	}
	a.printIf(r.CloudErr != nil, "  cloud     could not be asked: %s\n", errText(r.CloudErr))
	a.printIf(r.InUse, "  in use    so that it was left as it is\n")
}

func (a *app) backup(ctx context.Context, args []string) error {
	to := a.path(args[0])
	if to == "" {
		return usagef("the name of the directory is empty")
	}
	if to == "-" {
		if _, ok := isTerminal(a.process.Stdout, term.IsTerminal); ok {
			return usagef("a tar stream is not for a terminal: redirect the output or name a directory")
		}
		return a.read(ctx, func(repo *ledger.Repository) error {
			p := a.startProgress(ctx, "writing backup", "pages")
			defer p.finish()
			return admin.BackupTo(ctx, repo, writerFunc(func(b []byte) (int, error) {
				p.update(func(c *counters) { c.bytes += int64(len(b)) })
				return a.out.Write(b)
			}))
		})
	}
	if in, err := inside(to, a.dir); err != nil || in {
		return cmp.Or(err, usagef("back up to %s: it lies in the repository %s itself", quoted(to), quoted(a.dir)))
	}
	return a.read(ctx, func(repo *ledger.Repository) error {
		p := a.startProgress(ctx, "writing backup", "files")
		stop := p.watch(ctx, to, repo)
		err := admin.Backup(ctx, repo, to)
		stop()
		p.finish()
		if errors.Is(err, ledger.ErrInvalid) {
			return withHint(bare(err), "%s", "name another directory, or remove what a backup has left there that did not come to its end")
		}
		if err != nil {
			return err
		}
		size, _, err := directorySize(os.DirFS(to))
		if err != nil {
			return fmt.Errorf("look at backup: %w", err)
		}
		a.result(object{"dir", to, "size", size}, "backed up %s to %s\n", sizeText(size), quoted(to))
		return nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// verifiedText says what a check without problems has verified.
func verifiedText(report *admin.CheckReport) string {
	away := 0
	for _, page := range report.Pages {
		away += page.AwayPieces
	}
	here := "everything that is here verified; " + countText(away, "piece") + " of values in the cloud only"
	return choose(away > 0, here, "everything verified")
}
