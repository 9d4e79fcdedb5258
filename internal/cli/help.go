package cli

import (
	"context"
	_ "embed"
	"strings"

	"github.com/spf13/cobra"
)

// helpText has a section for each verb: a heading with the usage line, a line with the group and a
// summary, an explanation, and examples. A verb within a group of verbs has one # more than the
// group. A section without a group is a topic.
//
//go:embed help.txt
var helpText string

// runFunc runs a verb.
type runFunc func(ctx context.Context, args []string) error

// define makes the command at a path, such as "catalog add", from helpText. The command calls run,
// which is nil for a topic.
func (a *app) define(path string, run runFunc) *cobra.Command {
	text, name, heading, head := "\n"+strings.ReplaceAll(helpText, "\r\n", "\n"), "", "\n#", ""
	for _, name = range strings.Fields(programName + " " + path) {
		_, text, _ = strings.Cut(text, heading+" "+name)
		heading += "#"
	}
	text, _, _ = strings.Cut(text, "\n#")
	head, text, _ = strings.Cut(text, "\n")
	short, long, _ := strings.Cut(text, "\n")
	long, example, _ := strings.Cut(long, "\nExamples:\n")
	cmd := &cobra.Command{Use: name + head, Short: short, Example: strings.TrimRight(example, "\n")}
	if group, rest, ok := strings.Cut(short, ": "); ok {
		cmd.GroupID, cmd.Short = group, rest
	}
	cmd.Long = strings.NewReplacer("@writing", writeHelp, "@families", familiesText()).Replace(strings.Trim(long, "\n"))
	if run != nil {
		cmd.RunE = a.run(run)
	}
	return cmd
}

// group makes a command that only holds other commands.
func (a *app) group(path string, verbs ...*cobra.Command) *cobra.Command {
	cmd := a.define(path, nil)
	cmd.Args, cmd.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// topics are the subjects that help explains besides the verbs.
var topics = []string{"names", "revisions", "merging", "json", "environment", "exit"}

// helpCommand prints help for verbs and topics; an unknown one is a usage error.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || target == nil {
				return withHint(usagef("there is no help about %q", strings.Join(args, " ")), "%s --help lists the verbs and topics",
					a.process.Program)
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			found := objects(cmd.Root().Commands(), func(c *cobra.Command) string { return c.Name() + "\t" + c.Short })
			return matching(found, toComplete), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// moved maps former names of verbs and flags to descriptions of their replacements.
var moved = map[string]string{
	"pages":                "ls lists pages, ls LEDGER/ those of one ledger, and -l shows ids and sizes",
	"stat":                 "inspect LEDGER/PAGE describes a page, inspect LEDGER/PAGE key KEY a key",
	"jsck":                 "permazen check checks typed objects, --repair repairs them",
	"show":                 "log LEDGER/PAGE --at REV -n 1 --diff shows a commit and what it changed",
	"usage":                "status --space",
	"prefetch":             "fetch brings a page and its values here",
	"compact":              "gc --compact",
	"catalog verify":       "catalog check",
	"catalog lock --free":  "--release",
	"evict --keep":         "--keep-values",
	"key rotate --without": "key rm",
	"log --all":            "--heads starts from every head",
	"log --format":         "--ids prints ids, --oneline a line for each commit, --json objects",
	"log --from":           "--at starts from a revision",
	"diff --stat":          "--json has sizes",
	"log --stat":           "--diff lists the changes, with sizes with --json",
	"status --bars":        "--space has bars",
	"sync --pause":         "cloud pause",
	"sync --resume":        "cloud resume",
	"tag --force":          "--move moves a name",
	"tag -f":               "--move moves a name",
	"undo --parent":        "--to says to which parent of a merge",
}

// movedHint is the entry of moved for a verb, or for a flag of a command; "" for no former name.
func movedHint(cmd *cobra.Command, name string) string {
	return moved[strings.TrimPrefix(cmd.CommandPath()+" ", programName+" ")+name]
}
