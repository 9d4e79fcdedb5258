// Package layout knows the rows of a Permazen database: their keys, the tables of schemas and
// storage ids, and which index rows follow from which rows of an object.
//
//	key                                value
//	00 00 "Permazen" 00                format version, as of encoding.AppendUint: 1
//	00 01 schema index                 the schema's XML document, compressed with zlib
//	00 02 storage id                   SchemaId, as a string
//	00 80 schema index, object id      empty
//	00 ff ...                          of the app
//	object id                          schema index, and a byte of flags that may be missing and
//	                                   is 0
//	object id, field                   value of a simple field, unless it is the default; of a
//	                                   counter always: 8 bytes, big-endian
//	object id, set field, element      empty
//	object id, list field, index       element
//	object id, map field, key          value
//	field, value, object id            empty; for a set's element and a map's key, too
//	list's element, value, object id, index
//	map's value, value, object id, key
//	composite index, values, object id
//
// Numbers are as of encoding.AppendUint. Object ids begin with the storage id of their type. The
// first two bytes 00 00 stand for a prefix of their own, so no storage id is 0. Index rows are
// there for default values, too.
//
//	L1  Index rows follow from the rows of the object and its schema, and from nothing else.
//	L2  An item's storage id follows from its SchemaId, in whatever schema it is.
//
// Tables do not change once made and may be used concurrently. The package imports internal/base,
// ordered, permazen/encoding and permazen/schema. It may change with any release.
package layout
