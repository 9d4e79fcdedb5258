// Package merging merges two versions of a Permazen database that come from a third one: objects
// field by field, index rows derived anew.
//
//	M1  The result follows from what the versions contain, and not from which one is called left.
//	M2  The result of versions that are clean is clean: see package jsck.
//	M3  What only one side has changed is as that side has it, unless a reference would dangle.
//
// What becomes of a field that both sides have changed:
//
//	one value     that of the side that wrote the object last
//	counter       what both sides have added
//	set, map      by element: added and removed as on either side; a changed entry beats a removed
//	              one
//	list          diff3; where both changed the same elements, those of the side that wrote last;
//	              elements that both put into one place all stay
//
// An object that one side has deleted and the other changed stays. References to objects that are
// deleted are treated as their delete actions say. An object that goes so takes with it what its
// fields with forward deletion refer to. Where a reference forbids it, the deleted object comes
// back. Schemas and storage ids are brought together by SchemaId: two items that took one number on
// two sides get two, and rows are rewritten. Schemas are united; one that a side has removed goes
// when no object has it.
//
// Objects that a side has changed are held in memory one at a time; of all of them 8 bytes each are
// held.
//
// The package imports internal/base, internal/diff3, ordered and permazen/{encoding,layout,schema}.
// It may change with any release.
package merging
