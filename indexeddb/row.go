package indexeddb

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
)

// Kind is the family of a row.
type Kind uint8

// The families of rows, each with the fields of Row that it uses.
const (
	KindGlobal       Kind = iota + 1 // Property: 0 to 6
	KindScope                        // Scope: the log of unfinished transactions
	KindDatabaseFree                 // Database: obsolete
	KindDatabaseName                 // Origin, Name
	KindDatabase                     // Database, Property: 0 to 5
	KindStore                        // Database, Store, Property: 0 to 7
	KindIndex                        // Database, Store, Index, Property: 0 to 3
	KindStoreFree                    // Database, Store: obsolete
	KindIndexFree                    // Database, Store, Index: obsolete
	KindStoreName                    // Database, Name
	KindIndexName                    // Database, Store, Name: obsolete
	KindRecord                       // Database, Store, Primary
	KindExists                       // Database, Store, Primary
	KindExternal                     // Database, Store, Primary
	KindContent                      // Database, Store, Primary, Sequence: the ordinal; only on pages
	KindIndexRow                     // Database, Store, Index, Key, Primary, Sequence
	KindMoved                        // Database, Store, Primary, Sequence: the new number; only on pages
)

var kindNames = [...]string{
	KindGlobal: "global metadata", KindScope: "scope", KindDatabaseFree: "free database id", KindDatabaseName: "database name",
	KindDatabase: "database metadata", KindStore: "object store metadata", KindIndex: "index metadata",
	KindStoreFree: "free object store id", KindIndexFree: "free index id", KindStoreName: "object store name",
	KindIndexName: "index name", KindRecord: "record", KindExists: "exists entry", KindExternal: "external objects",
	KindContent: "content of an external object", KindIndexRow: "index row",
	KindMoved: "new number",
}

// String returns the name of the family.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("row kind %d", k)
}

// Properties of KindGlobal.
const (
	GlobalSchemaVersion      = 0 // Int
	GlobalMaxDatabaseID      = 1 // Int
	GlobalDataVersion        = 2 // Int: version of V8 << 32 | version of Blink
	GlobalRecoveryJournal    = 3 // journal of blobs
	GlobalActiveJournal      = 4 // journal of blobs
	GlobalEarliestSweep      = 5 // Int, microseconds
	GlobalEarliestCompaction = 6 // Int, microseconds
)

// Properties of KindDatabase.
const (
	DatabaseOrigin        = 0 // String, obsolete
	DatabaseNameProperty  = 1 // String, obsolete
	DatabaseStringVersion = 2 // String, obsolete
	DatabaseMaxStoreID    = 3 // Int
	DatabaseVersion       = 4 // VarInt
	DatabaseBlobNumber    = 5 // VarInt: the next number
)

// Properties of KindStore.
const (
	StoreName          = 0 // String
	StoreKeyPath       = 1 // key path
	StoreAutoIncrement = 2 // Bool
	StoreEvictable     = 3 // Bool, obsolete
	StoreLastVersion   = 4 // Int
	StoreMaxIndexID    = 5 // Int
	StoreHasKeyPath    = 6 // Bool, obsolete
	StoreKeyGenerator  = 7 // Int
)

// Properties of KindIndex.
const (
	IndexName       = 0 // String
	IndexUnique     = 1 // Bool
	IndexKeyPath    = 2 // key path
	IndexMultiEntry = 3 // Bool
)

// Index ids in the prefix of data rows. MinIndexID is the least id of an index.
const (
	indexRecord   = 1
	indexExists   = 2
	indexExternal = 3
	indexContent  = 4
	indexMoved    = 5
	MinIndexID    = 30
)

// Type bytes of metadata.
const (
	typeScope        = 50
	typeStore        = 50
	typeIndex        = 100
	typeDatabaseFree = 100
	typeStoreFree    = 150
	typeIndexFree    = 151
	typeStoreName    = 200
	typeDatabaseName = 201
	typeIndexName    = 201
)

