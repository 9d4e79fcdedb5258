//go:build unix

package filetree

import "syscall"

// openNonblocking keeps an open from blocking on a named pipe that has just replaced a file.
const openNonblocking = syscall.O_NONBLOCK
