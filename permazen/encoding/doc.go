// Package encoding turns values into bytes that sort as the values do, in the forms of Permazen.
//
// An Encoding is self-delimiting: no encoded value is a proper prefix of another one. So values can
// stand one after another in a key.
//
//	E1  Decode(Append(v)) gives v, and Append(Decode(b)) gives b for every canonical b.
//	E2  Bytes of values sort as the natural order of their type, where the type has one.
//	E3  Len accepts canonical forms alone. Decode accepts also what Permazen reads and never
//	    writes: integers with more bytes than needed, and other forms of NaN.
//	E4  No input makes a decoder panic, or take memory beyond a small multiple of the input.
//
// Encodings are values without state, safe for concurrent use. The package imports internal/base
// and nothing else of the module. It may change with any release.
package encoding
