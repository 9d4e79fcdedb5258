// Package ledgertest helps to test programs that use package ledger.
//
// Open gives a test a repository that is checked and closed when the test ends. The package imports
// only the root package and the standard library. Its functions are for the goroutine of the test.
package ledgertest
