// Package kill has the tests that kill a writing process and look at what it leaves (promise 1 of docs/design.md). It has no code
// of its own.
package kill
