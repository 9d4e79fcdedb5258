//go:build linux || darwin

package cli_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stateOf is everything below directories that a verb could change: names, modes and contents. What
// a repository notes of its use, and its indexes, may change by a look.
func stateOf(t *testing.T, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			b.WriteString(path + " " + info.Mode().String() + "\n")
			if info.Mode().IsRegular() && filepath.Ext(path) != ".db" && !strings.HasPrefix(e.Name(), "lock") {
				content, err := os.ReadFile(path)
				b.Write(content)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestDryRunsDoNothing runs verbs that change something with --dry-run, beside nothing and through
// serve: they say what they would do, and then do that when it is not dry.
func TestDryRunsDoNothing(t *testing.T) {
	for name, verb := range map[string]struct {
		args       []string
		says, does string
	}{
		"import mirror": {[]string{"import", "src", "B", "--mirror"}, "src: to be imported, 1 added, 1 updated, 2 removed, 1 unchanged, ", ": 1 added, 1 updated, 2 removed, 1 unchanged, "},
		"import":        {[]string{"import", "new", "A"}, "new: to be imported, 4 added, ", ": 4 added, "},
		"import file":   {[]string{"import", "src", "B/four"}, "src: to be imported, 1 added, ", ": 1 added, "},
		"restore":       {[]string{"restore", "notes", "v1"}, "notes: to be restored, 1 added, 1 changed, 1 removed\n", "restored v1"},
		"restore some":  {[]string{"restore", "notes", "v1", "a"}, "notes: to be restored, 1 changed\n", "restored v1"},
		"undo":          {[]string{"undo", "notes", "v2"}, "notes: to be undone, commit ", ", 1 key\n"},
		"tag delete":    {[]string{"tag", "notes", "-d", "v1"}, "v1: to be deleted, commit ", "v1: deleted, commit "},
		"tag move":      {[]string{"tag", "notes", "v1", "--move"}, "v1: to be set, commit ", " v1\n"},
		"cloud unset":   {[]string{"cloud", "unset"}, "dir:bucket: to be left, ", "dir:bucket: left, "},
		"export":        {[]string{"export", "src", "out"}, "src: to be exported, path out, 4 files, 12 B\n", "src: exported, path out, 4 files, 12 B\n"},
		"export over":   {[]string{"export", "src", "B", "--overwrite"}, "src: to be exported, path B, 4 files, 12 B, 3 replaced\n", "src: exported, path B, 4 files, 12 B, 3 replaced\n"},
		"export lines":  {[]string{"export", "notes", "B/four", "--format", "jsonl", "--overwrite"}, "notes: to be exported, path B/four, 2 files, 2 B, 1 replaced\n", "notes: exported, path B/four, 2 files, "},
	} {
		for _, served := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " through serve"}[served], func(t *testing.T) {
				dir, repo, run := forServe(t)
				args := make([]string, len(verb.args))
				for i, arg := range verb.args {
					args[i] = arg
					if arg == "out" || arg == "A" || arg == "B" || strings.HasPrefix(arg, "B/") {
						args[i] = filepath.Join(dir, arg)
					}
				}
				for path, content := range map[string]string{"A/one": "one", "A/two": "two", "A/three": "three", "A/s/x": "x", "B/one": "one", "B/two": "twoo", "B/four": "four"} {
					path = filepath.Join(dir, path)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				info, err := os.Stat(filepath.Join(dir, "A/one"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(filepath.Join(dir, "B/one"), info.ModTime(), info.ModTime()); err != nil {
					t.Fatal(err)
				}
				if verb.args[0] == "export" && verb.args[1] == "src" { // a file where a directory has to be
					if err := os.WriteFile(filepath.Join(dir, "B", "s"), nil, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				run(0, "init")
				run(0, "import", "src", filepath.Join(dir, "A"))
				run(0, "put", "notes", "a", "1")
				run(0, "put", "notes", "b", "1")
				run(0, "tag", "notes", "v1")
				run(0, "rm", "notes", "b")
				run(0, "put", "notes", "a", "2")
				run(0, "tag", "notes", "v2")
				run(0, "put", "notes", "c", "1")
				run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--plaintext")
				if served {
					startServe(t, repo)
					run(0, "sync")
				}
				look := func() string {
					return run(0, "log", "notes") + run(0, "log", "src") + run(0, "tag", "notes") + run(0, "ls", "src") + run(0, "cloud", "show")
				}
				before, files := look(), stateOf(t, filepath.Join(repo, "1", "ledgers"), filepath.Join(dir, "A"), filepath.Join(dir, "B"))
				out := strings.ReplaceAll(run(0, append(args, "--dry-run")...), dir+"/", "")
				if !strings.HasPrefix(out, verb.says) {
					t.Errorf("dry it says %q, want %q", out, verb.says)
				}
				if out := run(0, append(args, "--dry-run", "--json")...); !strings.Contains(out, `"dryRun":true`) || strings.Count(out, "\n") != 1 {
					t.Errorf("dry, in JSON, it says %q", out)
				}
				if after := look(); after != before {
					t.Fatalf("the repository was\n%s\nand is\n%s", before, after)
				}
				if !served && stateOf(t, filepath.Join(repo, "1", "ledgers"), filepath.Join(dir, "A"), filepath.Join(dir, "B")) != files {
					t.Fatal("files are not as they were")
				}
				if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
					t.Fatal("something was exported")
				}
				if out := strings.ReplaceAll(run(0, args...), dir+"/", ""); !strings.Contains(out, verb.does) {
					t.Errorf("it says %q, want %q", out, verb.does)
				}
			})
		}
	}
}

// TestDryImportMakesNoRepository imports into a directory that is not there.
func TestDryImportMakesNoRepository(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	repo := filepath.Join(dir, "r")
	if out, want := do(t, 0, "", "--dir", repo, "import", "p", filepath.Join(dir, "f"), "--dry-run"), "p: to be imported, 1 added\n"; out != want {
		t.Errorf("said %q, want %q", out, want)
	}
	if _, err := os.Stat(repo); err == nil {
		t.Error("a repository was made")
	}
	do(t, 2, "", "--dir", repo, "import", "p", "-", "--format", "jsonl", "--dry-run")
}
