//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// chapter returns the commands of a chapter of the README.
func chapter(t *testing.T, heading string) (commands []string) {
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
	for line := range strings.SplitSeq(rest, "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, command)
		}
	}
	return commands
}

// TestReadme runs the commands of the README about devices and keys as they stand there: two
// devices share a tree, a third one gets a passphrase, which is changed; it is lost and shut out;
// the others are lost too, and recovery words bring back what was there.
func TestReadme(t *testing.T) {
	for _, program := range []string{"sh", "diff"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir, source := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(dir, "old"): "the old one\n", filepath.Join(dir, "new"): "the new one\n",
		filepath.Join(source, "main.go"): "package main\n", filepath.Join(source, "long"): strings.Repeat("all work and no play\n", 20_000),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	run := func(command string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "T=" + dir, "S=" + source, "LEDGER_LOCK_TIMEOUT=5m"}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		last = out.String()
		_, comment, _ := strings.Cut(command, "# ")
		if strings.Contains(comment, "it is shut out") {
			if err == nil || !strings.Contains(errs.String(), "shut out") {
				t.Errorf("%s: %v, %s", command, err, errs.String())
			}
		} else if err != nil {
			t.Fatalf("%s: %v, %s", command, err, errs.String())
		}
	}
	for _, command := range chapter(t, "Two devices") {
		if !strings.Contains(command, " serve ") { // which goes on
			run(command)
		}
	}
	story := chapter(t, "Keys, and a lost device")
	if len(story) < 10 {
		t.Fatalf("the story has %d commands", len(story))
	}
	for _, command := range story {
		run(command)
		if strings.Contains(command, "key rotate --without") {
			run(`test "$(ledgerd --dir $T/a key ls | grep -c phone)" = 0`)
		}
	}
	if strings.TrimSpace(last) != "two" {
		t.Errorf("the story ends with %q", last)
	}
	run(`! ledgerd --dir $T/phone get src secret 2>&1`)
	run(`ledgerd --dir $T/c export src $T/end && diff -r $S $T/end -x one -x two -x both -x secret`)
}
