package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// mergeFlags select whether a verb merges several heads at its end.
type mergeFlags struct {
	NoMerge bool `flag:"no-merge" usage:"do not merge several heads"`
}

// writeFlags add the revision on which a verb builds its commit.
type writeFlags struct {
	mergeFlags
	Parent string `flag:"parent" usage:"parent of the commit (default HEAD)"`
}

const writeHelp = `If the page then has several heads, the verb merges them and says so on the standard error;
--no-merge leaves them. See: ledgerd help merging`

// write commits the changes of change, with a message. The commit's parent is the newest head or,
// if parent is not empty, that revision.
func (a *app) write(ctx context.Context, page *ledger.Page, parent, message string,
	change func(*ledger.Tx) error) (before, after ledger.CommitID, err error) {
	fn := func(tx *ledger.Tx) error {
		before = tx.Base().ID
		if err := tx.SetMessage(message); err != nil {
			return err
		}
		return change(tx)
	}
	defer func() {
		if _, ok := errors.AsType[*bucket.Error](err); !ok && errors.Is(err, ledger.ErrNoSpace) {
			err = withHint(err, roomHint+". %s frees what is left of a write of more than 400 MB",
				a.command("gc", "--compact"))
		}
	}()
	if parent == "" {
		after, err = page.Update(ctx, fn)
		return before, after, err
	}
	base, err := a.resolve(ctx, page, parent)
	if err != nil {
		return before, after, err
	}
	tx, err := page.Begin(ctx, &ledger.TxOptions{Base: base})
	if err != nil {
		return before, after, err
	}
	if err := fn(tx); err != nil {
		return before, after, errors.Join(err, tx.Rollback())
	}
	after, err = tx.Commit(ctx)
	return before, after, err
}

// mergeAfter merges the heads of a page after a verb, and reports the decisions. The verb has done
// its work, so an error of the merge is only a warning, unless it is damage.
func (a *app) mergeAfter(ctx context.Context, page *ledger.Page, f mergeFlags) (object, error) {
	heads, err := page.Heads(ctx)
	if err != nil || len(heads) == 1 {
		return nil, err
	}
	if f.NoMerge {
		a.tell("page %s has %d heads; %s merges them", pageText(page), len(heads), a.command("merge", pageText(page)))
		return nil, nil
	}
	results, err := page.Merge(ctx)
	if errors.Is(err, ledger.ErrCorrupt) {
		return nil, fmt.Errorf("merge %d heads: %w", len(heads), err)
	}
	if err != nil {
		a.warn(fmt.Errorf("the commit was made, but the page still has %d heads: %w", len(heads), err))
		return nil, nil
	}
	if len(results) == 0 {
		return nil, nil
	}
	conflicts, last := 0, results[len(results)-1].Commit.ID
	for _, r := range results {
		conflicts += r.Conflicts
	}
	text, err := a.mergedText(ctx, page, results, conflicts)
	if err != nil {
		return nil, err
	}
	a.tell("merged %d heads as commit %s: %s", len(results)+1, last.Short(), text)
	return object{"merge", last, "conflicts?", conflicts}, nil
}

// mergedText describes the decisions of merges in one line.
func (a *app) mergedText(ctx context.Context, page *ledger.Page, results []ledger.MergeResult, conflicts int) (string, error) {
	switch conflicts {
	case 0:
		return "no conflicts", nil
	case 1:
		for _, r := range results {
			for d, err := range page.Conflicts(ctx, r.Commit.ID, nil) {
				if err != nil {
					return "", err // the error names the operation
				}
				return a.decisionText(ctx, d)
			}
		}
	}
	return fmt.Sprintf("%s decided; %s shows them", countText(conflicts, "conflicts"), a.command("log", pageText(page), "--conflicts")), nil
}

// tell prints a line for people to the standard error.
func (a *app) tell(format string, args ...any) {
	if !a.json && !a.quiet {
		fmt.Fprintf(a.process.Stderr, "ledgerd: %s\n", printable(fmt.Sprintf(format, args...)))
	}
}

// finish merges the remaining heads and prints the result of a verb that changes a page: what it
// has done, and more members.
func (a *app) finish(ctx context.Context, page *ledger.Page, f mergeFlags, commit ledger.CommitID, changed bool, what string, more ...any) error {
	merged, err := a.mergeAfter(ctx, page, f)
	if err != nil {
		return err
	}
	text := choose(changed, "commit "+commit.Short(), "nothing has changed since commit "+commit.Short())
	a.result(doneObject(page, commit, changed, append(merged, more...)), "%s\n",
		joined(": ", text, joined(", ", choose(changed, what, ""), object(more).phrases())))
	return nil
}
