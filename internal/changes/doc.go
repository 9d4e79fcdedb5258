// Package changes holds the changes of one transaction, sorted by key: in memory, and beyond a
// limit in a temporary file.
//
// It does not use pages, commits or stored trees: it imports btree for the type of a change, and
// storage/index for the file. A Journal belongs to one goroutine.
package changes
