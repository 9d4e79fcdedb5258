package indexeddb

import "iter"

// Rows yields the metadata rows for the schema, unordered, as Chromium writes them for a new
// directory. They omit journals, and include the obsolete rows that Chromium still writes.
func (s *Schema) Rows() iter.Seq2[Row, []byte] {
	return func(yield func(Row, []byte) bool) {
		global := []int64{s.Version, s.MaxDatabaseID, s.DataVersion}
		for property, n := range global {
			if !yield(Row{Kind: KindGlobal, Property: byte(property)}, AppendInt(nil, n)) {
				return
			}
		}
		for _, d := range s.Databases {
			if !yield(Row{Kind: KindDatabaseName, Origin: d.Origin, Name: d.Name}, AppendInt(nil, d.ID)) {
				return
			}
		}
		for _, d := range s.Databases {
			if !d.rows(yield) {
				return
			}
		}
	}
}

func (d *Database) rows(yield func(Row, []byte) bool) bool {
	r := Row{Kind: KindDatabase, Database: d.ID}
	for property, value := range map[byte][]byte{
		DatabaseMaxStoreID: AppendInt(nil, d.MaxStoreID), DatabaseVersion: AppendVarInt(nil, d.Version), DatabaseBlobNumber: AppendVarInt(nil, d.NextBlob),
	} {
		if r.Property = property; !yield(r, value) {
			return false
		}
	}
	for _, s := range d.Stores {
		if !s.rows(d.ID, yield) || !yield(Row{Kind: KindStoreName, Database: d.ID, Name: s.Name}, AppendInt(nil, s.ID)) {
			return false
		}
		for _, x := range s.Indexes {
			if !x.rows(d.ID, s.ID, yield) {
				return false
			}
		}
	}
	return true
}

func (s *Store) rows(database int64, yield func(Row, []byte) bool) bool {
	r := Row{Kind: KindStore, Database: database, Store: s.ID}
	for property, value := range [][]byte{
		StoreName: AppendString(nil, s.Name), StoreKeyPath: s.KeyPath.Append(nil), StoreAutoIncrement: AppendBool(nil, s.AutoIncrement),
		StoreEvictable: AppendBool(nil, false), StoreLastVersion: AppendInt(nil, s.LastVersion), StoreMaxIndexID: AppendInt(nil, s.MaxIndexID),
		StoreHasKeyPath: AppendBool(nil, s.KeyPath.Type != NoKeyPath), StoreKeyGenerator: AppendInt(nil, s.KeyGenerator),
	} {
		if r.Property = byte(property); !yield(r, value) {
			return false
		}
	}
	return true
}

func (x *Index) rows(database, store int64, yield func(Row, []byte) bool) bool {
	r := Row{Kind: KindIndex, Database: database, Store: store, Index: x.ID}
	for property, value := range [][]byte{
		IndexName: AppendString(nil, x.Name), IndexUnique: AppendBool(nil, x.Unique), IndexKeyPath: x.KeyPath.Append(nil), IndexMultiEntry: AppendBool(nil, x.MultiEntry),
	} {
		if r.Property = byte(property); !yield(r, value) {
			return false
		}
	}
	return true
}
