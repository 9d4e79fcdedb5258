// Package ledgertest helps to test programs that use package ledger.
//
// Open gives a test a repository that is checked and closed when the test ends. The package imports
// only the root package, admin and the standard library. Call its functions on the test's
// goroutine.
package ledgertest
