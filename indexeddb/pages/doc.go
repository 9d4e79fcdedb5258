// Package pages stores IndexedDB databases on pages of Ledger.
//
// It imports the root package, ordered, ordered/pages, indexeddb and indexeddb/{idb,merging}. The
// API may change with any release.
package pages
