// Package split cuts values into pieces and reads values that were cut.
//
// The content of a value is cut into chunks where a rolling hash of the last 48 bytes meets a
// condition; docs/format/objects.md has the rule. Index pieces list chunks or other index pieces,
// so that the pieces of a value form a tree with the content at the leaves. A value with a single
// chunk is named by that chunk.
//
// Invariants; tests cite the numbers:
//
//	I1: the pieces depend on the content and the table alone, never on the sizes of the reads of
//	    the input.
//	I2: a chunk has 4 KiB to 64 KiB; only the last one of an object may be shorter, and only that
//	    of an empty object is empty.
//	I3: children are emitted before the index piece that lists them; the root is emitted last.
//	I4: an index piece has at least two children; a tree has at most 16 levels of index pieces.
//	I5: memory is bounded by constants, for cutting and for reading, whatever the size of the
//	    object.
//
// # Positions of cuts
//
// The hash is buzhash64 with a window of 48 bytes, after the byte before the cut. A chunk of 4 KiB
// to 16 KiB ends where its upper 16 bits are zero, a longer one where the upper 12 bits are zero,
// and at 64 KiB at the latest: chunks of random content have 18.7 KiB on average. The first 4 KiB
// of a chunk are not scanned. On runs of one byte the hash is constant, and tables are made such
// that it does not match: such runs are cut at 64 KiB.
//
// The level of a cut is the number of zero groups of five bits at the lower end of the hash, at
// most eight: the cut ends the index pieces of all lower levels. A full index piece is ended too. A
// list of one child makes no index piece; the child moves up. So an index piece has 33 children and
// 1.6 KB on average. An edit then adds little to the index (BenchmarkDedup), with three levels for
// a GiB.
//
// The package imports object, flatbuffers, internal/base, internal/limits and the tables of
// rollinghash/buzhash64; it must not import storage, btree or anything above them. Functions and
// Tables are safe for concurrent use. It may change with any release; the positions of cuts may
// not, since equal content would get other names.
package split
