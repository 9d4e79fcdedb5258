package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/spf13/cobra"
)

func (a *app) compactCommand() *cobra.Command {
	var f dryRun
	cmd := &cobra.Command{
		Use:     "compact [LEDGER/PAGE...]",
		GroupID: groupCare,
		Short:   "Give the space of what was deleted back to the system",
		Long: `Write those files of pages anew of which at least a fifth is garbage: what gc or evict --values
deleted, and what newer records have replaced. Without arguments all pages are compacted. Nothing is
lost by it, and a page that is in use stays so. It needs free disk for the live part of one file, at
most about 64 MiB, or for the new index (page.db) of a page when more than half of that is free.

gc decides what is garbage, so it comes first. What transactions that have not ended have written
stays.`,
		Example: `  ledgerd gc --keep-last 1 --yes && ledgerd compact
  ledgerd compact notes --dry-run`,
	}
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return a.compact(ctx, cmd, args, f.dry)
	})
	f.add(cmd)
	return cmd
}

func (a *app) compact(ctx context.Context, cmd *cobra.Command, args []string, dry bool) error {
	o := admin.CompactOptions{DryRun: dry}
	var err error
	if o.Pages, err = a.pageRefs(cmd, args); err != nil {
		return err
	}
	return a.with(ctx, ledger.Options{MustExist: true}, func(repo *ledger.Repository) error {
		p := a.startProgress(ctx, "compacting", "pages")
		o.Progress = func(c admin.PageCompaction, done, total int64) {
			p.update(func(n *counters) { n.bytes, n.totalBytes, n.what = done, total, nameOf(c.Ledger, c.Name, c.ID) })
		}
		pages, err := admin.Compact(ctx, repo, &o)
		p.finish()
		freed := slices.ContainsFunc(pages, func(c admin.PageCompaction) bool { return c.Freed > 0 })
		if err != nil && len(pages) == 0 {
			return err
		}
		a.compacted(pages, dry)
		return partly(err, freed && !dry)
	})
}

// compacted prints what Compact has done.
func (a *app) compacted(pages []admin.PageCompaction, dry bool) {
	came, anew := "came back", "written anew"
	if dry {
		came, anew = "would come back", "to be written anew"
	}
	total := int64(0)
	for _, c := range pages {
		name := nameOf(c.Ledger, c.Name, c.ID)
		total += c.Freed
		text := "nothing to give back, " + sizeText(c.After)
		if c.Freed != 0 {
			text = fmt.Sprintf("%s %s, %s before, %s after, %s %s", sizeText(c.Freed), came,
				sizeText(c.Before), sizeText(c.After), countText(c.Segments, "segment"), anew)
		}
		a.result(object{"page", name, "bytesBefore", c.Before, "bytesAfter", c.After, "freedBytes", c.Freed, "segments", c.Segments, "dryRun?", dry},
			"%s: %s\n", printable(name), text)
	}
	if !a.json && !a.quiet && len(pages) != 1 {
		a.printf("%s of %s %s\n", sizeText(total), countText(len(pages), "page"), came)
	}
}
