// Package keyspace writes a list of nested namespaces and a key as one byte string, for stores of
// sorted byte strings. It may import internal/base and nothing else of the module.
//
// There are five properties of schemes; Properties says which of them a scheme has:
//
//	K1  Namespaces and keys may be any bytes of any length, empty ones included.
//	K2  Two different pairs of namespaces and key never have the same row.
//	K3  Rows of one namespace sort as their keys do, bytewise.
//	K4  Sibling namespaces sort as their names do: every row of one precedes every row of the
//	    other, a name before those that it begins.
//	K5  Namespaces nest: everything in and below one is one range of rows.
//
// Plain concatenation of namespace and key lacks even K2: foo, bar and fo, obar are the same row.
// The three schemes:
//
//	                 K1       K2  K3  K4  K5   depth    bytes added
//	LengthPrefixed   limited  yes yes no  yes  fixed    Width for each namespace
//	Hex              yes      yes yes yes yes  any      as many as there are, and one for each
//	                                                    namespace
//	Escaped          yes      yes yes yes yes  any      two for each namespace, one for each 0x00
//	                                                    in its name
//
// Use Escaped for new data. The others are for data that exists in their form.
//
// The scheme of a store, or of a part of it under a name of its own, never changes and is recorded
// with it: rows of different schemes together have none of the properties.
//
// Schemes are values without state, so they are safe for concurrent use. No function retains its
// arguments. It may change with any release.
package keyspace
