// Package btree is the ordered, history-independent search tree over objects.
//
// The tree is a Merkle search tree. The level of a key is the number of leading zero groups of
// FanoutBits bits in a hash of the key that is keyed by the page id. A node holds the entries of
// one level that lie between two neighbouring keys of higher levels, and in the gaps between them
// its children, any number of levels lower. So the shape follows from the set of keys alone.
//
// Invariants, cited by the tests:
//
//	I1: equal content gives the equal root, whatever the history; Apply and Build agree.
//	I2: a node without entries does not exist, except EmptyRoot, which is at level 0 and is never
//	    stored.
//	I3: a sink receives exactly the nodes of the new tree that the old one lacks, each once,
//	    children first.
//	I4: diffs read no node that all their trees share (except on the path to the start key).
//	I5: whatever a Source returns, operations end with an error or a result: levels decrease
//	    strictly on the way down, and keys outside the gap of the parent are an error.
//	I6: memory depends on the nodes of one path, not on the number of entries, changes or
//	    differences.
//
// Nodes are read from a Source, which has verified them, VerifyNode included. This package verifies
// what one node alone does not show (a child's level and key range), whenever it opens a node.
//
// The package must not import storage, bbolt or anything above it; of the module it imports
// flatbuffers, split, object, internal/base and internal/limits. It starts no goroutines. A Tree is
// a value and as safe for concurrent use as its Source; a Cursor belongs to one caller at a time.
// It may change with any release.
package btree
