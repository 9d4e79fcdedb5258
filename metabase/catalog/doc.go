// Package catalog keeps a metabase on a page of Ledger: a catalogue of objects that devices change
// at the same time, and whose changes merge. See docs/metabase.md.
//
// All its rows begin with metabase.RowsPrefix, so the page may have other keys. Rule has to be
// among the rules by which the page merges on every device.
//
// It imports the root package, ordered/pages and metabase. It may change with any release.
package catalog
