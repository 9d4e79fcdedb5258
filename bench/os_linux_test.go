package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC)
}

// allocate returns n bytes outside the heap, so that test data does not make collections rarer.
func allocate(b *testing.B, n int) []byte {
	b.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(b, err)
	return m
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// written are totals of this process.
type written struct {
	given  uint64 // bytes in calls that write
	device uint64 // bytes of pages made dirty, each as often as it was written back: 4096 for an append of one byte that is synced
}

func writtenSoFar(b *testing.B) written {
	b.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(b, err)
	var w written
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		n, err := strconv.ParseUint(string(value), 10, 64)
		must(b, err)
		switch string(name) {
		case "wchar":
			w.given = n
		case "write_bytes":
			w.device = n
		}
	}
	return w
}

// forget takes the files out of the page cache. What is dirty would stay, so all are synced first. With BENCH_DROP_CACHES=1,
// which takes root, the whole page cache and the caches of names and inodes go.
func forget(b *testing.B, files []string) {
	b.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		must(b, err)
		must(b, f.Sync())
		must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		must(b, f.Close())
	}
	if os.Getenv("BENCH_DROP_CACHES") == "1" {
		unix.Sync()
		must(b, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0o200))
	}
}

// resident returns how many bytes of the files are in the page cache.
func resident(b *testing.B, files []string) (n int) {
	b.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		must(b, err)
		fi, err := f.Stat()
		must(b, err)
		if fi.Size() > 0 {
			m, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
			must(b, err)
			in, err := mincore(m)
			must(b, err)
			n += in * os.Getpagesize()
			must(b, unix.Munmap(m))
		}
		must(b, f.Close())
	}
	return n
}

// allocated returns the bytes that a file takes on the disk.
func allocated(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}

func mincore(m []byte) (pages int, err error) {
	vec := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return 0, fmt.Errorf("ask for pages in memory: %w", errno)
	}
	for _, v := range vec {
		pages += int(v & 1)
	}
	return pages, nil
}
