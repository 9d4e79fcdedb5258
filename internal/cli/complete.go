package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

// Completion must not make a shell wait.
const (
	completionTimeout = 2 * time.Second
	maxCompletions    = 200
)

func (a *app) completionCommand() *cobra.Command {
	cmd := a.define("completion", func(_ context.Context, args []string) error {
		root := a.verb.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		}
		return root.GenPowerShellCompletionWithDesc(a.out)
	})
	cmd.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
	cmd.ValidArgs = []string{"bash", "zsh", "fish", "powershell"}
	return cmd
}

// completing calls fn with the repository, when there is one that can be read now. A serve that
// holds it completes the whole line instead. What goes wrong gives no completions: there is nobody
// to tell.
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
	_ = a.read(ctx, func(repo *ledger.Repository) error { return fn(ctx, repo) }) // see above
}

// completePages completes LEDGER/PAGE.
func (a *app) completePages(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	a.completing(cmd, func(ctx context.Context, repo *ledger.Repository) error {
		pages, err := repo.Pages(ctx)
		for _, p := range pages {
			if name := nameOf(p.Ledger, p.Name, p.ID); strings.HasPrefix(name, toComplete) {
				found = append(found, name)
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completePageThenFile completes LEDGER/PAGE PATH.
func (a *app) completePageThenFile(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completePages(cmd, args, toComplete)
}

// completeKeys completes LEDGER/PAGE KEY.
func (a *app) completeKeys(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completePages(cmd, args, toComplete)
	}
	prefix, err := a.key(toComplete)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	a.completingPage(cmd, args[0], func(ctx context.Context, page *ledger.Page) error {
		return a.snapshot(ctx, page, "", func(snap *ledger.Snapshot) error {
			for item, err := range filetree.List(ctx, snap, filetree.ListOptions{Prefix: prefix, Limit: maxCompletions, KeysOnly: true}) {
				if err != nil {
					return err
				}
				if text := string(item.Entry.Key); a.hex || isPrintable(text) {
					found = append(found, a.keyText(item.Entry.Key))
				}
			}
			return nil
		})
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeRevisions completes LEDGER/PAGE REV...
func (a *app) completeRevisions(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completePages(cmd, args, toComplete)
	}
	found := []string{"HEAD", "HEAD~1"}
	a.completingPage(cmd, args[0], func(ctx context.Context, page *ledger.Page) error {
		tags, err := page.Tags(ctx)
		if err != nil {
			return err
		}
		for _, t := range tags {
			found = append(found, t.Name)
		}
		n := 0
		for c, err := range page.Log(ctx) {
			if n++; err != nil || n > 20 {
				return err
			}
			text := c.ID.Short()
			if c.Message != "" {
				first, _, _ := strings.Cut(c.Message, "\n")
				text = fmt.Sprintf("%s\t%s", text, printable(first))
			}
			found = append(found, text)
		}
		return nil
	})
	kept := found[:0]
	for _, f := range found {
		if strings.HasPrefix(f, toComplete) {
			kept = append(kept, f)
		}
	}
	return kept, cobra.ShellCompDirectiveNoFileComp
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

// words completes a flag by one of a few words.
func words(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// completeFlag makes a function complete the values of a flag, which the command has. It does so
// for completions alone: cobra keeps such functions, with their commands, until the process ends,
// and serve runs verbs without end.
func (a *app) completeFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if len(a.process.Args) == 0 || !strings.HasPrefix(a.process.Args[0], cobra.ShellCompRequestCmd) {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, fn) // fails only for a flag that is not there
}

// completeRevisionFlag completes a flag that takes a revision of the page that is the first
// argument.
func (a *app) completeRevisionFlag(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeRevisions(cmd, args[:1], toComplete)
}
