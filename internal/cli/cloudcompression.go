package cli

import (
	"context"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/spf13/cobra"
)

func (a *app) cloudCompressionCommand() *cobra.Command {
	var off, on []string
	cmd := &cobra.Command{
		Use:   "compression [LEDGER/PAGE]",
		Short: "Show or set which keys are not compressed",
		Long: `Show which keys of pages go to the bucket without compression, or set it. The length of what is compressed says
something about its content, above all where text of somebody else stands beside a secret in one commit. A
commit that changes a key which --off names goes up without compression as a whole, and so do the page's checkpoints.

Each device has its own settings: say it on all that write. What is in the bucket already stays as it is.`,
		Example: `  ledgerd cloud compression
  ledgerd cloud compression mail --off ''
  ledgerd cloud compression notes --off secrets/ --off tokens/
  ledgerd cloud compression notes --on tokens/`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePages,
	}
	cmd.Flags().StringArrayVar(&off, "off", nil, "do not compress keys that begin with this; '' is all keys")
	cmd.Flags().StringArrayVar(&on, "on", nil, "compress them again")
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		pages, err := a.pageRefs(cmd, args)
		if err != nil {
			return err
		}
		if len(off)+len(on) == 0 {
			return a.read(ctx, func(repo *ledger.Repository) error { return a.printUncompressed(ctx, repo, pages) })
		}
		if len(pages) == 0 {
			return usagef(cmd, "--off and --on are for the keys of a page: name it")
		}
		return a.with(ctx, ledger.Options{MustExist: true}, func(repo *ledger.Repository) error {
			all := slices.DeleteFunc(repo.Uncompressed(), func(k ledger.UncompressedKeys) bool {
				return k.Page == pages[0] && slices.Contains(slices.Concat(on, off), string(k.Prefix))
			})
			for _, p := range off {
				all = append(all, ledger.UncompressedKeys{Page: pages[0], Prefix: []byte(p)})
			}
			if err := repo.SetUncompressed(ctx, all); err != nil {
				return err
			}
			return a.printUncompressed(ctx, repo, pages)
		})
	})
	return cmd
}

// uncompressedJSON is what cloud compression --json prints for each prefix.
type uncompressedJSON struct {
	Page   string `json:"page"`
	Prefix string `json:"prefix"`
}

// printUncompressed prints what is not compressed, of some pages only if there are any.
func (a *app) printUncompressed(ctx context.Context, repo *ledger.Repository, pages []ledger.PageRef) error {
	infos, err := repo.Pages(ctx)
	if err != nil {
		return err
	}
	for _, u := range repo.Uncompressed() {
		if len(pages) > 0 && !slices.Contains(pages, u.Page) {
			continue
		}
		name := nameOf(u.Page.Ledger, "", u.Page.ID)
		for _, p := range infos {
			if p.Ledger == u.Page.Ledger && p.ID == u.Page.ID {
				name = nameOf(p.Ledger, p.Name, p.ID)
			}
		}
		if a.json {
			if err := a.emit(uncompressedJSON{name, string(u.Prefix)}); err != nil {
				return err
			}
			continue
		}
		a.printf("%s: %s\n", printable(name), prefixText(u.Prefix))
	}
	return nil
}

func prefixText(prefix []byte) string {
	if len(prefix) == 0 {
		return "no key is compressed"
	}
	return "keys that begin with " + quoted(string(prefix)) + " are not compressed"
}
