// Package catalog keeps a metabase on a page of Ledger. The result is a catalogue of objects that
// several devices can change at the same time; their changes merge. See docs/metabase.md.
//
// All rows begin with metabase.RowsPrefix, so the page can hold other keys too. On every device,
// Rule must be among the merge rules of the page.
//
// It imports the root package, ordered/pages and metabase. It may change with any release.
package catalog
