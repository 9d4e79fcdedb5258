// Package changes holds the changes of one transaction in memory, sorted by key.
//
// It does not use pages, commits or stored trees: it imports btree for the type of a change. A
// Journal belongs to one goroutine.
package changes
