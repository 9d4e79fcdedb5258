package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/cli"
)

// TestWrongArgumentsAreUsageErrors gives verbs arguments that can never be right, some of which
// only the library knows to be so.
func TestWrongArgumentsAreUsageErrors(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "repo")
	runs(t, dir, "", "init")
	runs(t, dir, "", "put", "p", "k", "v")
	base := strings.Fields(runs(t, dir, "", "log", "p", "--ids"))[0]
	runs(t, dir, "", "put", "p", "k", "1", "--parent", base, "--no-merge")
	runs(t, dir, "", "put", "p", "k", "2", "--parent", base)
	long, message := strings.Repeat("k", 4097), strings.Repeat("m", 20_000)
	before := runs(t, dir, "", "log", "p") + runs(t, dir, "", "tag", "p")
	for _, args := range [][]string{
		{"put", "p", long, "v"}, {"get", "p", long}, {"rm", "p", long}, {"why", "p", long}, {"delete", "p", "--from-history", long, "--yes"},
		{"put", strings.Repeat("l", 151), "k", "v"}, {"put", "l/" + strings.Repeat("p", 1025), "k", "v"},
		{"put", "p", "k", "w", "-m", message}, {"put", "p", "k", "w", "-m", "\xff"}, {"rm", "p", "--all", "--yes", "-m", "\xff"},
		{"import", "p", top, "-m", "\xff"}, {"restore", "p", "HEAD~1", "-m", message}, {"undo", "p", "HEAD~1", "-m", message},
		{"tag", "p", "a b"}, {"tag", "p", "~"}, {"tag", "p", "HEAD"}, {"tag", "p", ""}, {"tag", "p", strings.Repeat("t", 257)}, {"tag", "p", "\xff"},
		{"get", "p", "k", "--at", "HEAD~x"}, {"get", "p", "k", "--at", "~1"}, {"diff", "p", "HEAD~x"}, {"log", "p", "--at", "HEAD~x"},
		{"put", "p", "k", "w", "--parent", "HEAD~x"}, {"restore", "p", "~"}, {"undo", "p", "HEAD~x"},
		{"undo", "p", "HEAD"}, {"undo", "p", "HEAD", "--to", "HEAD"}, {"undo", "p", base, "--to", "HEAD"}, {"undo", "p", base + "~1"},
		{"--lock-timeout", "-1s", "get", "p", "k"}, {"--device", strings.Repeat("d", 257), "put", "p", "k", "w"}, {"--device", "\xff", "put", "p", "k", "w"},
		{"serve", "--max-poll", "-1s"}, {"serve", "--min-poll", "10s", "--max-poll", "9s"}, {"serve", "--max-poll", "1s"},
		{"serve", "--upload-limit", "-1"}, {"sync", "--download-limit", "512"},
		{"backup", filepath.Join(dir, "copy")}, {"export", "p", filepath.Join(dir, "x")}, {"import", "p", dir},
		{"put", "p", "k", "-f", dir}, {"import", "p", os.DevNull},
		{"cloud", "set", "dir:" + filepath.Join(dir, "bucket"), "--plaintext"},
		{"catalog", "find", "p", "$Object:ROOT=1"},
	} {
		_, errs, code := run(t, dir, "", args...)
		if code != cli.ExitUsage || !strings.HasPrefix(errs, "ledgerd: ") || !strings.Contains(errs, "\n   try: ") {
			t.Errorf("%.60q: exit code %d, %.300q", args, code, errs)
		}
		if len(errs) > 1000 || strings.Contains(errs, "invalid argument\n") || strings.Contains(errs, "too large\n") {
			t.Errorf("%.60q says %.300q", args, errs)
		}
	}
	if after := runs(t, dir, "", "log", "p") + runs(t, dir, "", "tag", "p"); after != before {
		t.Errorf("history was\n%s\nand is\n%s", before, after)
	}
	if _, err := os.Stat(filepath.Join(dir, "copy")); err == nil {
		t.Error("a copy was begun in the repository")
	}
}
