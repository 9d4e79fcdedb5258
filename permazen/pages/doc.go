// Package pages keeps Permazen databases on pages of Ledger. It has transactions and snapshots, a
// merge rule for concurrent changes of several devices, and a watch of changes by field.
//
// A database is all rows of a page whose keys have a prefix, which may be empty. Keys of a page
// have at most 4096 bytes. Index rows have values in their keys, so ledger.ErrTooLarge refuses
// longer indexed values. The page must have the rule of MergeRule for the prefix, from
// ledger.Options.MergeRules or by ledger.Page.SetMergeRules. Without it a merge goes key by key,
// and index rows no longer match the objects.
//
// It imports the root package, ordered, ordered/pages, permazen and
// permazen/{encoding,layout,merging}. It may change with any release.
package pages
