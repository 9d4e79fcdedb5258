//go:build linux || darwin

package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/cli"
)

// destructive are verbs that destroy something of the page notes, and what they say before.
var destructive = map[string]struct {
	args  []string
	state string
}{
	"delete":           {[]string{"delete", "notes", "--discard-unsynced"}, "notes: to be deleted, "},
	"rm all":           {[]string{"rm", "notes", "--all"}, "notes: to be removed, 2 keys\n"},
	"gc":               {[]string{"gc", "--keep-last", "1"}, "notes: to be collected, 2 given up commits\n"},
	"evict discarding": {[]string{"evict", "notes", "--discard-unsynced"}, "discards unsynced data\n"},
	"erase":            {[]string{"delete", "notes", "--from-history", "a"}, "notes: to be erased, 1 given up commit\n"},
}

// TestDestructiveVerbsAsk runs each destructive verb beside nothing and through serve: with no, yes
// and no answer on a terminal, elsewhere, and dry.
func TestDestructiveVerbsAsk(t *testing.T) {
	for name, verb := range destructive {
		for _, served := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " through serve"}[served], func(t *testing.T) {
				_, repo, run := forServe(t)
				run(0, "init")
				run(0, "put", "notes", "a", "1")
				run(0, "put", "notes", "a", "2")
				run(0, "put", "notes", "b", "3")
				if served {
					startServe(t, repo)
				}
				ask := func(want int, answer string, more ...string) (out, errs string) {
					t.Helper()
					var stdout, stderr bytes.Buffer
					p := process(append(append([]string{"--dir", repo}, verb.args...), more...), strings.NewReader(answer), &stdout, &stderr)
					p.Asks = true
					if code := cli.Main(t.Context(), p); code != want {
						t.Fatalf("answer %q: exit code %d, want %d: %s", answer, code, want, &stderr)
					}
					return stdout.String(), stderr.String()
				}
				before := run(0, "log", "notes") + run(0, "ls", "notes")
				unchanged := func(what string) {
					t.Helper()
					if after := run(0, "log", "notes") + run(0, "ls", "notes"); after != before {
						t.Fatalf("%s: the page was\n%s\nand is\n%s", what, before, after)
					}
				}
				for _, answer := range []string{"n\n", "\n", "", "yesterday\n", strings.Repeat("y", 5000) + "\n"} {
					out, errs := ask(1, answer)
					if !strings.Contains(errs, verb.state) || !strings.Contains(errs, "Go on? [y/N] ") || out != "" {
						t.Fatalf("answer %.10q: said %q and %q", answer, out, errs)
					}
				}
				unchanged("after no")
				run(2, verb.args...)
				ask(2, "y\n", "--json")
				unchanged("without an answer")
				if out := run(0, append(verb.args, "--dry-run")...); !strings.Contains(out, verb.state) {
					t.Fatalf("dry it says %q", out)
				}
				run(0, append(verb.args, "--dry-run", "--yes", "--json")...)
				unchanged("dry")
				if out, errs := ask(0, "Yes\n"); !strings.Contains(errs, verb.state) || out == "" {
					t.Fatalf("said %q and %q", out, errs)
				}
				if pages := run(0, "ls"); strings.Contains(pages, "notes") && run(0, "log", "notes")+run(0, "ls", "notes") == before {
					t.Error("nothing was done after yes")
				}
			})
		}
	}
}

// TestYesAsksNothing gives consent by a flag.
func TestYesAsksNothing(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r")
	do(t, 0, "", "--dir", repo, "init")
	for name, verb := range destructive {
		do(t, 0, "", "--dir", repo, "put", "notes", "a", name)
		do(t, 0, "", "--dir", repo, "put", "notes", "a", "2")
		do(t, 0, "", append(append([]string{"--dir", repo}, verb.args...), "--yes")...)
	}
}
