// Package merging merges two versions of the rows of IndexedDB on a page that come from a third
// one: a record with its index rows, external objects and their content is one group, and metadata
// are merged before.
//
//	M1  The result follows from what the versions contain, and not from which one is called left.
//	M2  The result of versions whose index rows are what their records give has such index rows,
//	    but for unique ones.
//	M3  A record that only one side has changed is as that side has it. A deleted one does not
//	    come back.
//	M4  Two records that got one key from a key generator both stay, whatever is done to them
//	    before a device has the merge. Where rows do not tell whether it is one record that both
//	    sides have changed, it becomes two.
//	M5  A key stands in a unique index once. A record that is left out of one is reported, and
//	    stays.
//
// What becomes of what both sides have changed:
//
//	record                 that of the side that wrote it last, whole, with a version that is
//	                       above both
//	deleted and changed    it stays as it was changed
//	made by a generator    the later one gets the next number
//	object store, index,   deleted; records of it that the other side has changed are reported
//	database is deleted
//	created on both sides  one when name, key path and flags are the same; else the second one
//	                       gets another name
//	with one number        the second one gets another number, and its rows follow
//	renamed                the name on the side with the greater version of the database
//	versions, generators   the greater one
//
// Index rows are taken with the record. They are derived from its value only for an index that the
// side does not have from which the record is taken. A value that cannot be decoded has no rows in
// such an index, as in a browser that makes one.
//
// Groups are held in memory one at a time, and of all of them keys of unique indexes that may be
// there twice. Object stores that were created on both sides under several numbers are walked
// through.
//
// It imports internal/base, ordered, indexeddb and indexeddb/value. It may change with any release.
package merging
