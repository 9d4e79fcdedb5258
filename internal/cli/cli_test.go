package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/cli"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs one command on the repository in dir.
func run(t testing.TB, dir, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(t.Context(), cli.Process{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		LookupEnv: environment(dir),
	})
	return out.String(), errs.String(), code
}

// environment has a repository, and patience with others who look at it: on a busy machine a moment
// may take seconds.
func environment(dir string) func(string) (string, bool) {
	all := map[string]string{"LEDGER_DIR": dir, "LEDGER_LOCK_TIMEOUT": "5m"}
	return func(name string) (string, bool) { v, ok := all[name]; return v, ok }
}

func runs(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	out, errs, code := run(t, dir, stdin, args...)
	if code != cli.ExitDone {
		t.Fatalf("%q: exit code %d: %s", args, code, errs)
	}
	return out
}

// hostile are texts that must not reach a terminal as they are.
var hostile = []string{"\x1b[31mred", "bell\a", "line\nbreak", "carriage\rreturn", "\u202eright to left", "\u009bcsi of C1", "\u2066isolated\u2069 \u200f\U000e0041", "\x7f", "\x9bcsi", "\xff\xfe", "nul\x00", "tab\t"}

// hostilePage makes a page whose keys, values, messages, links and names are hostile.
func hostilePage(t *testing.T) (dir, name string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo")
	repo, err := ledger.Open(t.Context(), dir, &ledger.Options{Device: "device\x1b[0m\n", ManualMerge: true})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	page, err := repo.Page(t.Context(), "ledger\x1b[31m\n", "page\a/x")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for i, s := range hostile {
		_, err := page.Update(t.Context(), func(tx *ledger.Tx) error {
			if utf8.ValidString(s) {
				if err := tx.SetMessage("message " + s); err != nil {
					return err
				}
			}
			if err := tx.Put(t.Context(), []byte(s), []byte(strings.Repeat(s, 1+i*10_000))); err != nil {
				return err
			}
			if err := tx.Put(t.Context(), []byte("link"+s), []byte(s)); err != nil {
				return err
			}
			attributes := []byte{1, 2, 15: 0}
			return tx.Put(t.Context(), []byte("\x00attr\x00link"+s), attributes)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	hostileMerge(t, page)
	return dir, "ledger%1B%5B31m%0A/page%07/x"
}

// hostileMerge makes two heads that are in conflict about hostile values, and a merge of them by a
// rule with a hostile name.
func hostileMerge(t *testing.T, page *ledger.Page) {
	t.Helper()
	heads, err := page.Heads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"\x1b[31mleft", "\u202eright"} {
		tx, err := page.Begin(t.Context(), &ledger.TxOptions{Base: heads[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range hostile {
			if err := tx.Put(t.Context(), []byte(s), []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page.SetMergeRules(ledger.MergeRule{Strategy: ledger.Automatic(ledger.Resolver(func(context.Context, *ledger.MergeConflict) (ledger.Resolution, error) {
		return ledger.Resolution{Take: ledger.TakeLeft, Rule: "rule\x1b[0m\n"}, nil
	}))})
	if merges, err := page.Merge(t.Context()); err != nil || len(merges) != 1 || merges[0].Conflicts != len(hostile) {
		t.Fatalf("merged %+v, %v", merges, err)
	}
}

// reading are verbs that read, for a page.
func reading(t *testing.T, page string) [][]string {
	return [][]string{
		{"ls", page}, {"ls", page, "-l"}, {"ls", page, "--raw"}, {"ls", page, "--raw", "--reverse"}, {"ls", page, "--hex"},
		{"inspect", page}, {"inspect", page, "key", hostile[0]}, {"inspect", page, "key", "link" + hostile[0]},
		{"log", page}, {"log", page, "--oneline"}, {"log", page, "--graph", "--conflicts"}, {"log", page, "--conflicts"}, {"why", page, hostile[0]}, {"log", page, "--diff"}, {"log", page, "--at", "HEAD~1", "--diff"},
		{"diff", page, "HEAD~3"}, {"diff", page, "HEAD~3", "--json"}, {"tag", page}, {"ls"}, {"status"}, {"check"},
		{"inspect", page}, {"inspect", page, "rows"}, {"inspect", page, "commits"}, {"inspect", page, "tree"},
		{"inspect", page, "pieces"}, {"inspect", page, "pieces", hostile[8]}, {"inspect", page, "refs"},
		{"export", page, filepath.Join(t.TempDir(), "out")},
	}
}

// watching are verbs that read and wait for a page that is not there.
func watching(page string) [][]string {
	return [][]string{{"watch", page, "--from", "none", "-n", "1"}, {"watch", page, "--from", "HEAD~1", "-n", "1"}}
}

// C3: no verb lets a control character of a page through, neither to the output nor in errors and
// warnings.
func TestTextIsPrintable(t *testing.T) {
	dir, page := hostilePage(t)
	all := append(reading(t, page), watching(page)...)
	for _, s := range hostile {
		all = append(all, []string{"why", page, s}, []string{"why", page, "no" + s}, []string{"undo", page, s}, []string{"log", page, "--at", s}, []string{"export", page, s, "--format", s})
		all = append(all, []string{"get", page, "no" + s}, []string{"get", page, s, "--at", s}, []string{"tag", page, s}, []string{"rm", page, "no" + s},
			[]string{"ls", s}, []string{"put", page, s, "v"}, []string{"restore", page, s}, []string{"import", page, s}, []string{"ls", page, "--limit", s})
	}
	for _, args := range all {
		out, errs, _ := run(t, dir, "", args...)
		for _, text := range []string{out, errs} {
			bad := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && (!unicode.IsPrint(r) || r == utf8.RuneError) })
			if bad >= 0 {
				t.Errorf("%q prints %q", args, text[bad:min(bad+20, len(text))])
			}
		}
	}
}

// C4: with --json every line of the output, and of the errors and warnings, is one object.
func TestJSONIsJSON(t *testing.T) {
	dir, page := hostilePage(t)
	all := append(reading(t, page), watching(page)...)
	for _, s := range hostile {
		all = append(all, []string{"why", page, s}, []string{"undo", page, "HEAD~2"}, []string{"merge", page}, []string{"put", page, s, "sibling", "--parent", "HEAD~3"})
		all = append(all, []string{"get", page, s}, []string{"get", page, s, "--offset", "1", "--length", "3"}, []string{"get", page, "no" + s},
			[]string{"put", page, s, "new"}, []string{"rm", page, s}, []string{"restore", page, "HEAD~1"})
	}
	all = append(all, []string{"nonsense"}, []string{"ls"}, []string{"tag", page, "v1"}, []string{"backup", filepath.Join(t.TempDir(), "copy")},
		[]string{"import", page, t.TempDir()}, []string{"ls", page, "--raw"}, []string{"export", page, "-", "--format", "jsonl"})
	for _, args := range all {
		out, errs, _ := run(t, dir, "", append([]string{"--json"}, args...)...)
		for _, text := range []string{out, errs} {
			if bad := strings.IndexFunc(text, func(r rune) bool {
				return r != '\n' && r != ' ' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
			}); bad >= 0 {
				t.Errorf("%q prints %q", args, text[bad:min(bad+20, len(text))])
			}
			for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
				var object map[string]any
				if err := json.Unmarshal([]byte(line), &object); err != nil && text != "" {
					t.Errorf("%q prints the line %.200q: %v", args, line, err)
				}
			}
		}
	}
}

// C1: a verb that reads creates nothing.
func TestReadingCreatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	for _, args := range append(reading(t, "page"), watching("page")...) {
		if _, _, code := run(t, dir, "", args...); code != cli.ExitNoRepository {
			t.Errorf("%q: exit code %d, want %d", args, code, cli.ExitNoRepository)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("something was created: %v", err)
	}
	runs(t, dir, "", "init")
	runs(t, dir, "", "put", "other", "k", "v")
	for _, args := range reading(t, "page") {
		if len(args) == 1 || args[0] == "status" || args[0] == "check" {
			continue
		}
		if _, errs, code := run(t, dir, "", args...); code != cli.ExitError || !strings.Contains(errs, "does not exist") {
			t.Errorf("%q: exit code %d, %q", args, code, errs)
		}
	}
	if out := runs(t, dir, "", "ls"); strings.Count(out, "\n") != 1 {
		t.Errorf("pages are %q", out)
	}
}

// C2: a verb that fails makes no commit.
func TestFailingMakesNoCommit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	runs(t, dir, "", "init")
	runs(t, dir, "", "put", "p", "k", "v")
	before := runs(t, dir, "", "log", "p")
	for _, verb := range []struct {
		want int
		args []string
	}{
		{cli.ExitUsage, []string{"put", "p", strings.Repeat("k", 4097), "v"}},
		{cli.ExitError, []string{"put", "p", "k", "w", "--if-absent"}},
		{cli.ExitUsage, []string{"put", "p", "k", "w", "-m", strings.Repeat("m", 20_000)}},
		{cli.ExitUsage, []string{"put", "p", "k", "w", "-m", "\xff"}},
		{cli.ExitError, []string{"rm", "p", "k", "absent"}},
		{cli.ExitUsage, []string{"rm", "p", "--all", "--yes", "-m", "\xff"}},
		{cli.ExitError, []string{"restore", "p", "HEAD~9"}},
		{cli.ExitError, []string{"import", "p", filepath.Join(dir, "absent")}},
		{cli.ExitError, []string{"import", "p", "-", "--format", "jsonl"}},
		{cli.ExitUsage, []string{"tag", "p", "~"}},
		{cli.ExitUsage, []string{"put", "p", "k", "-f", dir}},
	} {
		if _, errs, code := run(t, dir, "{\"key\":\"a\",\"value\":\"b\"}\n{", verb.args...); code != verb.want || errs == "" {
			t.Errorf("%.60q: exit code %d, %q, want %d", verb.args, code, errs, verb.want)
		}
	}
	if after := runs(t, dir, "", "log", "p"); after != before {
		t.Errorf("history was\n%s\nand is\n%s", before, after)
	}
}

// Every verb and topic has help with an example or a table, and no line is too long for a terminal.
func TestHelpTeaches(t *testing.T) {
	dir := t.TempDir()
	for _, verb := range strings.Fields("init put get ls rm import export log diff tag restore merge why undo watch gc evict delete inspect check status backup sync clone fetch serve completion") {
		out := runs(t, dir, "", verb, "--help")
		if !strings.Contains(out, "Examples:") || !strings.Contains(out, "Usage:") {
			t.Errorf("help of %s has no examples:\n%s", verb, out)
		}
		if again := runs(t, dir, "", "help", verb); again != out {
			t.Errorf("help %s and %s --help differ", verb, verb)
		}
	}
	for _, topic := range strings.Fields("names revisions merging json environment exit") {
		if out := runs(t, dir, "", "help", topic); len(out) < 100 {
			t.Errorf("help %s says only %q", topic, out)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		nil: 0, fmt.Errorf("x: %w", ledger.ErrNotFound): 1, fmt.Errorf("x: %w", ledger.ErrNoRepository): 10,
		fmt.Errorf("x: %w", context.Canceled): 130, &ledger.LockedError{PID: 1}: 11, &ledger.CorruptError{Where: "x"}: 20, &ledger.FormatError{What: "x"}: 1,
	} {
		if got := cli.ExitCode(err); got != want {
			t.Errorf("exit code of %v is %d, want %d", err, got, want)
		}
	}
}

// TestVerbsLeaveNoMemory runs many verbs in one process, as serve does.
func TestVerbsLeaveNoMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	heap := func(verbs int) int64 {
		for range verbs {
			run(t, dir, "", "ls") // exit code 10
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap(10)
	if grown := heap(200) - before; grown > 4<<20 {
		t.Errorf("200 verbs left %d bytes", grown)
	}
}
