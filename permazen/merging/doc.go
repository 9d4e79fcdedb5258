// Package merging merges two versions of a Permazen database that have a common base version. It
// merges objects field by field and derives index rows from the result.
//
//	M1  The result follows from the contents of the versions, not from which one is called left.
//	M2  If both versions are clean (see package jsck), the result is clean.
//	M3  A change by one side alone is kept, unless a reference would dangle.
//
// The merge of a field that both sides have changed:
//
//	one value     the side that wrote the object last
//	counter       the sum of both sides' changes
//	set, map      by element: additions and removals of both sides apply; a changed entry beats
//	              a removed one
//	list          diff3; for changes of the same elements, the side that wrote last; elements
//	              that both inserted in one place all stay
//
// If values of both sides do not fit into one index row, the object is taken whole from the side
// that wrote it last. An object that one side has deleted and the other changed stays. A reference
// to a deleted object is subject to its delete action. An object that such an action deletes takes
// the targets of its forward-delete fields with it. If an action forbids the deletion, the deleted
// object is restored. Schemas and storage ids are matched by SchemaId. If the sides gave one number
// to different items, the items get two numbers and rows are rewritten. The result has the schemas
// of both sides. A schema that one side has removed goes when no object has it.
//
// One changed object at a time is in memory, and 8 bytes for each changed object.
//
// The package imports internal/base, internal/diff3, ordered and permazen/{encoding,layout,schema}.
// It may change with any release.
package merging
