// Package keyspace writes a list of nested namespaces and a key as one byte string, for stores that
// know sorted byte strings and nothing else. It may import internal/base and nothing else of the
// module.
//
// A scheme is judged by five properties; Properties says which of them a scheme has:
//
//	K1  Namespaces and keys may be any bytes of any length, empty ones included.
//	K2  Two different pairs of namespaces and key never have the same row.
//	K3  Rows of one namespace sort as their keys do, bytewise.
//	K4  Namespaces beside each other sort as their names do: every row of one stands before every
//	    row of the other, a name before those that it begins.
//	K5  Namespaces nest: all that is in and below one is one range of rows.
//
// Writing namespace and key one after the other has not even K2: foo, bar and fo, obar are the same
// row. The three schemes:
//
//	                 K1       K2  K3  K4  K5   depth    bytes added
//	LengthPrefixed   limited  yes yes no  yes  fixed    Width for each namespace
//	Hex              yes      yes yes yes yes  any      as many as there are, and one for each
//	                                                    namespace
//	Escaped          yes      yes yes yes yes  any      two for each namespace, one for each 0x00
//	                                                    in its name
//
// New data takes Escaped. The others are for data that is written so already.
//
// The scheme of a store, or of a part of it under a name of its own, never changes and is recorded
// with it: rows of different schemes side by side have none of the properties.
//
// Schemes are values without state, so they may be used concurrently. No function retains its
// arguments. It may change with any release.
package keyspace
