//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// chapter returns a chapter of the README.
func chapter(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the README has no chapter %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// commands returns the indented lines of a chapter.
func commands(t *testing.T, heading string) (out []string) {
	t.Helper()
	for line := range strings.SplitSeq(chapter(t, heading), "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			out = append(out, command)
		}
	}
	if len(out) < 5 {
		t.Fatalf("the chapter %q has %d commands", heading, len(out))
	}
	return out
}

// reader is a person who types what the README says.
type reader struct {
	dir, source string
	out, errs   string // of the last command
	variables   []string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	for _, program := range []string{"sh", "diff"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	r := &reader{dir: t.TempDir(), source: t.TempDir()}
	for name, text := range map[string]string{
		filepath.Join(r.dir, "old"): "the old one\n", filepath.Join(r.dir, "new"): "the new one\n",
		filepath.Join(r.source, "main.go"): "package main\n", filepath.Join(r.source, "long"): strings.Repeat("all work and no play\n", 20_000),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// run runs a command in the directory of the reader, as a shell does. A variable that the command
// sets is set for those after it.
func (r *reader) run(command string) error {
	variable, inner, sets := strings.Cut(command, "=$(")
	if sets = sets && regexp.MustCompile(`^[A-Z]+$`).MatchString(variable); sets {
		command = strings.TrimSuffix(inner, ")")
	}
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = r.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "T=" + r.dir, "S=" + r.source, "LEDGER_LOCK_TIMEOUT=5m"}, r.variables...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r.out, r.errs = out.String(), errs.String()
	if sets {
		r.variables = append(r.variables, variable+"="+strings.TrimSpace(r.out))
		r.out = ""
	}
	return err
}

func (r *reader) mustRun(t *testing.T, command string) {
	t.Helper()
	if err := r.run(command); err != nil {
		t.Fatalf("%s: %v, %s", command, err, r.errs)
	}
}

// changing is what differs between two runs: ids, times, sizes, counts of requests, and places.
var changing = []struct {
	form *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8,64}\b`), "ID"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? (B|KiB) (up|down)`), "SIZE $3"},
	{regexp.MustCompile(`\b\d+ requests`), "N requests"},
	{regexp.MustCompile(`/\S+/`), "/"},
}

func masked(text string) string {
	for _, c := range changing {
		text = c.form.ReplaceAllString(text, c.mask)
	}
	return text
}

// TestReadmeShowsRealOutput types the first chapter of the README, and compares the output.
func TestReadmeShowsRealOutput(t *testing.T) {
	_, rest, _ := strings.Cut(chapter(t, "Two devices"), "```console\n")
	block, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the chapter has no console")
	}
	r := newReader(t)
	said := strings.Split(strings.TrimPrefix(block, "$ "), "\n$ ")
	if len(said) < 10 {
		t.Fatalf("the console has %d commands", len(said))
	}
	for _, s := range said {
		command, want, _ := strings.Cut(s, "\n")
		r.mustRun(t, command)
		if got, want := masked(strings.TrimSpace(r.out)), masked(strings.TrimSpace(want)); got != want {
			t.Errorf("%s prints\n%s\nand the README shows\n%s", command, got, want)
		}
	}
}

// TestReadmeTour runs the commands of the README about the tool as they stand there.
func TestReadmeTour(t *testing.T) {
	r := newReader(t)
	for _, command := range commands(t, "A tour of the tool") {
		r.mustRun(t, command)
	}
	if !strings.Contains(r.out, "everything verified") {
		t.Errorf("the tour ends with %q", r.out)
	}
	for _, command := range commands(t, "When a page diverges") {
		r.mustRun(t, command)
	}
	r.mustRun(t, "ledgerd --dir $T/r get notes color")
	if r.out != "blue" {
		t.Errorf("the color in the end is %q", r.out)
	}
}

// TestReadme runs the commands of the README about devices and keys as they stand there: two
// devices share a tree, a third one gets a passphrase, which is changed; it is lost and shut out;
// the others are lost too, and recovery words bring back what was there.
func TestReadme(t *testing.T) {
	r := newReader(t)
	for _, command := range commands(t, "Devices and the bucket") {
		if !strings.Contains(command, " serve ") { // which goes on
			r.mustRun(t, command)
		}
	}
	for _, command := range commands(t, "Keys, and a lost device") {
		_, comment, _ := strings.Cut(command, "# ")
		if !strings.Contains(comment, "it is shut out") {
			r.mustRun(t, command)
		} else if err := r.run(command); err == nil || !strings.Contains(r.errs, "shut out") {
			t.Errorf("%s: %v, %s", command, err, r.errs)
		}
		if last := r.out; strings.Contains(command, "key rm phone2") {
			r.mustRun(t, `test "$(ledgerd --dir $T/a key ls | grep -c phone)" = 0`)
			r.out = last
		}
	}
	if strings.TrimSpace(r.out) != "two" {
		t.Errorf("the story ends with %q", r.out)
	}
	r.mustRun(t, `! ledgerd --dir $T/phone get src secret 2>&1`)
	r.mustRun(t, `ledgerd --dir $T/c export src $T/end && diff -r $S $T/end -x one -x two -x both -x secret`)
}
