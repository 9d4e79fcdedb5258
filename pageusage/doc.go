// Package pageusage records when each page of a repository was last closed (the order of eviction),
// its size on disk then, and the names of pages, so that an evicted page keeps its name. It makes
// no decisions.
//
// It may import storage/index, internal/base, internal/limits and internal/vfs, and nothing else of
// the module.
//
// The rows are in {repository}/page_usage_db/page_usage.db:
//
//	bucket    key                          value
//	format    "version"                    format version, one byte
//	pages     ledger name, page id (16 B)  the usage of the page; see below
//
// The id has a fixed length and is last, so ledger name and id cannot be confused. The value, all
// integers big-endian:
//
//	offset  bytes  content
//	0       4      CRC-32C of the length of the key (4 bytes), the key, and all that follows
//	4       8      time of the last close, ns since 1970; 0 while the page is open, all ones when
//	               the time is unknown
//	12      8      the size of the page on disk when it was last closed; a hint
//	20      n      page name, at most limits.MaxPageNameBytes; empty when there is none
//
// Invariants:
//
//	U1  Losing or changing times and sizes never loses a page: they only order eviction, which has
//	    its own conditions. So MarkOpened, MarkClosed, NoteSize and Remove do not sync: their
//	    changes stay in memory until there are 64 of them, a durable change is written, or Flush
//	    or Close is called. After a crash a page may have an older time.
//	U2  SetPageName and Forget are durable when they return nil.
//	U3  After Open no page is open: a page that a crash left open counts as closed at the given
//	    time.
//	U4  A damaged database is set aside and replaced by an empty one: names return with use, and
//	    Options.Exist lists the existing pages.
//
// A DB is safe for concurrent use. It may change with any release.
package pageusage
