package s3_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestTwoDevices is the story of two devices that the README tells, with a bucket of the gateway.
func TestTwoDevices(t *testing.T) {
	endpoint, client := gateway(t)
	if err := client.MakeBucket(t.Context(), "notes", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	url := "s3:" + endpoint + "/notes/devices"
	dir := t.TempDir()
	program := filepath.Join(dir, "ledgerd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/ledgerd")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ledgerd %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for name, content := range map[string]string{"tree/a": "one", "tree/sub/b": strings.Repeat("two", 1<<20)} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run("key", "init", "key")
	run("--dir", "a", "import", "src", "tree")
	run("--dir", "a", "cloud", "set", url, "--key-file", "key")
	run("--dir", "a", "sync")
	run("--dir", "b", "clone", url, "--key-file", "key")
	run("--dir", "b", "export", "src", "out")
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", filepath.Join(dir, "tree"), filepath.Join(dir, "out")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	run("--dir", "a", "put", "src", "both", "A")
	run("--dir", "b", "put", "src", "both", "B")
	for _, device := range []string{"a", "b", "a"} {
		run("--dir", device, "sync")
	}
	if a, b := run("--dir", "a", "log", "src", "--ids"), run("--dir", "b", "log", "src", "--ids"); a != b || a == "" {
		t.Errorf("the devices have the histories\n%s\nand\n%s", a, b)
	}
}
