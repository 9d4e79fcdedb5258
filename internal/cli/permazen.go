package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/pages"
	"github.com/spf13/cobra"
)

type jsckFlags struct {
	prefix                string
	repair, removeSchemas bool
}

func (a *app) permazenCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "permazen",
		GroupID: groupKeys,
		Short:   "Check typed objects in the Permazen layout",
	}, a.permazenCheck())
}

func (a *app) permazenCheck() *cobra.Command {
	var f jsckFlags
	cmd := &cobra.Command{
		Use:   "check LEDGER/PAGE",
		Short: "Check and repair typed objects in the Permazen layout",
		Long: `Check every row of a database of typed objects in a page: the tables of schemas and storage ids, all
objects by their schemas, references, and that all index rows follow from objects. --prefix says
what the keys of the database begin with. Each problem is printed with its row.

The exit code is 20 when there is a problem. With --repair one commit repairs all of them: rows
that should not be there are removed, missing index rows are made, and what cannot be read is
removed. The exit code is then 0, unless it is not certain what the schemas are: in that case
nothing is changed. The commit before it keeps what was there.

--remove-schemas removes schemas that no object has, too. Heads of the page are not merged.`,
		Example: `  ledgerd permazen check app/objects
  ledgerd permazen check app/objects --prefix db/ --repair`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePages,
	}
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		prefix, err := a.key(cmd, f.prefix)
		if err != nil {
			return err
		}
		how := fetches
		if f.repair || f.removeSchemas {
			how = changes
		}
		return a.page(ctx, cmd, args[0], how, func(page *ledger.Page) error { return a.jsck(ctx, page, prefix, f) })
	})
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "what the keys of the database begin with")
	flags.BoolVar(&f.repair, "repair", false, "repair what is wrong, in one commit")
	flags.BoolVar(&f.removeSchemas, "remove-schemas", false, "with --repair: remove schemas that no object has")
	return cmd
}

// jsckIssueJSON is a problem as permazen check --json prints it. Rows are hexadecimal digits;
// values that are missing, or that a repair removes, are absent.
type jsckIssueJSON struct {
	Issue    string  `json:"issue"`
	Key      string  `json:"key"`
	Value    *string `json:"value,omitempty"`
	NewKey   string  `json:"newKey,omitempty"`
	NewValue *string `json:"newValue,omitempty"`
	Text     string  `json:"text"`
	Lasting  bool    `json:"lasting,omitempty"`
}

func newJsckIssueJSON(i jsck.Issue) jsckIssueJSON {
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := hex.EncodeToString(b)
		return &s
	}
	return jsckIssueJSON{i.Kind.String(), hex.EncodeToString(i.Key), text(i.Old), hex.EncodeToString(i.NewKey), text(i.New), i.Text, i.Lasting}
}

// jsckJSON is the result of jsck.
type jsckJSON struct {
	Page           string `json:"page"`
	Commit         string `json:"commit,omitempty"`
	Rows           int64  `json:"rows"`
	Objects        int64  `json:"objects"`
	Issues         int64  `json:"issues"`
	Lasting        int64  `json:"lasting"`
	SchemasRemoved int    `json:"schemasRemoved"`
}

func (a *app) jsck(ctx context.Context, page *ledger.Page, prefix []byte, f jsckFlags) error {
	o := &jsck.Options{RemoveSchemas: f.removeSchemas, Report: func(i jsck.Issue) error {
		if a.json {
			return a.emit(newJsckIssueJSON(i))
		}
		a.printf("%s\n", i)
		return nil
	}}
	var result jsck.Result
	var err error
	done := jsckJSON{Page: pageText(page)}
	if f.repair || f.removeSchemas {
		_, after, updateErr := a.write(ctx, page, writeFlags{}, func(tx *ledger.Tx) error {
			result, err = jsck.Repair(ctx, pages.Writer(tx, prefix), o)
			return err
		})
		err, done.Commit = updateErr, after.String()
	} else {
		err = page.View(ctx, func(s *ledger.Snapshot) error {
			result, err = jsck.Check(ctx, pages.Reader(s, prefix), o)
			return err
		})
	}
	if errors.Is(err, ledger.ErrNotFound) {
		return withHint(&classed{bareText(err), err}, "--prefix says what the keys of the database begin with")
	}
	if err != nil {
		return err // it says what was being done
	}
	return a.jsckDone(done, result, f)
}

func (a *app) jsckDone(done jsckJSON, r jsck.Result, f jsckFlags) error {
	done.Rows, done.Objects, done.Issues, done.Lasting, done.SchemasRemoved = r.Rows, r.Objects, r.Issues, r.Lasting, r.SchemasRemoved
	if a.json {
		if err := a.emit(done); err != nil {
			return err
		}
	} else {
		a.printf("%s in %s\n", countText(int(r.Objects), "object"), countText(int(r.Rows), "row"))
	}
	repairs := f.repair || f.removeSchemas
	switch {
	case repairs && r.Lasting == 0:
		if r.Issues > 0 {
			a.tell("repaired %s", countText(int(r.Issues), "problem"))
		}
		return nil
	case r.Stopped:
		return withHint(fmt.Errorf("%s found, by which it is not certain what the schemas are: %w", countText(int(r.Issues), "problem"), ledger.ErrCorrupt),
			"nothing was changed; an older commit may have what is missing: %s", a.command("log", done.Page))
	case r.Issues > 0:
		return withHint(fmt.Errorf("%s found: %w", countText(int(r.Issues), "problem"), ledger.ErrCorrupt), "%s repairs them", a.command("permazen", "check", done.Page, "--repair"))
	}
	return nil
}
