package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// fullDisk names the directory of a small file system of its own, for a process of this test.
const fullDisk = "LEDGER_TEST_FULL_DISK"

// onSmallDisk runs the test in a process of its own, in which dir is a file system of so many
// bytes. It returns "" in the test that has started that process.
func onSmallDisk(t *testing.T, bytes int64) (dir string) {
	t.Helper()
	if dir := os.Getenv(fullDisk); dir != "" {
		return dir
	}
	dir = t.TempDir()
	const script = `mount -t tmpfs -o size="$1" none "$2" || exit 77; shift; shift; exec "$@"`
	args := []string{"--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", fmt.Sprint(bytes), dir}
	c := exec.CommandContext(t.Context(), "unshare", append(args, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	c.Env = append(os.Environ(), fullDisk+"="+dir)
	out, err := c.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); errors.Is(err, exec.ErrNotFound) || ok && exit.ExitCode() == 77 || strings.Contains(string(out), "unshare:") {
		t.Skipf("no file system can be mounted here: %v: %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return ""
}

// fill takes all room that is left on the disk.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, f.Close())
}

// TestLockOnAFullDisk opens where not even the process id can be written, as who gives space back
// has to.
func TestLockOnAFullDisk(t *testing.T) {
	disk := onSmallDisk(t, 4<<20)
	if disk == "" {
		return
	}
	dir := filepath.Join(disk, "r")
	closeIt(t, open(t, dir, nil))
	fill(t, filepath.Join(disk, "fill"))
	r := open(t, dir, nil)
	_, err := ledger.Open(t.Context(), dir, nil)
	locked, ok := errors.AsType[*ledger.LockedError](err)
	if !ok || locked.PID != 0 {
		t.Errorf("a second one: %v", err)
	}
	closeIt(t, r)
	closeIt(t, open(t, dir, nil))
}

// TestFullDiskLargeValues collects and compacts a page of one segment, half of which is garbage, on
// a disk without a free byte.
func TestFullDiskLargeValues(t *testing.T) {
	testFullDisk(t, 10, 2<<20, 10)
}

// TestFullDiskSmallValues is TestFullDiskLargeValues for a page of many small values.
func TestFullDiskSmallValues(t *testing.T) {
	testFullDisk(t, 36_000, 400, 180)
}

// testFullDisk makes a page of some values with so many commits, and replaces all of them.
func testFullDisk(t *testing.T, values, size, commits int) {
	disk := onSmallDisk(t, 100<<20)
	if disk == "" {
		return
	}
	ctx, dir, full := t.Context(), filepath.Join(disk, "repository"), filepath.Join(disk, "full")
	r := open(t, dir, nil)
	p := page(t, r, "notes", "inbox")
	want := map[string][]byte{}
	put := func(from, to, round int) error {
		tx, err := p.Begin(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for i := from; i < to; i++ {
			if err := tx.Put(ctx, fmt.Appendf(nil, "key %06d", i), pseudo(uint64(round*values+i), size)); err != nil {
				return err
			}
		}
		if _, err := tx.Commit(ctx); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			want[fmt.Sprintf("key %06d", i)] = pseudo(uint64(round*values+i), size)
		}
		return nil
	}
	check := func() {
		t.Helper()
		for k, v := range want {
			if got, err := p.Get(ctx, []byte(k)); err != nil || !bytes.Equal(got, v) {
				t.Fatalf("%s: %d bytes, %v", k, len(got), err)
			}
		}
	}
	each := values / commits
	for i := range commits {
		must(t, put(i*each, (i+1)*each, 0))
	}
	for i := range commits {
		must(t, put(i*each, (i+1)*each, 1))
	}
	must(t, r.Close())
	fill(t, full)
	r = open(t, dir, nil)
	p = page(t, r, "notes", "inbox")
	before := pageFiles(t, dir)
	for i := 0; ; i++ { // the last of the room, if there is some
		if err := put(0, each, 2+i); err != nil {
			if !errors.Is(err, ledger.ErrNoSpace) {
				t.Fatal(err)
			}
			break
		}
	}
	check()
	freeFullDisk(t, dir, r, before)
	check()
	must(t, put(0, each, 1000)) // there is room
	check()
	must(t, r.Close())
	r = open(t, dir, nil)
	p = page(t, r, "notes", "inbox")
	check()
	report, err := admin.Check(ctx, r, nil)
	must(t, err)
	if !report.OK() {
		t.Errorf("check: %+v", report)
	}
	must(t, r.Close())
}

// freeFullDisk collects and compacts on a full disk, and expects three tenths of the pages' files
// back.
func freeFullDisk(t *testing.T, dir string, r *ledger.Repository, before int64) {
	t.Helper()
	ctx := t.Context()
	collected, err := admin.Collect(ctx, r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}})
	must(t, err)
	compacted, err := admin.Compact(ctx, r, nil)
	must(t, err)
	t.Logf("collected %+v, compacted %+v", collected, compacted)
	if after := pageFiles(t, dir); after > before*7/10 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
}

