// Package pages keeps databases of IndexedDB on pages of Ledger.
//
// It imports the root package, ordered, ordered/pages and indexeddb/idb. It may change with any release.
package pages
