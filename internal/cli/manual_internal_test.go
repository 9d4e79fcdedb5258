package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test -run TestManual -update-manual .

var updateManual = flag.Bool("update-manual", false, "write docs/cli.md and docs/man anew")

// TestManual compares the manuals with what --help says. They are made of the same commands.
func TestManual(t *testing.T) {
	a := &app{process: Process{Program: programName}, out: newOutput(io.Discard)}
	root := a.root()
	root.InitDefaultHelpCmd()
	for name, want := range map[string]string{
		"../../docs/cli.md":        markdown(root),
		"../../docs/man/ledgerd.1": manPage(root),
	} {
		if *updateManual {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.ReplaceAll(string(got), "\r\n", "\n"), want); diff != "" {
			t.Errorf("%s is not what --help says: run go generate ./internal/cli (-is +should be):\n%.2000s", name, diff)
		}
	}
}

// leaves returns the verbs below a command that do something, in the order of --help.
func leaves(c *cobra.Command) []*cobra.Command {
	if c.HasSubCommands() {
		var all []*cobra.Command
		for _, sub := range c.Commands() {
			all = append(all, leaves(sub)...)
		}
		return all
	}
	if !c.Runnable() || c.Hidden {
		return nil
	}
	return []*cobra.Command{c}
}

// groups calls group with the title of each group of verbs, and verb with each verb of it.
func groups(root *cobra.Command, group func(title string), verb func(c *cobra.Command)) {
	for _, g := range root.Groups() {
		group(strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID {
				if c.HasSubCommands() && c.Long != "" {
					verb(c)
				}
				for _, leaf := range leaves(c) {
					verb(leaf)
				}
			}
		}
	}
}

// isTopic reports whether a command is a topic of help.
func isTopic(c *cobra.Command) bool { return !c.Runnable() && !c.HasSubCommands() }

// paragraphs calls text with each paragraph of a text, and table with what is indented.
func paragraphs(long string, text, table func(lines []string)) {
	for p := range strings.SplitSeq(strings.Trim(long, "\n"), "\n\n") {
		lines := strings.Split(p, "\n")
		for len(lines) > 0 {
			n := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, " ") != strings.HasPrefix(lines[0], " ") })
			if n < 0 {
				n = len(lines)
			}
			if strings.HasPrefix(lines[0], " ") {
				table(lines[:n])
			} else {
				text(lines[:n])
			}
			lines = lines[n:]
		}
	}
}

func ownFlags(c *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			own.AddFlag(f)
		}
	})
	return own
}

// markdown is docs/cli.md.
func markdown(root *cobra.Command) string {
	var b strings.Builder
	escape := strings.NewReplacer("*", `\*`, "<", `\<`, "[", `\[`, "_", `\_`)
	block := func(lines []string) {
		b.WriteString("```\n")
		for _, l := range lines {
			b.WriteString(strings.TrimRight(l, " ") + "\n")
		}
		b.WriteString("```\n\n")
	}
	text := func(lines []string) { b.WriteString(escape.Replace(strings.Join(lines, "\n")) + "\n\n") }
	options := func(set *pflag.FlagSet) {
		if set.HasAvailableFlags() {
			block(strings.Split(strings.TrimRight(set.FlagUsages(), "\n"), "\n"))
		}
	}
	b.WriteString("# The verbs of ledgerd\n\nThis file is made from the help of the tool by `go generate ./internal/cli`, as is\nthe manual page `docs/man/ledgerd.1`.\n\n")
	paragraphs(root.Long, text, block)
	groups(root, func(title string) { fmt.Fprintf(&b, "## %s\n\n", title) }, func(c *cobra.Command) {
		fmt.Fprintf(&b, "### %s\n\n%s.\n\n", strings.TrimPrefix(c.CommandPath(), programName+" "), escape.Replace(c.Short))
		block([]string{strings.TrimSuffix(c.UseLine(), " [flags]")})
		paragraphs(c.Long, text, block)
		options(ownFlags(c))
		if c.Example != "" {
			block(strings.Split(c.Example, "\n"))
		}
	})
	b.WriteString("## Flags of all verbs\n\n")
	options(root.PersistentFlags())
	for _, c := range root.Commands() {
		if isTopic(c) {
			fmt.Fprintf(&b, "## %s\n\n", c.Short)
			paragraphs(c.Long, text, block)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// manPage is docs/man/ledgerd.1, in the macros of man(7).
func manPage(root *cobra.Command) string {
	var b strings.Builder
	line := func(l string) {
		l = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimRight(l, " "))
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			l = `\&` + l
		}
		b.WriteString(l + "\n")
	}
	bold := func(l string) { b.WriteString(".B "); line(l) }
	block := func(lines []string) {
		b.WriteString(".PP\n.nf\n")
		for _, l := range lines {
			line(l)
		}
		b.WriteString(".fi\n")
	}
	text := func(lines []string) {
		b.WriteString(".PP\n")
		for _, l := range lines {
			line(l)
		}
	}
	options := func(set *pflag.FlagSet) {
		set.VisitAll(func(f *pflag.Flag) {
			kind, usage := pflag.UnquoteUsage(f)
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			b.WriteString(".TP\n")
			bold(strings.TrimRight(name+" "+kind, " "))
			if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
				usage += " (default " + f.DefValue + ")"
			}
			line(usage)
		})
	}
	fmt.Fprintf(&b, ".TH LEDGERD 1\n.SH NAME\nledgerd \\- %s\n.SH SYNOPSIS\n.B ledgerd\n.I VERB\n[arguments and flags]\n.SH DESCRIPTION\n", root.Short)
	paragraphs(root.Long, text, block)
	block(strings.Split(root.Example, "\n"))
	b.WriteString(".SH OPTIONS\nAll verbs have these.\n")
	options(root.PersistentFlags())
	groups(root, func(title string) { fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(title)) }, func(c *cobra.Command) {
		b.WriteString(".SS ")
		line(strings.TrimPrefix(c.CommandPath(), programName+" "))
		bold(strings.TrimSuffix(c.UseLine(), " [flags]"))
		text([]string{c.Short + "."})
		paragraphs(c.Long, text, block)
		options(ownFlags(c))
		if c.Example != "" {
			block(strings.Split(c.Example, "\n"))
		}
	})
	for _, c := range root.Commands() {
		if isTopic(c) {
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(c.Short))
			paragraphs(c.Long, text, block)
		}
	}
	return b.String()
}
