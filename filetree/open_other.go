//go:build !unix

package filetree

// openNonblocking keeps an open from blocking on a named pipe that has just replaced a file; this
// system has no such flag.
const openNonblocking = 0
