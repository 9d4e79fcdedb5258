// Package value has the script values that Chromium serializes for IndexedDB as Go values: Decode
// reads them, and Encode writes them.
//
// A serialized value is an envelope of Blink's, one of V8's, and a tree of tagged values. A long
// one is compressed by snappy, or stands in an external object, to which a Wrapped refers. The
// format is private to Chromium: what this package does not know, Decode reports as
// base.ErrUnsupported, and the bytes are kept by whoever holds them.
//
// These are the types of a Value:
//
//	undefined, null       Undefined, Null        Map, Set                *Map, *Set
//	boolean, number       bool, float64          RegExp                  *RegExp
//	bigint                *big.Int               ArrayBuffer             *Buffer
//	string                string, in WTF-8       typed array, DataView   *View
//	Boolean, Number, ...  *Boxed                 Error, DOMException     *Error
//	Date                  *Date                  Blob, File, FileList    *Blob, *FileList
//	Array                 *Array                 handles of files        *Handle
//	other objects         *Object                ImageData, DOMRect, ... *ImageData, *Shape
//
// A generated key may have been put into any object. Those that have no room for it, all but
// *Object and *Array, are in an *Extended then. Encode writes it as the object alone, as V8 does.
//
// What is shared in the script is the same pointer here, and cycles are kept: whoever walks over a
// Value remembers which pointers it has seen. A number that the script keeps as an integer is a
// float64 too.
//
// Decode takes memory in proportion to its input, some 50 times its length at most. It imports
// indexeddb/internal/wtf8 and internal/base. Its functions may be used concurrently. It may change
// with any release.
package value
