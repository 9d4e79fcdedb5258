//go:build !linux

package bench

import (
	"os"
	"testing"
	"time"
)

func inMemory(string) bool { return false }

func allocate(_ *testing.B, n int) []byte { return make([]byte, n) }

func fdatasync(f *os.File) error { return f.Sync() }

type written struct{ given, disk uint64 }

func writtenSoFar(b *testing.B) written {
	b.Helper()
	b.Skip("counting what a process writes needs /proc/self/io")
	return written{}
}

func processorTime(*testing.B) time.Duration { return 0 }

func forget(b *testing.B, _ []string) {
	b.Helper()
	b.Skip("emptying the page cache needs posix_fadvise")
}

func resident(*testing.B, []string) int { return 0 }

func allocated(fi os.FileInfo) int64 { return fi.Size() }
