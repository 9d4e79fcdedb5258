// Package format has the bytes of every object that sync puts into a bucket: their names, their
// canonical encodings, and strict, bounded decoders. docs/cloud-format.md describes them for a
// second implementation.
//
// What is sealed, and how, is package seal's; what an entry means to a page is package ingest's. Of
// the module the package imports internal/base, internal/limits, object, commit and seal, and it
// must not import storage, bucket or anything above them. It does no I/O but for the readers and
// writers that it is given, and starts no goroutines. Its functions may be called concurrently; its
// types, but for values that nobody changes, may not be used so.
//
// Invariants, cited by the tests:
//
//	I1: one content has one byte string: what a decoder accepts, encoding gives again byte for
//	    byte.
//	I2: decoders refuse what encoders would not write, unknown flags, and bytes behind the end,
//	    with a *base.CorruptError; a newer version with a *base.FormatError. An error of what has
//	    a name in the bucket has that name in its text.
//	I3: no decoder allocates more than a small multiple of its input, or of the bound of what is
//	    compressed in it; the short pieces of a body, which cost most, are bounded in number:
//	    MaxBodyPieces of them cost 4 MiB.
//	I4: whatever can be checked in one object alone is checked here: order of lists, duplicates,
//	    ids that are zero, parents before their children, merges that are none, numbers and
//	    lengths within their bounds.
//
// It may change with any release.
package format
