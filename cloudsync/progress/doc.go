// Package progress counts how much of a page's sync is done, and of how much, for people who wait.
//
// The figures are only for display. A sender or receiver begins a unit of work with its size, and
// settles it. A Tracker is safe for concurrent use. The package may change in any release.
package progress
