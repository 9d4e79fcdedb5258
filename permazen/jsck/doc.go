// Package jsck checks every row of a Permazen database and repairs damage where possible.
//
//	J1  Each object is checked by its own schema, and each index by all objects.
//	J2  Each issue is reported once. A repaired database has none.
//	J3  The repair of an object follows from its own rows and from the set of existing objects,
//	    so Check and Repair report the same issues.
//	J4  Time and memory are bounded. All rows are read once; they are read again only if index
//	    rows are missing or wrong. Memory is proportional to the number of schemas and the
//	    longest value.
//	J5  Nothing is repaired while the schemas are uncertain.
//
// Index rows are compared by sums of key hashes in many buckets: sums over expected rows against
// sums over existing rows. Only buckets with different sums are compared row by row. A random seed
// keys the hash, so different rows have equal sums with a probability of 2^-64.
//
// The package imports internal/base, ordered and permazen/{encoding,layout,schema}. It may change
// with any release.
package jsck
