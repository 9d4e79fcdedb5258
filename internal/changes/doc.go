// Package changes holds the changes of one transaction, sorted by key: in memory, and beyond a
// limit in a temporary file.
//
// It knows nothing of pages, commits or where trees are stored: it imports btree for the type of a
// change, and storage/index for the file. A Journal belongs to one goroutine.
package changes
