// Package backup copies a repository that is in use, into a directory or a tar stream.
//
// The copy is a repository that opens: it has the same id, and no cloud. What makes a repository of
// a directory is written last, after all else is durable. The package gets what it copies from a
// Source, and may import of the module pageusage, and of internal what names files and pages. Each
// copy is made by one goroutine; several may be made at the same time.
package backup