// TestFullDiskOneBatch collects and compacts a small page, the content of which is one batch of the
// log, on a disk without a free byte. The index is behind the log, and has no free pages.
func TestFullDiskOneBatch(t *testing.T) {
	disk := onSmallDisk(t, 40<<20)
	if disk == "" {
		return
	}
	ctx, dir := t.Context(), filepath.Join(disk, "repository")
	r := open(t, dir, nil)
	p := page(t, r, "notes", "inbox")
	const values, size = 64, 60 << 10
	put := func(i, size int) {
		must(t, p.Put(ctx, fmt.Appendf(nil, "key %d", i), pseudo(uint64(i), size)))
	}
	_, err := p.Update(ctx, func(tx *ledger.Tx) (err error) {
		for i := 0; err == nil && i < values; i++ {
			err = tx.Put(ctx, fmt.Appendf(nil, "key %d", i), pseudo(uint64(i), size))
		}
		return err
	})
	must(t, err)
	for i := 0; i < values; i += 2 {
		put(i, 10)
	}
	must(t, r.Close())
	fill(t, filepath.Join(disk, "full"))
	r = open(t, dir, nil)
	p = page(t, r, "notes", "inbox")
	for i, err := uint64(0), error(nil); err == nil; i++ { // the last of the room
		if err = p.Put(ctx, []byte("last"), pseudo(i, 100)); err != nil && !errors.Is(err, ledger.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	freeFullDisk(t, dir, r, pageFiles(t, dir))
	put(0, 20)
	must(t, r.Close())
	r = open(t, dir, nil)
	p = page(t, r, "notes", "inbox")
	for i := 1; i < values; i += 2 {
		if got, err := p.Get(ctx, fmt.Appendf(nil, "key %d", i)); err != nil || !bytes.Equal(got, pseudo(uint64(i), size)) {
			t.Fatalf("value %d: %d bytes, %v", i, len(got), err)
		}
	}
	report, err := admin.Check(ctx, r, nil)
	must(t, err)
	if !report.OK() {
		t.Errorf("check: %+v", report)
	}
	must(t, r.Close())
}

// TestFullDiskDelete deletes a page on a disk without a free byte: the errors name each file once,
// and the deletion makes room.
func TestFullDiskDelete(t *testing.T) {
	dir := onSmallDisk(t, 8<<20)
	if dir == "" {
		return
	}
	r := open(t, filepath.Join(dir, "repository"), nil)
	p := page(t, r, "app", "page")
	put(t, p, "k", strings.Repeat("x", 1000))
	must(t, p.Close())
	other := page(t, r, "app", "other")
	put(t, other, "k", "1")
	must(t, other.Close())
	fill(t, filepath.Join(dir, "rest"))
	_, err := r.SetCloud(t.Context(), &ledger.Cloud{URL: "dir:" + t.TempDir(), Plaintext: true})
	if wantErr(t, err, ledger.ErrNoSpace); strings.Count(err.Error(), ".new") != 1 {
		t.Errorf("the file is named more than once: %v", err)
	}
	_, err = r.DeletePage(t.Context(), p.Ref(), &ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	_, err = r.PageInfo(t.Context(), p.Ref())
	wantErr(t, err, ledger.ErrNotFound)
	put(t, page(t, r, "app", "other"), "k", "2")
}

// fullWriter is full after some writes.
type fullWriter struct{ left int }

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

// TestFullDiskBackupStream writes a backup to a stream that fills up: the error says so once.
func TestFullDiskBackupStream(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	put(t, page(t, r, "app", "page"), "k", string(pseudo(1, 300_000)))
	for n := range 8 {
		err := admin.BackupTo(t.Context(), r, &fullWriter{n}, nil)
		if wantErr(t, err, syscall.ENOSPC); strings.Count(err.Error(), syscall.ENOSPC.Error()) != 1 {
			t.Errorf("after %d writes the error says more than once: %v", n, err)
		}
	}
}
