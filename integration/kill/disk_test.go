//go:build linux

package kill_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asNobody has a command run as a user who owns nothing, where the tests run as root.
func asNobody(cmd *exec.Cmd) *exec.Cmd {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

// TestReadOnlyBucket syncs with a bucket in a directory that may only be read: what is there comes,
// what is here is kept, and goes up when it may.
func TestReadOnlyBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = open(t)
	w.run("key", "init", w.path("key"))
	w.run(w.on("a", "init")...)
	w.put("a", "notes", "k", []byte("one"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.put("a", "notes", "k", []byte("two"))
	w.run(w.on("a", "sync")...)
	w.put("b", "notes", "mine", []byte("three"))

	binary := w.path("ledgerd") // where nobody may run it
	// Who writes a program himself cannot run it while a process that another test is starting has
	// the file open too.
	if out, err := exec.Command("cp", ledgerd(t), binary).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	w.must(os.Chmod(binary, 0o755))
	w.chmod("bucket", 0o555, 0o444)
	if os.Geteuid() == 0 {
		w.chown("b", 65534)
		w.must(os.Chown(w.path("key"), 65534, 65534))
	}
	out := w.exits(1, asNobody(exec.Command(binary, w.on("b", "sync")...)))
	if !strings.Contains(out, "permission") {
		t.Errorf("it says %s", out)
	}
	if out, err := asNobody(exec.Command(binary, w.on("b", "get", "notes", "k")...)).Output(); err != nil || strings.TrimSpace(string(out)) != "two" {
		t.Errorf("what others have written is not here: %q, %v", out, err)
	}
	w.exits(1, asNobody(exec.Command(binary, append(w.on("c", "clone"), w.cloud("nowhere")...)...)))
	w.chmod("bucket", 0o755, 0o644)
	if os.Geteuid() == 0 {
		w.chown("b", 0)
		w.must(os.Chown(w.path("key"), 0, 0))
	}
	w.settle("b", "a")
}

// open returns a directory that everybody may enter. It says loudly when temporary files lie where
// that cannot be.
func open(t *testing.T) string {
	t.Helper()
	for above := filepath.Clean(os.TempDir()); os.Geteuid() == 0 && above != filepath.Dir(above); above = filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && info.Mode().Perm()&0o001 == 0 {
			t.Skipf("NOT TESTED: a user who owns nothing may not enter %s", above)
		}
	}
	dir, err := os.MkdirTemp("", "kill")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (w *world) chmod(name string, dir, file os.FileMode) {
	w.t.Helper()
	var dirs []string
	w.must(filepath.WalkDir(w.path(name), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			dirs = append(dirs, path)
			return err
		}
		return os.Chmod(path, file)
	}))
	for _, d := range dirs {
		w.must(os.Chmod(d, dir))
	}
}

func (w *world) chown(name string, id int) {
	w.t.Helper()
	w.must(filepath.WalkDir(w.path(name), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, id, id)
	}))
}

// tmpfs mounts a small file system at a name of the world. It says loudly when it cannot.
func (w *world) tmpfs(t *testing.T, name, size string) {
	t.Helper()
	dir := w.path(name)
	w.must(os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT TESTED: a full disk needs a small file system, which only root can mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil { // a process that another test is starting may have a file of it open for a moment
			t.Error(err)
		}
	})
}

func (w *world) resize(name, size string) {
	w.t.Helper()
	w.must(syscall.Mount("tmpfs", w.path(name), "tmpfs", syscall.MS_REMOUNT, "size="+size))
}

// TestFullBucket fills the disk of the bucket within an upload: it says so, nothing is lost, and it
// goes on when there is room.
func TestFullBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tmpfs(t, "disk", "16m")
	w.put("a", "notes", "k", []byte("one"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("disk/bucket")...)...)...)
	w.run(w.on("a", "sync")...)
	w.put("a", "notes", "long", w.noise(20<<20))
	for range 2 {
		if out := w.exits(1, exec.Command(ledgerd(t), w.on("a", "sync")...)); !strings.Contains(out, "space") && !strings.Contains(out, "full") {
			t.Errorf("it says %s", out)
		}
	}
	w.resize("disk", "200m")
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("disk/bucket")...)...)...)
	w.settle("a", "b")
	w.wholeObjects("disk/bucket")
}

// TestFullDevice fills the disk of a device within a download.
func TestFullDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tmpfs(t, "disk", "16m")
	w.put("a", "notes", "k", []byte("one"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.run(w.on("a", "sync")...)
	w.run(w.on("disk/b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.put("disk/b", "notes", "mine", []byte("two"))
	w.put("a", "notes", "long", w.noise(20<<20))
	w.run(w.on("a", "sync")...)
	for range 2 {
		if out := w.exits(1, exec.Command(ledgerd(t), w.on("disk/b", "sync")...)); !strings.Contains(out, "space") && !strings.Contains(out, "full") {
			t.Errorf("it says %s", out)
		}
	}
	w.resize("disk", "300m")
	w.settle("disk/b", "a")
}

// TestFullDisk fills the disk within a put. It says what failed, and the room is there again for
// smaller values.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tmpfs(t, "disk", "24m")
	w.run(w.on("disk/a", "init")...)
	w.put("disk/a", "notes", "k", w.noise(5<<20))
	for range 3 {
		cmd := exec.Command(ledgerd(t), w.on("disk/a", "put", "notes", "long", "-f", "-")...)
		cmd.Stdin = bytes.NewReader(w.noise(30 << 20))
		if out := w.exits(1, cmd); !strings.Contains(out, "put long") || !strings.Contains(out, "space") {
			t.Errorf("it says %s", out)
		}
	}
	w.put("disk/a", "notes", "more", w.noise(6<<20))
	w.put("disk/a", "notes", "k", w.noise(3<<20))
	w.run(w.on("disk/a", "gc", "notes")...)
	w.run(w.on("disk/a", "gc", "--compact")...)
	w.run(w.on("disk/a", "check")...)
	w.look("disk/a")
}
