package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

// Bounds of a completion, so that the shell does not wait.
const (
	completionTimeout = 2 * time.Second
	maxCompletions    = 200
)

// completionFlags has the shell as its argument.
type completionFlags struct {
	Shell string `arg:""`
}

// shells are the shells for which completion prints a script.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func (a *app) completion(_ context.Context, f completionFlags) error {
	root := a.verb.Root()
	switch f.Shell {
	case "bash":
		return root.GenBashCompletionV2(a.out, true)
	case "zsh":
		return root.GenZshCompletion(a.out)
	case "fish":
		return root.GenFishCompletion(a.out, true)
	}
	return root.GenPowerShellCompletionWithDesc(a.out)
}

// completing calls fn with the repository, if it exists and can be read now. A serve that holds the
// repository completes the whole line instead. An error gives no completions, since there is no
// place to report it.
func (a *app) completing(cmd *cobra.Command, fn func(context.Context, *ledger.Repository) error) {
	if a.fromEnvironment(cmd) != nil {
		return
	}
	a.verb = cmd
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if _, a.completed = errors.AsType[*forwarded](a.forward(ctx)); a.completed {
		return
	}
	a.lockTimeout = 0
	_ = a.read(ctx, func(repo *ledger.Repository) error { return fn(ctx, repo) }) // an error gives no completions
}

// completeArguments completes arguments according to the words of a usage line: pages, and the
// revisions or keys of the page in the first argument.
func (a *app) completeArguments(usage []string) cobra.CompletionFunc {
	first, second := usage[0], strings.Join(usage[1:min(2, len(usage))], "")
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(second, word) })
	}
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 && strings.Contains(first, "PATH"):
			return a.pageNames(cmd, toComplete), cobra.ShellCompDirectiveDefault
		case len(args) == 0:
			return a.pageNames(cmd, toComplete), cobra.ShellCompDirectiveNoFileComp
		case has("REV", "COMMIT"):
			return a.revisions(cmd, args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
		case has("KEY", "PREFIX"):
			return a.keyNames(cmd, args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
		case has("PATH", "DIR", "FILE") && len(args) == 1:
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// matching returns the elements that begin with toComplete.
func matching(all []string, toComplete string) []string {
	return slices.DeleteFunc(all, func(one string) bool { return !strings.HasPrefix(one, toComplete) })
}

// pageNames returns the names of pages that begin with toComplete.
func (a *app) pageNames(cmd *cobra.Command, toComplete string) (found []string) {
	a.completing(cmd, func(ctx context.Context, repo *ledger.Repository) error {
		pages, err := repo.Pages(ctx)
		found = objects(pages, func(p ledger.PageInfo) string { return nameOf(p.Ledger, p.Name, p.ID) })
		return err
	})
	return matching(found, toComplete)
}

// keyNames returns keys of a page that begin with toComplete.
func (a *app) keyNames(cmd *cobra.Command, page, toComplete string) (found []string) {
	prefix, err := a.key(toComplete)
	if err != nil {
		return nil
	}
	a.completingPage(cmd, page, func(ctx context.Context, page *ledger.Page) error {
		return a.snapshot(ctx, page, "", func(snap *ledger.Snapshot) error {
			o := filetree.ListOptions{Prefix: prefix, Limit: maxCompletions, KeysOnly: true}
			return each(filetree.List(ctx, snap, o), func(item filetree.Item) {
				if a.hex || isPrintable(string(item.Entry.Key)) {
					found = append(found, a.keyText(item.Entry.Key))
				}
			})
		})
	})
	return found
}

// revisions returns names of the newest commits of a page, with their messages.
func (a *app) revisions(cmd *cobra.Command, page, toComplete string) []string {
	found := []string{"HEAD", "HEAD~1"}
	a.completingPage(cmd, page, func(ctx context.Context, page *ledger.Page) error {
		tags, err := page.Tags(ctx)
		if err != nil {
			return err
		}
		found = append(found, slices.Sorted(maps.Keys(tags))...)
		n := 0
		for c, err := range page.Log(ctx) {
			if n++; err != nil || n > 20 {
				return err
			}
			found = append(found, c.ID.Short()+choose(c.Message != "", "\t"+title(c), ""))
		}
		return nil
	})
	return matching(found, toComplete)
}

func (a *app) completingPage(cmd *cobra.Command, name string, fn func(context.Context, *ledger.Page) error) {
	parsed, err := parsePageName(name)
	if err != nil {
		return
	}
	a.completing(cmd, func(ctx context.Context, repo *ledger.Repository) error {
		return a.pageIn(ctx, repo, parsed, reads, func(page *ledger.Page) error { return fn(ctx, page) })
	})
}

// completeFlag lets fn complete the values of a flag of the command. It does so in completions
// only: cobra keeps fn and the command until the process ends, and a serve runs any number of
// verbs.
func (a *app) completeFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if len(a.process.Args) == 0 || !strings.HasPrefix(a.process.Args[0], cobra.ShellCompRequestCmd) {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, fn) // fails only for an unknown flag
}

// completingFlag is completeFlag for verb.
func (a *app) completingFlag(flag string, fn cobra.CompletionFunc) func(*cobra.Command) {
	return func(cmd *cobra.Command) { a.completeFlag(cmd, flag, fn) }
}

// completeRevisionFlag completes a flag with a revision of the page in the first argument.
func (a *app) completeRevisionFlag(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.revisions(cmd, args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
}
