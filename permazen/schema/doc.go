// Package schema describes object types of Permazen: their fields and indexes, as XML documents, as
// identities of what they become in a database, and as numbers for them.
//
//	S1  Two items with one SchemaId have the same bytes in the database, whatever schema they are
//	    in.
//	S2  Parse(XML(m)) is m, sorted; XML(Parse(x)) is the canonical form of x.
//	S3  Numbers are given by content alone: same table and same model, same numbers.
//
// A Model may be used concurrently when nobody changes it. The package imports internal/base and
// permazen/encoding. It may change with any release.
package schema