// Bounds on ids. maxCount and maxIndexCount bound the greatest ids, versions and numbers of blobs
// in metadata, so that the next ones are valid, too.
const (
	maxID         = math.MaxInt64 - 1
	maxIndexID    = math.MaxInt32 - 1
	maxCount      = maxID / 2
	maxIndexCount = maxIndexID / 2
)

// NoSequence is the sequence of an old index row that has none.
const NoSequence = -1

// Row is a decoded row key. Kind determines the fields in use; the others are zero.
type Row struct {
	Kind                   Kind
	Database, Store, Index int64
	Property               byte
	Origin, Name           string
	// Key is the index key of an index row. Primary is the primary key; old index rows may have it
	// only in their value, see DecodeIndexValue.
	Key, Primary Key
	// Sequence is the ordinal in KindContent, from 0. In KindMoved it is the number that the record
	// with the key Primary got in a merge. In index rows it is 0, except in old ones.
	Sequence int64
	// Scope is the part of the key after the type byte.
	Scope []byte
}

// Describe names the row in errors and for people: its family, its ids, and at most 32 bytes of its
// key.
func (r Row) Describe() string {
	s := r.Kind.String()
	switch {
	case r.Store > 0 && r.Index > 0:
		s += fmt.Sprintf(" %d/%d/%d", r.Database, r.Store, r.Index)
	case r.Store > 0:
		s += fmt.Sprintf(" %d/%d", r.Database, r.Store)
	case r.Database > 0:
		s += fmt.Sprintf(" %d", r.Database)
	}
	switch r.Kind {
	case KindGlobal, KindDatabase, KindStore, KindIndex:
		return fmt.Sprintf("%s property %d", s, r.Property)
	case KindIndexRow:
		return s + " " + shortHex(r.Key.enc) + " of " + shortHex(r.Primary.enc)
	case KindRecord, KindExists, KindExternal:
		return s + " " + shortHex(r.Primary.enc)
	case KindContent, KindMoved:
		return fmt.Sprintf("%s %s number %d", s, shortHex(r.Primary.enc), r.Sequence)
	}
	return s
}

func shortHex(b string) string {
	if len(b) > 32 {
		return hex.EncodeToString([]byte(b[:32])) + "..."
	}
	return hex.EncodeToString([]byte(b))
}

// prefix returns the three ids at the beginning of the row key.
func (r Row) prefix() (database, store, index int64) {
	switch r.Kind {
	case KindRecord:
		return r.Database, r.Store, indexRecord
	case KindExists:
		return r.Database, r.Store, indexExists
	case KindExternal:
		return r.Database, r.Store, indexExternal
	case KindContent:
		return r.Database, r.Store, indexContent
	case KindMoved:
		return r.Database, r.Store, indexMoved
	case KindIndexRow:
		return r.Database, r.Store, r.Index
	case KindGlobal, KindScope, KindDatabaseFree, KindDatabaseName:
		return 0, 0, 0
	}
	return r.Database, 0, 0
}

// Append appends the row key as in Chromium's LevelDB, where KindContent and KindMoved do not
// exist.
func (r Row) Append(dst []byte) []byte {
	dst = AppendPrefix(dst, r)
	switch {
	case r.Kind == KindScope:
		return append(append(dst, typeScope), r.Scope...)
	case r.Kind < KindRecord:
		return r.appendMetadata(dst, AppendVarInt, appendStringWithLength)
	case r.Kind == KindIndexRow:
		dst = r.Key.Append(dst)
		if r.Sequence != NoSequence {
			dst = AppendVarInt(dst, r.Sequence)
		}
	}
	return r.Primary.Append(dst)
}

