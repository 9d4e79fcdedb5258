// Package profile reads and writes the directories in which Chromium keeps IndexedDB, and copies
// their content to a page and back.
//
// A LevelDB directory ends in .indexeddb.leveldb and belongs to one origin. Its blobs are files in
// a directory beside it. Newer browsers may have a directory of SQLite files instead, one for each
// database. Open recognizes and reads both.
//
// Reading never writes to a directory. Recovery after an unclean shutdown writes to a temporary
// directory above it. Open returns base.ErrLocked for a directory that a browser has open. All
// data are verified (package indexeddb has the invariants), and an error names the damaged row.
// Memory does not depend on the amount of data.
//
// The package imports indexeddb, indexeddb/value, ordered and internal/base. No other package uses
// goleveldb or SQLite. A Profile is for one goroutine at a time. The API may change with any
// release.
package profile
