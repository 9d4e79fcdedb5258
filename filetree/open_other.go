//go:build !unix

package filetree

// openNonblocking keeps an open from hanging when a file was replaced by a named pipe a moment ago;
// here there is nothing like it.
const openNonblocking = 0
