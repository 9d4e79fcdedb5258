// Package progress counts how much of a page's sync is done, and of how much, for people who wait.
//
// The figures are for display: nothing depends on them. Whoever sends or takes something begins a
// unit of work with what it has, and settles it. A Tracker is safe for concurrent use. It may
// change in any release.
package progress
