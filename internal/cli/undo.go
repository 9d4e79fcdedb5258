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
		a.outcome(true, "undone", append(doneObject(page, result.Commit, false, nil), undone(result)...))
		return nil
	}
	return a.finish(ctx, page, f.mergeFlags, result.Commit, result.Changed > 0, "undid "+c.ID.Short(), undone(result)...)
}

// undone are the numbers of keys that an undo has changed, and that stay because they were changed
// since.
func undone(r ledger.UndoResult) object { return object{"keys", r.Changed, "kept", r.Kept} }
