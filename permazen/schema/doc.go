// Package schema describes object types of Permazen with their fields and indexes. It reads and
// writes XML documents, computes SchemaIds from the encoding of items, and assigns storage ids.
//
//	S1  Items with equal SchemaIds have the same bytes in a database, in every schema.
//	S2  Parse(XML(m)) is m, sorted; XML(Parse(x)) is the canonical form of x.
//	S3  Numbers follow from contents alone: the same table and model give the same numbers.
//
// A Model that does not change is safe for concurrent use. The package imports internal/base and
// permazen/encoding. It may change with any release.
package schema
