package vfstest_test

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that is %v", err, target)
	}
}

// TestMemIsAFile compares a Mem file with a slice of bytes, and what survives with what was synced
// (I1).
func TestMemIsAFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfstest.NewMem()
		f, err := m.Create("f")
		must(t, err)
		must(t, m.SyncDir("."))
		var want, synced []byte
		for range rapid.IntRange(1, 20).Draw(rt, "ops") {
			switch rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0:
				must(t, f.Sync())
				synced = bytes.Clone(want)
			case 1:
				size := rapid.IntRange(0, 20000).Draw(rt, "size")
				must(t, f.Truncate(int64(size)))
				want = resize(want, size)
			case 2: // a clone must not change with m
				c := m.CrashClone(vfstest.KeepNone)
				checkContent(rt, c, synced)
				f2, err := c.Open("f")
				must(t, err)
				_, err = f2.WriteAt([]byte("changed in the clone"), int64(len(synced)/2))
				must(t, err)
				must(t, f2.Sync())
			default:
				off := rapid.IntRange(0, 12000).Draw(rt, "off")
				b := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(rt, "byte"))}, rapid.IntRange(1, 6000).Draw(rt, "len"))
				_, err := f.WriteAt(b, int64(off))
				must(t, err)
				want = resize(want, max(len(want), off+len(b)))
				copy(want[off:], b)
			}
			checkContent(rt, m, want)
			checkContent(rt, m.CrashClone(vfstest.KeepAll), want)
			checkContent(rt, m.CrashClone(vfstest.KeepNone), synced)
			torn(rt, m, synced, want)
		}
	})
}

