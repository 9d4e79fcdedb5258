// Package base holds the errors that every package of the module shares: sentinels for errors.Is,
// typed errors for errors.As, and kinds that say what a caller can do about an error. It also
// formats the name of a page. Package ledger re-exports the public ones.
//
// It imports nothing of the module.
package base
