// Package profile reads and writes the directories in which Chromium keeps IndexedDB, and moves
// what they hold to a page and back.
//
// A LevelDB directory ends in .indexeddb.leveldb and belongs to one origin; its blobs are files in
// a directory beside it. Newer browsers may have a directory of SQLite files instead, one for each
// database, which is read, too. Open tells them apart.
//
// Reading never writes to a directory: what recovery after an unclean shutdown writes goes to a
// temporary one above it. A directory that a browser has open is refused with base.ErrLocked. All
// that is read is verified (package indexeddb has the invariants), and a row that is damaged is
// named by the error. The memory that is taken does not depend on how much there is to read.
//
// The package imports indexeddb, indexeddb/value, ordered and internal/base. It is the only door to
// goleveldb and to SQLite. A Profile is for one goroutine at a time. It may change with any
// release.
package profile
