//go:build linux || darwin

package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/cli"
)

// TestEmptySegmentIsToldOnce cuts the log of a page to nothing.
func TestEmptySegmentIsToldOnce(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r")
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "notes", "a", "1")
	segments, err := filepath.Glob(filepath.Join(repo, "1", "ledgers", "*", "*", "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	if err := os.Truncate(segments[0], 0); err != nil {
		t.Fatal(err)
	}
	want := "ledgerd: open page notes: corrupt segment 00000001 offset 32: want batch 1, which page.db reflects, got a log that ends with batch 0\n"
	if errs := fails(t, 20, "--dir", repo, "get", "notes", "a"); !strings.HasPrefix(errs, want) {
		t.Errorf("said %q, want %q", errs, want)
	}
}

// TestDeletedPageIsToldOnce deletes a page for all devices and uses it on another one.
func TestDeletedPageIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	a, b, key, bucket := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "key"), "dir:"+filepath.Join(dir, "bucket")
	do(t, 0, "", "key", "init", key)
	do(t, 0, "", "--dir", a, "init")
	do(t, 0, "", "--dir", a, "put", "notes/today", "k", "1")
	do(t, 0, "", "--dir", a, "put", "films", "k", "1")
	do(t, 0, "", "--dir", a, "cloud", "set", bucket, "--key-file", key)
	do(t, 0, "", "--dir", a, "sync")
	do(t, 0, "", "--dir", b, "clone", bucket, "--key-file", key)
	do(t, 0, "", "--dir", a, "delete", "notes/today", "--everywhere", "--yes")
	do(t, 0, "", "--dir", b, "put", "notes/today", "k", "2")
	for want, verbs := range map[int][]string{
		1: {"sync notes/today", "cloud check notes/today", "gc notes/today --keep-last 1 --yes", "delete notes/today --from-history k --yes", "delete notes/today --everywhere --yes"},
		3: {"sync"},
	} {
		for _, verb := range verbs {
			errs := fails(t, want, append([]string{"--dir", b}, strings.Fields(verb)...)...)
			if strings.Contains(errs, "reaches back") || strings.Contains(errs, ": conflict") || strings.Contains(errs, "PAGE") {
				t.Errorf("%s says %s", verb, errs)
			}
			if strings.Contains(errs, "deleted") && !strings.Contains(errs, "delete notes/today --discard-unsynced") {
				t.Errorf("%s gives no hint: %s", verb, errs)
			}
		}
	}
}

// TestFlagErrorsAreWords gives flags and variables values that they cannot have.
func TestFlagErrorsAreWords(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r")
	do(t, 0, "", "--dir", repo, "init")
	for want, args := range map[string][]string{
		"--mirror and --no-delete exclude each other":           {"import", "p", ".", "--mirror", "--no-delete"},
		"--json wants true or false, not \"perhaps\"":           {"ls", "p", "--json=perhaps"},
		"--lock-timeout wants a time such as 30s, not \"long\"": {"ls", "p", "--lock-timeout", "long"},
		"--limit wants a whole number, not \"many\"":            {"ls", "p", "--limit", "many"},
	} {
		if errs := fails(t, 2, append([]string{"--dir", repo}, args...)...); !strings.HasPrefix(errs, "ledgerd: "+want+"\n") {
			t.Errorf("%q: said %q, want %q", args, errs, want)
		}
	}
	for name, want := range map[string]string{
		"LEDGER_JSON": "true or false", "LEDGER_NO_PROGRESS": "true or false", "LEDGER_LOCK_TIMEOUT": "a time such as 30s",
	} {
		if errs := failsWith(t, 2, map[string]string{name: "perhaps"}, "--dir", repo, "ls", "p"); !strings.HasPrefix(errs, "ledgerd: "+name+" wants "+want+", not \"perhaps\"\n") {
			t.Errorf("%s: said %q", name, errs)
		}
	}
}

// TestErrorsEndWithTheirCause: what is wrong stands at the end of a message once, not followed by
// the name of its class.
func TestErrorsEndWithTheirCause(t *testing.T) {
	dir := t.TempDir()
	repo, full := filepath.Join(dir, "r"), filepath.Join(dir, "full")
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "p", "k", "1")
	do(t, 0, "", "--dir", repo, "tag", "p", "v1")
	do(t, 0, "", "--dir", repo, "put", "p", "k", "2")
	do(t, 0, "", "--dir", repo, "backup", full)
	for want, args := range map[string][]string{
		"restore 2001-01-01: the page had no commit then":     {"restore", "p", "2001-01-01"},
		"back up to " + full + ": the directory is not empty": {"backup", full},
		"check a database: database is not initialized":       {"permazen", "check", "p"},
		"page p has no key nothing":                           {"get", "p", "nothing"},
		"ledger \"nope\" has no pages in this repository":     {"status", "--space", "nope/"},
	} {
		errs := fails(t, 1, append([]string{"--dir", repo}, args...)...)
		if !strings.HasPrefix(errs, "ledgerd: "+want+"\n   try: ") {
			t.Errorf("%q: said %q, want %q", args, errs, want)
		}
	}
	if errs := fails(t, 1, "--dir", repo, "tag", "p", "v1"); !regexp.MustCompile(`^ledgerd: tag v1: commit [0-9a-f]{12} has this name already\n   try: --move`).MatchString(errs) {
		t.Errorf("said %q", errs)
	}
	if errs := fails(t, 2, "--dir", repo, "init", "x"); !strings.Contains(errs, "the number of arguments is wrong, want: ledgerd init\n") {
		t.Errorf("said %q", errs)
	}
}

// fails runs a command that ends with a code and returns what it says on the standard error.
func fails(t *testing.T, want int, args ...string) string {
	t.Helper()
	return failsWith(t, want, nil, args...)
}

// failsWith is fails with variables of the environment.
func failsWith(t *testing.T, want int, env map[string]string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	p := process(args, strings.NewReader(""), &out, &errs)
	p.LookupEnv = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if code := cli.Main(t.Context(), p); code != want {
		t.Errorf("ledgerd %q: exit code %d, want %d; %s", args, code, want, errs.String())
	}
	return errs.String()
}
