// Package encoding encodes values as bytes that sort like the values, in the formats of Permazen.
//
// An Encoding is self-delimiting: no encoded value is a proper prefix of another. Values can
// therefore follow one another in a key.
//
//	E1  Decode(Append(v)) gives v, and Append(Decode(b)) gives b for every canonical b.
//	E2  The bytes sort in the natural order of the type, if the type has one.
//	E3  Len accepts only canonical forms. Decode also accepts forms that Permazen reads but does
//	    not write: integers with more bytes than needed, and other forms of NaN.
//	E4  No input makes a decoder panic, or use memory beyond a small multiple of the input.
//
// Encodings have no state and are safe for concurrent use. The package imports only internal/base
// of this module. It may change with any release.
package encoding
