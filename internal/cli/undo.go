package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
)

type undoFlags struct {
	pageArg
	Commit string `arg:""`
	mergeFlags
	dryRun
	To      string `flag:"to" usage:"for a merge, the parent to go back to"`
	Message string `flag:"message,m" usage:"commit message (default: undo and the short id)"`
}

func (a *app) undo(ctx context.Context, page *ledger.Page, f undoFlags) error {
	revision := f.Commit
	id, err := a.resolve(ctx, page, revision)
	if err != nil {
		return err
	}
	o := &ledger.UndoOptions{Message: f.Message, DryRun: f.Dry}
	if o.Parent, err = a.commitAt(ctx, page, f.To); err != nil {
		return err
	}
	c, err := page.Commit(ctx, id)
	if err != nil {
		return fmt.Errorf("read commit: %w", err)
	}
	if len(c.Parents) > 1 && f.To == "" {
		return withHint(usagef("undo %s: it is a merge of %s and %s", quoted(revision), c.Parents[0].Short(),
			c.Parents[1].Short()),
			"name the parent to go back to: %s; or undo one of the merged commits", a.command("undo", pageText(page), revision, "--to", c.Parents[0].Short()))
	}
	if c.Generation == 0 {
		return usagef("undo %s: commit %s is the first one, which changed nothing", quoted(revision), id.Short())
	}
	if f.To != "" && !slices.Contains(c.Parents, o.Parent) {
		return usagef("undo %s: %s is not one of its parents", quoted(revision), quoted(f.To))
	}
	result, err := page.Undo(ctx, id, o)
	if err != nil {
		return err // the error names the operation
	}
	if f.Dry {
		a.print(append(doneObject(page, result.Commit, false, nil), "keys", result.Changed, "kept", result.Kept, "dryRun", true),
			"%s: %s would be changed, %d kept that were changed since\n", pageText(page), countText(result.Changed, "key"), result.Kept)
		return nil
	}
	merged, err := a.mergeAfter(ctx, page, f.mergeFlags)
	if err != nil {
		return err
	}
	a.undone(page, c, result, merged)
	return nil
}

func (a *app) undone(page *ledger.Page, c ledger.Commit, r ledger.UndoResult, merged object) {
	kept := fmt.Sprintf(", %s kept that %s changed since", countText(r.Kept, "key"), choose(r.Kept > 1, "were", "was"))
	text := doneText(r.Commit, r.Changed > 0, fmt.Sprintf("undid %s, %s changed", c.ID.Short(),
		countText(r.Changed, "key")))
	a.result(append(doneObject(page, r.Commit, r.Changed > 0, merged), "keys", r.Changed, "kept", r.Kept), "%s%s\n", text,
		choose(r.Kept > 0, kept, ""))
}
