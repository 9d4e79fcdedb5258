// Package merging has the heads of an open page come together: in the background, as long as there
// are several, and when a caller asks. Package merge decides what a merge is; this package runs it.
//
// A Driver belongs to one open page. Its goroutine waits for several heads, merges them, and tries
// again later when that fails. A run reads the rules, computes the merges in a journal, takes the
// page's write turn and hands them to the disk. When the page has moved on, it computes them once
// more within the turn, unless a rule is code of the app. A run that cannot go on as it is begins
// again; see errAgain.
//
// Rules are code of package merge or of the app: a Resolver decides about one key, a GroupStrategy
// merges a namespace. A panic there makes the merge fail. A Book has the rules of a repository's
// pages.
//
// The package imports neither the root package nor what keeps a repository's directory, but for the
// type that names a page. Driver and Book are safe for concurrent use. Driver.mu is not held during
// I/O. A run may wait for the page's write turn; whoever has that turn must not wait for a merge.
package merging
