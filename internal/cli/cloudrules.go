package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/spf13/cobra"
)

// ruleCommand is a command that shows or sets one switch of ledger.UploadRule.
type ruleCommand struct {
	name, short, long string
	of                func(*ledger.UploadRule) *bool
	// all and some say what the switch does to all keys of a page, and to those with a prefix.
	all, some string
}

const eachDeviceItself = `

Each device has its own settings: say it on all that write. What is in the bucket already stays as it is.`

var compressionRule = ruleCommand{
	name: "compression", short: "Show or set which keys are not compressed",
	long: `Show which keys of pages go to the bucket without compression, or set it. The length of what is
compressed says something about its content, above all where text of somebody else stands beside a
secret in one commit. A commit that changes a key which --off names goes up without compression as a
whole, and so do the page's checkpoints.`,
	of:  func(u *ledger.UploadRule) *bool { return &u.CompressionOff },
	all: "no key is compressed", some: "keys that begin with %s are not compressed",
}

var dedupRule = ruleCommand{
	name: "dedup", short: "Show or set which values go up again",
	long: `Show the values of which keys go to the bucket whole, also where it has them already, or set it.
What a page has is not sent again, so that little goes up when a value is written that was there
before: who sees that can guess that it was. A value under a key which --off names goes up whole
whenever it is written, which costs uploads, and storage until the history of the page is cut. Short
values, that stand with their keys, always go up.`,
	of:  func(u *ledger.UploadRule) *bool { return &u.DedupOff },
	all: "all values go up whole", some: "values of keys that begin with %s go up whole",
}

func (a *app) cloudRuleCommand(c ruleCommand) *cobra.Command {
	var off, on []string
	cmd := &cobra.Command{
		Use:   c.name + " [LEDGER/PAGE]",
		Short: c.short,
		Long:  c.long + eachDeviceItself,
		Example: `  ledgerd cloud ` + c.name + `
  ledgerd cloud ` + c.name + ` mail --off ''
  ledgerd cloud ` + c.name + ` notes --off secrets/ --off tokens/
  ledgerd cloud ` + c.name + ` notes --on tokens/`,
	}
	cmd.Flags().StringArrayVar(&off, "off", nil, "switch it off for keys that begin with this; '' is all keys")
	cmd.Flags().StringArrayVar(&on, "on", nil, "switch it on for them again")
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		pages, err := a.pageRefs(cmd, args)
		if err != nil {
			return err
		}
		if len(off)+len(on) == 0 {
			return a.read(ctx, func(repo *ledger.Repository) error { return a.printRules(ctx, repo, c, pages) })
		}
		if len(pages) == 0 {
			return usagef(cmd, "--off and --on are for the keys of a page: name it")
		}
		return a.change(ctx, func(repo *ledger.Repository) error {
			all := admin.UploadRules(repo)
			for _, p := range on {
				all = switchRule(all, pages[0], p, c.of, false)
			}
			for _, p := range off {
				all = switchRule(all, pages[0], p, c.of, true)
			}
			if err := admin.SetUploadRules(ctx, repo, all); err != nil {
				return err
			}
			return a.printRules(ctx, repo, c, pages)
		})
	})
	return cmd
}

// switchRule sets a switch for a prefix of a page. A rule without a switch goes.
func switchRule(all []admin.PageUploadRule, page ledger.PageRef, prefix string, of func(*ledger.UploadRule) *bool, off bool) []admin.PageUploadRule {
	i := slices.IndexFunc(all, func(u admin.PageUploadRule) bool { return u.Page == page && string(u.Prefix) == prefix })
	if i < 0 {
		i = len(all)
		all = append(all, admin.PageUploadRule{Page: page, UploadRule: ledger.UploadRule{Prefix: []byte(prefix)}})
	}
	if *of(&all[i].UploadRule) = off; !all[i].CompressionOff && !all[i].DedupOff {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// printRules prints for which keys a switch is off, of some pages only if there are any.
func (a *app) printRules(ctx context.Context, repo *ledger.Repository, c ruleCommand, pages []ledger.PageRef) error {
	infos, err := repo.Pages(ctx)
	if err != nil {
		return err
	}
	for _, u := range admin.UploadRules(repo) {
		if !*c.of(&u.UploadRule) || len(pages) > 0 && !slices.Contains(pages, u.Page) {
			continue
		}
		name := nameOf(u.Page.Ledger, "", u.Page.ID)
		for _, p := range infos {
			if p.Ledger == u.Page.Ledger && p.ID == u.Page.ID {
				name = nameOf(p.Ledger, p.Name, p.ID)
			}
		}
		text := c.all
		if len(u.Prefix) > 0 {
			text = fmt.Sprintf(c.some, quoted(string(u.Prefix)))
		}
		a.print(object{"page", name, "prefix", string(u.Prefix)}, "%s: %s\n", printable(name), text)
	}
	return nil
}
