// Package pageusage remembers when each page of a repository was last closed, which is the order in
// which eviction takes them, and the names of pages, so that an evicted page keeps its name. It
// decides nothing.
//
// It may import storage/index, internal/base and internal/limits, and nothing else of the module.
//
// The rows are in {repository}/page_usage_db/page_usage.db:
//
//	bucket    key                          value
//	format    "version"                    format version, one byte
//	opened    ledger name, page id (16 B)  time of the last close, ns since 1970, 8 bytes
//	                                       big-endian; 0 while the page is open
//	sizes     ledger name, page id (16 B)  what the page took on disk when it was last closed, 8
//	                                       bytes big-endian, at most 2^63-1; a hint
//	pages     ledger name, page id (16 B)  CRC-32C of key and name, 4 bytes big-endian; page name
//
// The id has a fixed length and stands last, so ledger name and id cannot be mistaken.
//
// Invariants:
//
//	U1  Losing or changing rows of opened never loses a page: they only order eviction, which has
//	    its own conditions. So MarkOpened, MarkClosed and NoteSize do not sync: they are kept in
//	    memory until there are 64 of them, something durable is written, or Flush or Close is
//	    called. After a crash a page may be listed with an older time.
//	U2  Names and removals are durable when the call returns.
//	U3  After Open no page is open: what a crash has left at 0 counts as closed at the time given.
//	U4  A damaged database is set aside and an empty one takes its place: the times come again by
//	    use, and whoever knows the pages (their directories say) registers them with Reconcile.
//
// A DB is safe for concurrent use. Iterators read in short steps and hold nothing between them, so
// the loop body may call any method, and sees changes that are made meanwhile or not. It may change
// with any release.
package pageusage
