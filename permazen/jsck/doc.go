// Package jsck checks every row of a Permazen database, and repairs what it can.
//
//	J1  Each object is checked by its own schema, and each index by all objects.
//	J2  An issue is told once. A database that was repaired has none.
//	J3  What becomes of an object follows from its own rows and from which objects exist, so that
//	    Check and Repair tell the same issues.
//	J4  Time and memory are bounded: the rows are walked over once, and again only where index
//	    rows are missing or wrong. Memory follows the number of schemas and the longest value.
//	J5  Nothing is repaired while it is not certain what the schemas are.
//
// Index rows are compared by sums of hashes of their keys, in many buckets: of those that objects
// ask for, and of those that are there. Only buckets whose sums differ are looked into row by row.
// The hash is keyed by a random seed, so rows that differ have the same sums once in 2^64 times.
//
// The package imports internal/base, ordered and permazen/{encoding,layout,schema}. It may change
// with any release.
package jsck
