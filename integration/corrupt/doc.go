// Package corrupt has the tests that damage the files of a repository and then read it (promise 3
// of README.md). It has no code of its own.
package corrupt