// appendMetadata appends the key of a metadata row after the prefix. id and name append numbers and
// names in the form of Chromium's LevelDB, or of a page.
func (r Row) appendMetadata(dst []byte, id func([]byte, int64) []byte, name func([]byte, string) []byte) []byte {
	switch r.Kind {
	case KindGlobal, KindDatabase:
		return append(dst, r.Property)
	case KindDatabaseFree:
		return id(append(dst, typeDatabaseFree), r.Database)
	case KindDatabaseName:
		return name(name(append(dst, typeDatabaseName), r.Origin), r.Name)
	case KindStore:
		return append(id(append(dst, typeStore), r.Store), r.Property)
	case KindIndex:
		return append(id(id(append(dst, typeIndex), r.Store), r.Index), r.Property)
	case KindStoreFree:
		return id(append(dst, typeStoreFree), r.Store)
	case KindIndexFree:
		return id(id(append(dst, typeIndexFree), r.Store), r.Index)
	case KindStoreName:
		return name(append(dst, typeStoreName), r.Name)
	case KindIndexName:
		return name(id(append(dst, typeIndexName), r.Store), r.Name)
	}
	return dst
}

// AppendPrefix appends the common prefix of the keys of all rows in the family of r. A family is:
// the records of one object store, the rows of one index, the metadata of one database, or global
// metadata.
func AppendPrefix(dst []byte, r Row) []byte {
	database, store, index := r.prefix()
	d, s, i := intLen(database), intLen(store), intLen(index)
	dst = append(dst, byte((d-1)<<5|(s-1)<<2|(i-1)))
	return AppendInt(AppendInt(AppendInt(dst, database), store), index)
}

// intLen returns how many bytes an Int takes.
func intLen(n int64) int { return max(1, (bits.Len64(uint64(n))+7)/8) }

// cutPrefix decodes the ids at the beginning of a row key. They must have their shortest form.
func cutPrefix(b []byte) (database, store, index int64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, 0, 0, nil, false
	}
	if b[0] == 0 && len(b) > 3 { // one byte for each id, as in nearly all rows
		return int64(b[1]), int64(b[2]), int64(b[3]), b[4:], true
	}
	lengths := [3]int{int(b[0]>>5) + 1, int(b[0]>>2&7) + 1, int(b[0]&3) + 1}
	rest = b[1:]
	var ids [3]int64
	for i, n := range lengths {
		if n > len(rest) || n > 1 && rest[n-1] == 0 {
			return 0, 0, 0, nil, false
		}
		var id uint64
		for at, c := range rest[:n] {
			id |= uint64(c) << (8 * at)
		}
		if id > maxID {
			return 0, 0, 0, nil, false
		}
		ids[i], rest = int64(id), rest[n:]
	}
	return ids[0], ids[1], ids[2], rest, ids[2] <= maxIndexID
}

// DecodeRow decodes a row key. Errors: base.ErrCorrupt for bytes that Append does not write.
func DecodeRow(b []byte) (Row, error) {
	database, store, index, rest, ok := cutPrefix(b)
	if !ok {
		return Row{}, malformed("row key", "its prefix is cut, too large or longer than need be")
	}
	r := Row{Database: database, Store: store}
	var err error
	switch {
	case database == 0 && (store != 0 || index != 0), database != 0 && store == 0 && index != 0,
		store != 0 && (index == 0 || index > indexExternal && index < MinIndexID):
		return Row{}, malformed("row key", "no family has the prefix %d/%d/%d", database, store, index)
	case store == 0:
		d := rowDecoder{b: rest}
		d.metadata(&r)
		rest, err = d.b, d.err
	case index < MinIndexID:
		r.Kind = KindRecord + Kind(index) - indexRecord
		r.Primary, rest, err = DecodeKey(rest)
	default:
		r.Kind, r.Index = KindIndexRow, index
		rest, err = r.decodeIndexRow(rest)
	}
	if err != nil {
		return Row{}, fmt.Errorf("row key with the prefix %d/%d/%d: %w", database, store, index, err)
	}
	if len(rest) > 0 {
		return Row{}, malformed("row key", "%d bytes behind it", len(rest))
	}
	return r, nil
}

func (r *Row) decodeIndexRow(b []byte) (rest []byte, err error) {
	r.Sequence = NoSequence
	if r.Key, rest, err = DecodeKey(b); err != nil || len(rest) == 0 {
		return rest, err
	}
	if r.Sequence, rest, err = DecodeVarInt(rest); err != nil || len(rest) == 0 {
		return rest, err
	}
	r.Primary, rest, err = DecodeKey(rest)
	return rest, err
}
