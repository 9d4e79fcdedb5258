// Package pages gives pages of Ledger to record layers as ordered readers and writers.
//
// It imports the root package and package ordered. It may change with any release.
package pages
