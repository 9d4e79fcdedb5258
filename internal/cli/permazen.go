package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/pages"
)

type permazenFlags struct {
	pageArg
	Prefix prefix `flag:"prefix" usage:"prefix of the database's keys"`
	Repair bool   `flag:"repair" usage:"repair all problems in one commit"`
}

func (a *app) permazenCheck(ctx context.Context, f permazenFlags) error {
	how := choose(f.Repair, changes, fetches)
	return a.page(ctx, f.Page, how, func(page *ledger.Page) error { return a.jsck(ctx, page, f) })
}

// issueObject is a problem as permazen check --json prints it. Rows are hexadecimal digits; values
// that are missing, or that a repair removes, are absent.
func issueObject(i jsck.Issue) object {
	return slices.Concat(object{"issue", i.Kind, "key", hex.EncodeToString(i.Key)},
		when(i.Old != nil, "value", hex.EncodeToString(i.Old)),
		object{"newKey?", hex.EncodeToString(i.NewKey)}, when(i.New != nil, "newValue", hex.EncodeToString(i.New)),
		object{"text", i.Text, "lasting?", i.Lasting})
}

func (a *app) jsck(ctx context.Context, page *ledger.Page, f permazenFlags) error {
	prefix := f.Prefix.bytes
	o := &jsck.Options{Report: func(i jsck.Issue) error {
		a.print(issueObject(i), "%s\n", i)
		return nil
	}}
	var result jsck.Result
	var err error
	commit := ""
	if f.Repair {
		_, after, updateErr := a.write(ctx, page, "", "", func(tx *ledger.Tx) error {
			result, err = jsck.Repair(ctx, pages.Writer(tx, prefix), o)
			return err
		})
		err, commit = updateErr, after.String()
	} else {
		err = page.View(ctx, func(s *ledger.Snapshot) error {
			result, err = jsck.Check(ctx, pages.Reader(s.Reader, prefix), o)
			return err
		})
	}
	if errors.Is(err, ledger.ErrNotFound) {
		return withHint(bare(err), "give the prefix of the database's keys with --prefix")
	}
	if err != nil {
		return err // the error names the operation
	}
	return a.jsckDone(pageText(page), commit, result, f)
}

func (a *app) jsckDone(page, commit string, r jsck.Result, f permazenFlags) error {
	a.show(object{
		"page", page, "commit!?", commit, "rows", r.Rows, "objects", r.Objects, "issues", r.Issues, "lasting", r.Lasting,
	})
	switch {
	case f.Repair && r.Lasting == 0:
		if r.Issues > 0 {
			a.tell("repaired %s", countText(int(r.Issues), "problems"))
		}
		return nil
	case r.Stopped:
		return withHint(fmt.Errorf("%s found, and the schemas are uncertain: %w", countText(int(r.Issues), "problems"), ledger.ErrCorrupt),
			"nothing was changed; an older commit may have the missing rows: %s", a.command("log", page))
	case r.Issues > 0:
		return withHint(found(int(r.Issues), "problems"), "%s repairs them", a.command("permazen", "check", page, "--repair"))
	}
	return nil
}
