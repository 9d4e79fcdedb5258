// Package indexeddb has the data model of IndexedDB as Chromium stores it: keys and their order,
// the rows of databases, object stores, indexes and records, and the form that these rows take on a
// page.
//
// The bytes of Chromium's LevelDB directories are encoded and decoded by Row and its values, and
// ordered by CompareRows, which is the comparator idb_cmp1. PageRow gives the form for a store that
// sorts bytewise:
//
//	"indexeddb" 00 02 | uint database | uint object store | uint index | rest
//
// A uint is a byte with its length and its digits, big-endian. The rest of a data row is the
// sortable form of its keys (Key.AppendSortable), that of metadata the property with its ids and
// names:
//
//	store 0, index 0   metadata, with the values that Chromium writes
//	index 1            record: version as VarInt, serialized script value
//	index 3            external objects of a record
//	index 4            content of one external object; behind the primary key stands a uint, its
//	                   ordinal
//	index >= 30        index row: index key, primary key; no value
//
// Three families of Chromium's are not on a page. Exists entries and the versions in index rows
// repeat the version of the record (X1), stale index rows are garbage (X2), and journals and scopes
// belong to a directory (X3). So on a page every index row counts, and its group, named by
// RowGroup, has the record.
//
// A key of a page has at most 4096 bytes, while keys of IndexedDB have no limit. A key whose
// sortable form is longer than 1984 bytes stands as the first 1984 bytes and the SHA-256 of the
// whole (X4). The value of such a row begins with the length of Chromium's row key as VarInt, and
// the row key. Rows sort as their keys do, but rows whose keys share those first 1984 bytes sort by
// their hash.
//
// Strings in Go are WTF-8: UTF-8 in which a lone surrogate takes three bytes.
//
// It imports keyspace, ordered, indexeddb/value, internal/base and nothing that stores rows. All
// functions may be used concurrently, and none retains its arguments. It may change with any
// release.
package indexeddb
