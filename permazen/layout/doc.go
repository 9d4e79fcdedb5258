// Package layout defines the rows of a Permazen database: their keys, the tables of schemas and
// storage ids, and the index rows that follow from an object's rows.
//
//	key                                value
//	00 00 "Permazen" 00                format version in the form of encoding.AppendUint: 1
//	00 01 schema index                 the schema's XML document, compressed with zlib
//	00 02 storage id                   SchemaId, as a string
//	00 80 schema index, object id      empty
//	00 ff ...                          rows of the app
//	object id                          schema index, then an optional byte of flags, which is 0
//	object id, field                   value of a simple field, unless it is the default; 8 bytes,
//	                                   big-endian, of a counter, always
//	object id, set field, element      empty
//	object id, list field, index       element
//	object id, map field, key          value
//	field, value, object id            empty; also for a set's element and a map's key
//	list's element, value, object id, index
//	map's value, value, object id, key
//	composite index, values, object id
//
// Numbers have the form of encoding.AppendUint. Object ids begin with the storage id of their type.
// Keys that begin with 00 belong to the tables and the app, so no storage id is 0. Default values
// have index rows too.
//
//	L1  Index rows follow from the rows of the object and its schema, and from nothing else.
//	L2  The storage id of an item follows from its SchemaId, the same in every schema.
//
// Tables are immutable and safe for concurrent use. The package imports internal/base,
// ordered, permazen/encoding and permazen/schema. It may change with any release.
package layout
