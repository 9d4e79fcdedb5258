// Package flatbuffers holds the formats of commits, index pieces and tree nodes: the schemas, the
// code that flatc makes from them (package gen), the canonical encoders, and the verifying views
// through which every other package sees a buffer.
//
// The Go FlatBuffers runtime has no verifier and panics on bad buffers. So each table has one
// layout here: the order of the blocks is fixed, every field is present, blocks follow each other
// without holes, padding is zero. The encoders write that layout, and the parsers accept nothing
// else. What they accept, the encoders would write again byte for byte, so that one content has one
// name. Any FlatBuffers reader reads it.
//
// Invariants, cited by the tests:
//
//	I1: a parser returns nil error only for bytes that the encoder writes for the values in them.
//	I2: a parser allocates nothing in proportion to what a buffer claims, only to what it holds.
//	I3: no accessor of a parsed view can go out of bounds.
//	I4: the code that flatc generates reads from an encoded buffer the values that were encoded.
//
// Errors: encoders return base.ErrInvalid for values that can never be right and base.ErrTooLarge
// for values beyond their limit. Parsers return *base.CorruptError, or *base.FormatError when the
// file identifier names a version that this library does not know.
//
// This is the only package that imports the FlatBuffers runtime. Of the module it imports object,
// internal/base and internal/limits. Views are immutable and safe for concurrent use as long as
// nobody changes the bytes under them. It may change with any release.
package flatbuffers

//go:generate flatc --go -o . commit.fbs index.fbs tree_node.fbs
//go:generate gofmt -w gen
