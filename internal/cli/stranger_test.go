//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/cli"
)

// TestNothingIsMadeOfNothing asks for what there is nothing of.
func TestNothingIsMadeOfNothing(t *testing.T) {
	dir := t.TempDir()
	repo, empty := filepath.Join(dir, "r"), filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if errs := fails(t, 1, "--dir", repo, "import", "p", empty); !strings.Contains(errs, "there is nothing to import in it") {
		t.Errorf("a first import of an empty directory says %q", errs)
	}
	if _, err := os.Stat(repo); err == nil {
		t.Error("a repository was made of an empty directory")
	}
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "notes", "docs/a", "1")
	for _, more := range [][]string{nil, {"--mirror"}, {"--no-delete"}} {
		if errs := fails(t, 1, append([]string{"--dir", repo, "import", "p", empty}, more...)...); !strings.Contains(errs, "there is nothing to import in it") {
			t.Errorf("an import of an empty directory %q says %q", more, errs)
		}
	}
	fails(t, 1, "--dir", repo, "import", "p", empty, "--dry-run")
	if pages := do(t, 0, "", "--dir", repo, "ls", "-l"); strings.Contains(pages, "p ") {
		t.Errorf("pages are %q", pages)
	}
	out, lines := filepath.Join(dir, "out"), filepath.Join(dir, "out.jsonl")
	for _, to := range []string{out, lines, "-"} {
		args := []string{"--dir", repo, "export", "notes", to, "dosc/"}
		if to == "-" {
			args = append(args, "--format", "jsonl")
		}
		if errs := fails(t, 1, args...); !strings.Contains(errs, "page notes has no key that begins with dosc/") {
			t.Errorf("an export of nothing says %q", errs)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s was made", to)
		}
	}
	do(t, 0, "", "--dir", repo, "export", "notes", out, "docs/")
}

// TestNoRepositoryInAnother creates repositories below one.
func TestNoRepositoryInAnother(t *testing.T) {
	dir := t.TempDir()
	repo := filepath.Join(dir, "r")
	do(t, 0, "", "--dir", repo, "init")
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"sub", "1/x", "sub/deep"} {
		sub = filepath.Join(repo, sub)
		for _, verb := range [][]string{{"init"}, {"import", "p", file}, {"clone", "dir:" + filepath.Join(dir, "bucket"), "--plaintext"}} {
			if errs := fails(t, 1, append([]string{"--dir", sub}, verb...)...); !strings.Contains(errs, "it lies in the repository "+repo) {
				t.Errorf("%q says %q", verb, errs)
			}
		}
		if _, err := os.Stat(sub); err == nil {
			t.Errorf("%s was made", sub)
		}
	}
}

// TestTagsAreNoOtherRevisions gives commits names that mean something else.
func TestTagsAreNoOtherRevisions(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r")
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "p", "k", "1")
	id := strings.TrimSpace(do(t, 0, "", "--dir", repo, "log", "p", "--ids"))
	for _, name := range []string{"none", "2024-05-01", "2024-05-01T12:00:00Z", "2024", "abcdef", "BEEF", id, id[:7]} {
		if errs := fails(t, 2, "--dir", repo, "tag", "p", name); !strings.Contains(errs, "tag \""+name+"\"") {
			t.Errorf("tag %s: %q", name, errs)
		}
	}
	for _, name := range []string{"v2024", "abc", "release-2024-05-01", "2024.05", id + "0"} {
		do(t, 0, "", "--dir", repo, "tag", "p", name)
		do(t, 0, "", "--dir", repo, "tag", "p", "-d", name)
	}
}

// TestDamagedKeyFileSaysSo damages the key file of a cloud.
func TestDamagedKeyFileSaysSo(t *testing.T) {
	dir := t.TempDir()
	repo, key := filepath.Join(dir, "r"), filepath.Join(dir, "key")
	do(t, 0, "", "key", "init", key)
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "p", "k", "1")
	do(t, 0, "", "--dir", repo, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", key)
	if err := os.WriteFile(key, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"key", "show", key}, {"sync"}, {"cloud", "set", "dir:" + filepath.Join(dir, "other"), "--key-file", key}, {"cloud", "check"}} {
		errs := fails(t, 20, append([]string{"--dir", repo}, verb...)...)
		if strings.Contains(errs, " check\n") || !strings.Contains(errs, "the key file is damaged") || !strings.Contains(errs, "copy") {
			t.Errorf("%q says %q", verb, errs)
		}
	}
}

// TestServeWithoutCloudSaysSo starts serve where no cloud is set.
func TestServeWithoutCloudSaysSo(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs bytes.Buffer
	p := process([]string{"--dir", repo, "serve"}, nil, &out, &watchFor{&errs, "until an interrupt", stop})
	if code := cli.Main(ctx, p); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if !strings.Contains(errs.String(), "no cloud is set: serve only runs the verbs of this machine") {
		t.Errorf("serve says %q", &errs)
	}
}

// watchFor stops something when a text is written.
type watchFor struct {
	to   *bytes.Buffer
	text string
	stop func()
}

func (w *watchFor) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if strings.Contains(w.to.String(), w.text) {
		w.stop()
	}
	return n, err
}

// TestImportBehindAKilledOne imports into a page that a killed import has left empty.
func TestImportBehindAKilledOne(t *testing.T) {
	dir := t.TempDir()
	repo := filepath.Join(dir, "r")
	r, err := ledger.Open(t.Context(), repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.OpenPage(t.Context(), ledger.PageRef{Ledger: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := fails(t, 1, "--dir", repo, "evict", "p"); !strings.Contains(errs, "nothing was ever put into it") {
		t.Errorf("evict says %q", errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, 0, "", "--dir", repo, "import", "p", filepath.Join(dir, "f"))
}
