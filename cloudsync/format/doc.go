// Package format has the parts of the format of a bucket that belong to no log: the names of the
// keyring's rings, announcements of pages, the table of a pack, and the list of changes of which a
// difference of trees consists. docs/cloud-format.md describes them for a second implementation.
// Objects of a log are package wire's.
//
// Of the module the package imports internal/base, internal/limits, object and seal. It does no I/O
// but for the readers and writers that it is given, and starts no goroutines. Its functions may be
// called concurrently; its types, but for values that nobody changes, may not.
//
// Invariants, cited by the tests:
//
//	I1: one content has one byte string: what a decoder accepts, encoding gives again.
//	I2: decoders refuse what encoders would not write, and bytes behind the end, with a
//	    *base.CorruptError; a newer version with a *base.FormatError.
//	I3: no decoder allocates more than a small multiple of its input, or of the bound of what is
//	    compressed in it.
//
// It may change with any release.
package format
