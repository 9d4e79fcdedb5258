// Package pages keeps Permazen databases on pages of Ledger: transactions and snapshots, merging of
// what devices have changed apart, and changes by field.
//
// A database is all rows of a page whose keys begin with a prefix, which may be empty. Index rows
// have values in their keys, and keys of a page have at most 4096 bytes, so that longer indexed
// values are refused with ledger.ErrTooLarge. Every handle of the page must have MergeRules for the
// prefix; without them a merge goes key by key, and index rows come to differ from the objects.
//
// It imports the root package, ordered, ordered/pages, permazen and
// permazen/{encoding,layout,merging}. It may change with any release.
package pages
