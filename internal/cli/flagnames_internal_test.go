package cli

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
