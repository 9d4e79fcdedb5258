// Package base holds the errors that every package of the module shares: sentinels for errors.Is,
// typed errors for errors.As, and the kinds that tell a caller what to do about an error. It also
// says how a page is named. Package ledger re-exports what users need.
//
// It imports nothing of the module.
package base
