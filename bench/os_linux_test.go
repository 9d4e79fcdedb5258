package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
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

// written are totals of what is written.
type written struct {
	given uint64 // bytes that this process gave to calls that write
	disk  uint64 // bytes that the disk below scratch was given by the whole machine, 0 where that cannot be told
}

func writtenSoFar(b *testing.B) (w written) {
	b.Helper()
	// What is given but not on its way yet counts too.
	dir, err := os.Open(scratch)
	must(b, err)
	must(b, unix.Syncfs(int(dir.Fd())))
	fi, err := dir.Stat()
	must(b, err)
	must(b, dir.Close())
	text, err := os.ReadFile("/proc/self/io")
	must(b, err)
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("wchar: ")); ok {
			w.given, err = strconv.ParseUint(string(value), 10, 64)
			must(b, err)
		}
	}
	dev := fi.Sys().(*syscall.Stat_t).Dev
	text, err = os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return w
	}
	const sectorsWritten, sectorBytes = 6, 512
	if fields := bytes.Fields(text); len(fields) > sectorsWritten {
		n, err := strconv.ParseUint(string(fields[sectorsWritten]), 10, 64)
		must(b, err)
		w.disk = n * sectorBytes
	}
	return w
}

// processorTime returns what this process has used of the processors, all its threads together.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// forget takes the files out of the page cache. What is dirty would stay, so all are synced first.
// With BENCH_DROP_CACHES=1, which takes root, the whole page cache and the caches of names and
// inodes go.
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
