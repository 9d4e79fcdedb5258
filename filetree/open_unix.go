//go:build unix

package filetree

import "syscall"

// openNonblocking keeps an open from hanging when a file was replaced by a named pipe a moment ago.
const openNonblocking = syscall.O_NONBLOCK
