// Package indexeddb implements the data model of IndexedDB as Chromium stores it: keys and their
// order; the rows of databases, object stores, indexes and records; and the form of these rows on a
// page.
//
// Row and the functions for its values encode and decode the bytes of Chromium's LevelDB
// directories. CompareRows orders them, as Chromium's comparator idb_cmp1 does. PageRow returns the
// form for a store that sorts bytewise:
//
//	"indexeddb" 00 02 | uint database | uint object store | uint index | rest
//
// A uint is one byte with the length of the number, then its digits, big-endian. In a data row the
// rest is the sortable form of the keys (Key.AppendSortable). In metadata the rest is the property
// with its ids and names:
//
//	store 0, index 0   metadata, with the values that Chromium writes
//	index 1            record: version as VarInt, serialized script value
//	index 3            external objects of a record
//	index 4            content of one external object; a uint after the primary key is its
//	                   ordinal
//	index 5            on pages only: the number that a record got in a merge (KindMoved)
//	index >= 30        index row: index key, primary key; no value
//
// A page omits three families of Chromium. Exists entries and the versions in index rows repeat the
// version of the record (X1). Stale index rows are garbage (X2). Journals and scopes belong to a
// directory (X3). So every index row on a page is valid, and its record exists in the same group
// (RowGroup).
//
// A key of a page has at most 4096 bytes, while keys of IndexedDB have no limit. A sortable form
// longer than 1984 bytes is shortened to its first 1984 bytes and the SHA-256 of the whole (X4).
// The value of such a row begins with the length of Chromium's row key as VarInt, and the row key.
// Rows sort as their keys do, except that rows with the same first 1984 bytes sort by their hash.
//
// Strings in Go are WTF-8: UTF-8 in which a lone surrogate takes three bytes.
//
// The package imports keyspace, ordered, indexeddb/value and internal/base, and nothing that stores
// rows. All functions may be called concurrently, and none retains its arguments. The API may
// change with any release.
package indexeddb
