// Package pages keeps databases of IndexedDB on pages of Ledger.
//
// It imports the root package, ordered, ordered/pages, indexeddb and indexeddb/{idb,merging}. It
// may change with any release.
package pages
