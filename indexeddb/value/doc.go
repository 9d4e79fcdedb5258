// Package value represents the script values that Chromium serializes for IndexedDB as Go values.
// Decode reads them, and Encode writes them.
//
// A serialized value is an envelope of Blink, one of V8, and a tree of tagged values. A long value
// is compressed by snappy, or is in an external object to which a Wrapped refers. The format is
// private to Chromium. For unknown forms, Decode returns base.ErrUnsupported, and the caller keeps
// the bytes.
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
// A browser can inject a generated key into any object. All objects except *Object and *Array lack
// room for the key, and an *Extended then holds both. Encode writes only its object, as V8 does.
//
// A shared object is one pointer, and cycles are kept. So code that traverses a Value must remember
// the visited pointers. Integers of a script are also float64.
//
// Decode takes memory in proportion to its input, at most about 50 times its length. The package
// imports indexeddb/internal/wtf8 and internal/base. Its functions may be used concurrently. The
// API may change with any release.
package value
