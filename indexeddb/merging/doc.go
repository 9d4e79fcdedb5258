// Package merging merges two versions (the sides) of the IndexedDB rows on a page, given their
// base. A group is a record with its index rows, external objects and content. Metadata are merged
// before records.
//
//	M1  The result depends only on the content of the versions, and not on which one is called
//	    left.
//	M2  When the index rows of both versions match their records, those of the result do as well,
//	    except in unique indexes.
//	M3  A record that only one side has changed is as on that side. A deleted record does not
//	    reappear.
//	M4  Two records that got one key from a key generator both stay, whatever changes a device
//	    makes before it receives the merge. When the rows do not tell whether both sides changed
//	    one record, it becomes two.
//	M5  A key occurs once in a unique index. A record that is left out of a unique index is
//	    reported, and stays.
//
// The result of changes on both sides:
//
//	record                 that of the side that wrote it last, whole, with a version that is
//	                       above both
//	deleted and changed    the changed record stays
//	made by a generator    the later one gets the next number
//	object store, index,   deleted; records of it that the other side has changed are reported
//	database is deleted
//	created on both sides  one when name, key path and flags are the same; else the second one
//	                       gets another name
//	with one number        the second one gets another number, and its rows follow
//	renamed                the name on the side with the greater version of the database
//	versions, generators   the greater one
//
// A merge takes index rows from the same side as the record. It derives them from the value only
// for an index that this side lacks. A value that cannot be decoded gets no rows in such an index,
// as in a browser that creates an index.
//
// Memory holds one group at a time, and all keys that may occur twice in unique indexes. An object
// store that both sides created under different numbers is copied record by record.
//
// The package imports internal/base, ordered, indexeddb and indexeddb/value. The API may change
// with any release.
package merging