// torn checks that every sector of a torn clone is the old or the new one.
func torn(t *rapid.T, m *vfstest.Mem, synced, want []byte) {
	c := m.CrashClone(vfstest.KeepSome(rapid.Uint64().Draw(t, "seed")))
	got, err := vfs.ReadFile(c, "f", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < min(len(synced), len(want)) || len(got) > max(len(synced), len(want)) {
		t.Fatalf("torn to %d bytes, synced %d, written %d", len(got), len(synced), len(want))
	}
	a, b := resize(bytes.Clone(synced), len(got)), resize(bytes.Clone(want), len(got))
	for o := 0; o < len(got); o += 512 {
		e := min(o+512, len(got))
		if !bytes.Equal(got[o:e], a[o:e]) && !bytes.Equal(got[o:e], b[o:e]) {
			t.Fatalf("sector at %d is neither the old nor the new one", o)
		}
	}
}

func resize(b []byte, n int) []byte {
	if n <= len(b) {
		return b[:n:n]
	}
	return append(b[:len(b):len(b)], make([]byte, n-len(b))...)
}

func checkContent(t *rapid.T, m *vfstest.Mem, want []byte) {
	t.Helper()
	got, err := vfs.ReadFile(m, "f", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("content of %d bytes differs, want %d bytes", len(got), len(want))
	}
}

// TestTornWrite makes sure that tearing happens at all: half a write, and not its end.
func TestTornWrite(t *testing.T) {
	m := vfstest.NewMem()
	create(t, m, "f", string(bytes.Repeat([]byte{7}, 8192)))
	must(t, m.SyncDir("/"))
	sizes := map[int]bool{}
	mixed := false
	for seed := range uint64(60) {
		got, err := vfs.ReadFile(m.CrashClone(vfstest.KeepSome(seed)), "f", 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			t.Fatal("a synced name was lost")
		}
		must(t, err)
		sizes[len(got)] = true
		mixed = mixed || bytes.Contains(got, []byte{7, 0}) || bytes.Contains(got, []byte{0, 7})
	}
	if !mixed || !sizes[0] || !sizes[8192] || len(sizes) < 3 {
		t.Fatalf("sizes %v, mixed %v: want lost, whole, part and mixed", sizes, mixed)
	}
}

// TestNamesAfterCrash is I2.
func TestNamesAfterCrash(t *testing.T) {
	m := vfstest.NewMem()
	must(t, m.MkdirAll("d"))
	must(t, m.SyncDir("."))
	must(t, vfs.WriteFile(m, "d/old", []byte("old")))
	must(t, m.SyncDir("d"))
	f := create(t, m, "d/new", "new")
	must(t, f.Sync())
	must(t, m.Rename("d/new", "d/old"))
	list := func(keep func() float64) string { return m.CrashClone(keep).String() }
	if got := list(vfstest.KeepNone); got != "/d/old 3\n" {
		t.Fatalf("none kept: %q", got)
	}
	results := map[string]bool{}
	for seed := range uint64(40) {
		c := m.CrashClone(vfstest.KeepSome(seed))
		b, err := vfs.ReadFile(c, "d/old", 10)
		must(t, err) // a rename that replaces is never half done
		results[string(b)+c.String()] = true
	}
	if len(results) != 3 { // neither, create only, rename
		t.Fatalf("outcomes %v", results)
	}
	must(t, m.SyncDir("d"))
	b, err := vfs.ReadFile(m.CrashClone(vfstest.KeepNone), "d/old", 10)
	must(t, err)
	if string(b) != "new" {
		t.Fatalf("content %q after the rename was synced", b)
	}
	must(t, m.Remove("d/old"))
	if got := list(vfstest.KeepNone); got != "/d/old 3\n" {
		t.Fatalf("removal without sync: %q", got)
	}
	must(t, m.SyncDir("d"))
	if got := list(vfstest.KeepNone); got != "" {
		t.Fatalf("removal with sync: %q", got)
	}
}

func TestFaulty(t *testing.T) {
	boom := errors.New("boom")
	m := vfstest.NewMem()
	fail := map[int]error{}
	var ops []string
	w := vfstest.NewFaulty(m, func(op vfstest.Op) error {
		ops = append(ops, op.Kind.String())
		return fail[op.N]
	})
	fail[2], fail[4], fail[5], fail[6], fail[9] = boom, boom, syscall.ENOSPC, boom, boom
	f, err := w.Create("f") // 0
	must(t, err)
	must(t, w.SyncDir(".")) // 1
	_, err = w.Create("g")
	wantIs(t, err, boom)
	_, err = f.WriteAt([]byte("aaaa"), 0) // 3
	must(t, err)
	n, err := f.WriteAt([]byte("bbbb"), 4) // 4: half
	wantIs(t, err, boom)
	if n != 2 {
		t.Fatalf("wrote %d, want 2", n)
	}
	n, err = f.WriteAt([]byte("cc"), 8) // 5: whole
	wantIs(t, err, syscall.ENOSPC)
	wantIs(t, err, base.ErrNoSpace)
	if strings.Count(err.Error(), "no space left") != 1 {
		t.Errorf("the cause is told more than once: %v", err)
	}
	if n != 2 {
		t.Fatalf("wrote %d, want 2", n)
	}
	wantIs(t, f.Sync(), boom) // 6: nothing is durable, and never will be
	must(t, f.Sync())         // 7
	got, err := vfs.ReadFile(m.CrashClone(vfstest.KeepAll), "f", 100)
	must(t, err)
	if !bytes.Equal(got, make([]byte, 10)) {
		t.Fatalf("durable %q, want zeros", got)
	}
	size, err := f.Size() // 8
	must(t, err)
	if size != 10 {
		t.Fatalf("size %d", size)
	}
	wantIs(t, f.Close(), boom) // 9
	want := []string{"create", "syncdir", "create", "write", "write", "write", "sync", "sync", "stat", "close"}
	if d := cmp.Diff(want, ops); d != "" {
		t.Fatal(d)
	}
}

func TestHooked(t *testing.T) {
	m := vfstest.NewMem()
	var ops []string
	h := vfstest.NewHooked(m, func(op vfstest.Op) {
		_ = m.CrashClone(vfstest.KeepNone) // no lock is held
		ops = append(ops, op.String())
	})
	must(t, vfs.WriteFile(h, "f", []byte("x")))
	_, err := h.Stat("f")
	must(t, err)
	if _, err := h.Create("f"); err == nil {
		t.Fatal("created twice")
	}
	want := []string{"op 0: create f", "op 1: write f", "op 2: sync f"}
	if d := cmp.Diff(want, ops); d != "" {
		t.Fatal(d)
	}
}

func TestMemConcurrent(t *testing.T) {
	m := vfstest.NewMem()
	var wg sync.WaitGroup
	for g := range 4 {
		name := string(rune('a' + g))
		wg.Go(func() {
			f, err := m.Create(name)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 50 {
				_, _ = f.WriteAt([]byte{byte(i)}, int64(i)*700)
				_ = f.Sync()
				_ = m.SyncDir("/")
				_, _ = vfs.ReadFile(m.CrashClone(vfstest.KeepSome(uint64(i))), "/"+name, 1<<20)
			}
		})
	}
	wg.Wait()
}

func create(t testing.TB, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}
