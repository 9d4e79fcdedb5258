package cli

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/clock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEnvironmentSetsNothingElse gives every flag of every verb a variable, and wants those alone
// set that are documented. A flag that deletes, discards, confirms or selects must never be among
// them.
func TestEnvironmentSetsNothingElse(t *testing.T) {
	env := func(name string) (string, bool) {
		switch {
		case !strings.HasPrefix(name, "LEDGER_"):
			return "", false
		case name == "LEDGER_LOCK_TIMEOUT":
			return "7m", true
		}
		return "1", true // a value for a text, a number and a switch
	}
	a := &app{process: Process{LookupEnv: env, Clock: clock.System}, out: newOutput(&bytes.Buffer{})}
	set, verbs := map[string]bool{}, 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		verbs++
		_ = cmd.ParseFlags(nil) // it adds the flags of the root
		if err := a.fromEnvironment(cmd); err != nil {
			t.Errorf("%s: %v", cmd.CommandPath(), err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.String() != f.DefValue {
				set[f.Name] = true
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(a.root())
	want := []string{"device", "dir", "json", "key-file", "lock-timeout", "no-progress"}
	if got := slices.Sorted(maps.Keys(set)); !slices.Equal(got, want) {
		t.Errorf("the environment sets %q, want %q", got, want)
	}
	if verbs < 40 {
		t.Errorf("only %d verbs were looked at", verbs)
	}
	for _, name := range environmentFlags {
		if !strings.Contains(a.define("environment", nil).Long, name) {
			t.Errorf("help environment does not name %s", name)
		}
	}
}
