package cli

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type restoreFlags struct {
	pageArg
	mergeFlags
	dryRun
	Revision string `arg:""`
	Prefix   prefix `arg:""`
	Message  string `flag:"message,m" usage:"commit message (default: restore and the short id)"`
}

func (a *app) restore(ctx context.Context, page *ledger.Page, f restoreFlags) error {
	revision, prefix := f.Revision, f.Prefix.bytes
	id, err := a.resolve(ctx, page, revision)
	if err != nil {
		return err
	}
	target, err := page.Commit(ctx, id)
	if err != nil {
		return err
	}
	if target.Generation == 0 { // the implied first commit, which is empty
		return withHint(classedf(ledger.ErrNotFound, "restore %s: the page had no commit then", quoted(revision)),
			"%s lists the commits; rm --all empties a page", a.command("log", pageText(page)))
	}
	before, err := a.resolve(ctx, page, "HEAD")
	if err != nil {
		return err
	}
	if f.Dry {
		return a.restoreDry(ctx, page, before, id, prefix, revision)
	}
	var after ledger.CommitID
	if len(prefix) == 0 {
		after, err = page.Restore(ctx, id, f.Message)
	} else {
		after, err = filetree.Restore(ctx, page, id, prefix, f.Message)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", quoted(revision), err)
	}
	return a.finish(ctx, page, f.mergeFlags, after, before != after, "restored "+quoted(revision))
}

// restoreDry prints the effect of restore on the keys of the head.
func (a *app) restoreDry(ctx context.Context, page *ledger.Page, head, id ledger.CommitID, prefix []byte, revision string) error {
	n := map[filetree.Kind]int{}
	if err := each(filetree.Diff(ctx, page, head, id, prefix), func(c filetree.Change) { n[c.Kind()]++ }); err != nil {
		return fmt.Errorf("restore %s: %w", quoted(revision), err)
	}
	a.outcome(true, "restored", object{"page", pageText(page), "added", n[filetree.Added], "changed", n[filetree.Changed], "removed", n[filetree.Removed]})
	return nil
}
