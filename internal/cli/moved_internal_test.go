package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMovedNamesSayWhatThereIsNow uses each old name. It is none any more, and the error names the
// one that takes its place, which is there.
func TestMovedNamesSayWhatThereIsNow(t *testing.T) {
	for old, now := range moved {
		a := &app{process: Process{Program: programName}, out: newOutput(io.Discard)}
		root := a.root()
		words := strings.Fields(old)
		if c, rest, err := root.Find(words); err == nil && len(rest) == 0 {
			t.Errorf("%s is a verb: %s", old, c.CommandPath())
		}
		var errs bytes.Buffer
		code := Main(t.Context(), Process{
			Args: append(words, "x"), Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs,
			LookupEnv: func(string) (string, bool) { return "", false },
		})
		if code != ExitUsage || !strings.Contains(errs.String(), "\n   try: "+now) {
			t.Errorf("%s: exit code %d, %s", old, code, &errs)
		}
		if !named(root, words, now) {
			t.Errorf("%s is said to be %q, which is none", old, now)
		}
	}
}

// named reports whether a text begins with the name of a verb, or of a flag of the verb of words.
func named(root *cobra.Command, words []string, text string) bool {
	first := strings.Fields(text)
	if flag, ok := strings.CutPrefix(first[0], "--"); ok {
		verb, _, err := root.Find(words[:len(words)-1])
		return err == nil && verb.Flags().Lookup(flag) != nil
	}
	c, _, err := root.Find(first)
	return err == nil && c != root && (!c.HasSubCommands() || c.Name() == first[len(first)-1])
}

// TestFlagNamesHaveOneKind walks all verbs: a flag has one kind of value and one short letter
// wherever it is, and a letter stands for one flag.
func TestFlagNamesHaveOneKind(t *testing.T) {
	a := &app{process: Process{Program: programName}, out: newOutput(io.Discard)}
	kinds, letters := map[string]string{}, map[string]string{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type() + " -" + f.Shorthand; kinds[f.Name] == "" {
				kinds[f.Name] = kind
			} else if kinds[f.Name] != kind {
				t.Errorf("%s: --%s is %s, and %s elsewhere", c.CommandPath(), f.Name, kind, kinds[f.Name])
			}
			if f.Shorthand == "" {
				return
			}
			if letters[f.Shorthand] == "" {
				letters[f.Shorthand] = f.Name
			} else if letters[f.Shorthand] != f.Name {
				t.Errorf("%s: -%s is --%s, and --%s elsewhere", c.CommandPath(), f.Shorthand, f.Name, letters[f.Shorthand])
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
	if len(kinds) < 60 {
		t.Errorf("%d flags were found", len(kinds))
	}
}
