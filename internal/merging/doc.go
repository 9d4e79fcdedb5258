// Package merging runs the merges of an open page: in the background while there are several heads,
// and on request. Package merge defines what a merge does; this package runs it.
//
// A Driver belongs to one open page. Its goroutine begins with the first heads to merge: it waits
// for several heads, merges them, and retries later after a failure. A run reads the rules,
// computes the merges in a journal, takes the page's write turn and submits them to the disk. When
// the heads have moved, it computes the merges again within the turn, unless a rule is code of the
// app. A run that cannot continue starts again; see errAgain.
//
// Rules are code of package merge or of the app: a Resolver decides about one key, a GroupStrategy
// merges a namespace. A panic there makes the merge fail. A Book has the rules of a repository's
// pages.
//
// The package imports neither the root package nor the packages that manage a repository's
// directory, except for the type that names a page. Driver and Book are safe for concurrent use.
// Driver.mu is not held during I/O. A run may wait for the page's write turn, so the holder of that
// turn must not wait for a merge.
package merging
