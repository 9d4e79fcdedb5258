package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A repository that belongs to somebody else is told as such, and other files by their names.
func TestPermissionHints(t *testing.T) {
	dir := t.TempDir()
	a := &app{dir: dir}
	if err := os.WriteFile(filepath.Dir(dir)+"/key", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                            "may not read the directory of the repository: run it as its owner (see ls -ld " + dir + ")",
		filepath.Join(dir, "lock.pid"): "may not write in the directory of the repository: run it as its owner",
		filepath.Dir(dir) + "/key":     "check the permissions of " + filepath.Dir(dir) + "/key",
	} {
		if hint := a.hintOf(&fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}); !strings.Contains(hint, want) {
			t.Errorf("of %s: %q, want %q", path, hint, want)
		}
	}
	parent := filepath.Dir(dir)
	for _, op := range []string{"mkdir", "open"} {
		if hint := a.hintOf(&fs.PathError{Op: op, Path: filepath.Join(parent, "new"), Err: fs.ErrPermission}); hint != "check the permissions of "+parent {
			t.Errorf("of a new one, %s: %q", op, hint)
		}
	}
}
