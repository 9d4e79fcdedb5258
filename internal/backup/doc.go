// Package backup copies a repository in use into a directory or a tar stream.
//
// The copy is a complete repository with the same id and no cloud. The file that makes a directory
// a repository is written last, after all else is durable. The package copies from a Source. It may
// import pageusage, and the internal packages that name files and pages. One goroutine makes each
// copy; several copies may be made at the same time.
package backup
