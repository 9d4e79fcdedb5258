// Package corrupt has the tests that damage the files of a repository and read what is left
// (promise 6 of docs/design.md). It has no code of its own.
package corrupt
