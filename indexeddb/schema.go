package indexeddb

import (
	"cmp"
	"fmt"
	"slices"
)

// Schema is the metadata of a directory or page.
type Schema struct {
	// Version is the version of the row format. DataVersion is the version of serialized values:
	// version of V8 << 32 | version of Blink.
	Version, DataVersion int64
	// MaxDatabaseID is the greatest id assigned so far.
	MaxDatabaseID int64
	// Recovery and Active list blobs to be deleted. Pages have no such lists.
	Recovery, Active []JournalEntry
	// Databases are sorted by id. In a database that was never opened successfully, Version is 0.
	Databases []*Database
}

// Database is the metadata of a database.
type Database struct {
	ID           int64
	Origin, Name string
	Version      int64
	// MaxStoreID is the greatest id of an object store assigned so far. NextBlob is the next number
	// of a blob.
	MaxStoreID, NextBlob int64
	// Stores are sorted by id.
	Stores []*Store

	have property
}

// Store is the metadata of an object store.
type Store struct {
	ID            int64
	Name          string
	KeyPath       KeyPath
	AutoIncrement bool
	// LastVersion is the version of the most recently written record. A new store has 1.
	LastVersion int64
	// MaxIndexID is the greatest id of an index assigned so far, or MinIndexID when there was none.
	MaxIndexID int64
	// KeyGenerator is the next number. 0, in old data, means one more than the greatest key.
	KeyGenerator int64
	// Indexes are sorted by id.
	Indexes []*Index

	have property
}

// Index is the metadata of an index.
type Index struct {
	ID                 int64
	Name               string
	KeyPath            KeyPath
	Unique, MultiEntry bool

	have property
}

// property is the set of properties read so far.
type property uint16

func (p *property) add(n byte)     { *p |= 1 << n }
func (p property) has(n byte) bool { return p&(1<<n) != 0 }

// Injects reports whether stored values lack the generated key, so that each read must insert it.
func (s *Store) Injects() bool { return s.AutoIncrement && s.KeyPath.Type == StringKeyPath }

// Index returns the index with the id given, or nil.
func (s *Store) Index(id int64) *Index {
	i := slices.IndexFunc(s.Indexes, func(x *Index) bool { return x.ID == id })
	if i < 0 {
		return nil
	}
	return s.Indexes[i]
}

// Store returns the object store with the id given, or nil.
func (d *Database) Store(id int64) *Store {
	i := slices.IndexFunc(d.Stores, func(s *Store) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return d.Stores[i]
}

// Database returns the database with the id given, or nil.
func (s *Schema) Database(id int64) *Database {
	i := slices.IndexFunc(s.Databases, func(d *Database) bool { return d.ID == id })
	if i < 0 {
		return nil
	}
	return s.Databases[i]
}

// Add adds a metadata row. The caller adds first the rows of all databases, then those of each
// database, in order. Add ignores obsolete rows and other kinds. Errors: base.ErrCorrupt, naming
// the row, and base.ErrUnsupported for unknown versions.
func (s *Schema) Add(r Row, value []byte) error {
	var err error
	switch r.Kind {
	case KindGlobal:
		err = s.addGlobal(r, value)
	case KindDatabaseName:
		d := &Database{Origin: r.Origin, Name: r.Name}
		if d.ID, err = DecodeInt(value); err == nil && (d.ID < 1 || d.ID > maxID || s.Database(d.ID) != nil) {
			err = malformed("database name", "its id is %d, which is none or that of another", d.ID)
		}
		s.Databases = append(s.Databases, d)
	case KindDatabase, KindStore, KindIndex:
		d := s.Database(r.Database)
		if d == nil {
			err = malformed("metadata", "database %d has no name", r.Database)
			break
		}
		err = d.add(r, value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.Describe(), err)
	}
	return nil
}

func (s *Schema) addGlobal(r Row, value []byte) (err error) {
	switch r.Property {
	case GlobalSchemaVersion:
		if s.Version, err = DecodeInt(value); err == nil && (s.Version < MinSchemaVersion || s.Version > MaxSchemaVersion) {
			err = unsupported("schema", s.Version, MaxSchemaVersion)
		}
	case GlobalDataVersion:
		s.DataVersion, err = DecodeInt(value)
		v8, blink := s.DataVersion>>32, s.DataVersion&0xffffffff
		switch {
		case err != nil:
		case v8 > MaxV8Version:
			err = unsupported("values of V8", v8, MaxV8Version)
		case blink > MaxBlinkVersion:
			err = unsupported("values of Blink", blink, MaxBlinkVersion)
		}
	case GlobalMaxDatabaseID:
		s.MaxDatabaseID, err = DecodeInt(value)
	case GlobalRecoveryJournal:
		s.Recovery, err = DecodeJournal(value)
	case GlobalActiveJournal:
		s.Active, err = DecodeJournal(value)
	case GlobalEarliestSweep, GlobalEarliestCompaction:
		_, err = DecodeInt(value)
	}
	return err
}

func (d *Database) add(r Row, value []byte) (err error) {
	switch r.Kind {
	case KindStore:
		s := d.Store(r.Store)
		if s == nil {
			s = &Store{ID: r.Store, MaxIndexID: MinIndexID}
			d.Stores = append(d.Stores, s)
		}
		return s.add(r.Property, value)
	case KindIndex:
		s := d.Store(r.Store)
		if s == nil {
			return malformed("metadata", "there is no object store %d", r.Store)
		}
		x := s.Index(r.Index)
		if x == nil {
			x = &Index{ID: r.Index}
			s.Indexes = append(s.Indexes, x)
		}
		return x.add(r.Property, value)
	}
	d.have.add(r.Property)
	switch r.Property {
	case DatabaseMaxStoreID:
		d.MaxStoreID, err = DecodeInt(value)
	case DatabaseVersion:
		d.Version, err = wholeVarInt(value)
	case DatabaseBlobNumber:
		d.NextBlob, err = wholeVarInt(value)
	}
	return err
}

func (s *Store) add(property byte, value []byte) (err error) {
	s.have.add(property)
	switch property {
	case StoreName:
		s.Name, err = DecodeString(value)
	case StoreKeyPath:
		s.KeyPath, err = DecodeKeyPath(value)
	case StoreAutoIncrement:
		s.AutoIncrement, err = DecodeBool(value)
	case StoreLastVersion:
		s.LastVersion, err = DecodeInt(value)
	case StoreMaxIndexID:
		s.MaxIndexID, err = DecodeInt(value)
	case StoreHasKeyPath:
		var has bool
		if has, err = DecodeBool(value); err == nil && !has && s.KeyPath.Type == StringKeyPath {
			if s.KeyPath.Paths[0] != "" {
				return malformed("object store", "it has a key path and is said to have none")
			}
			s.KeyPath = KeyPath{}
		}
	case StoreKeyGenerator:
		s.KeyGenerator, err = DecodeInt(value)
	}
	return err
}

func (x *Index) add(property byte, value []byte) (err error) {
	x.have.add(property)
	switch property {
	case IndexName:
		x.Name, err = DecodeString(value)
	case IndexUnique:
		x.Unique, err = DecodeBool(value)
	case IndexKeyPath:
		x.KeyPath, err = DecodeKeyPath(value)
	case IndexMultiEntry:
		x.MultiEntry, err = DecodeBool(value)
	}
	return err
}

// Finish sorts the databases by id, and checks all metadata after the last row: ids against the
// greatest one, names against each other, and missing properties. It calls report with each error,
// a base.ErrCorrupt. An error that report returns stops the check and is returned.
func (s *Schema) Finish(report func(error) error) error {
	slices.SortFunc(s.Databases, func(a, b *Database) int { return cmp.Compare(a.ID, b.ID) })
	if s.Version == 0 && len(s.Databases) > 0 {
		if err := report(malformed("metadata", "there is no schema version")); err != nil {
			return err
		}
	}
	if s.MaxDatabaseID > maxCount {
		if err := report(malformed("metadata", "no id is left for a database")); err != nil {
			return err
		}
	}
	for _, d := range s.Databases {
		if d.ID > s.MaxDatabaseID {
			if err := report(malformed("database", "its id %d is above the greatest, %d", d.ID, s.MaxDatabaseID)); err != nil {
				return err
			}
		}
		if err := d.check(report); err != nil {
			return err
		}
	}
	return nil
}

func (d *Database) check(report func(error) error) error {
	where := fmt.Sprintf("metadata of database %d", d.ID)
	if len(d.Stores) > 0 && (!d.have.has(DatabaseVersion) || !d.have.has(DatabaseMaxStoreID)) {
		if err := report(malformed(where, "its version or greatest object store is missing")); err != nil {
			return err
		}
	}
	if !d.have.has(DatabaseBlobNumber) {
		d.NextBlob = MinBlobNumber // as in old data without blobs
	}
	if d.NextBlob < MinBlobNumber {
		if err := report(malformed(where, "its next blob has the number %d", d.NextBlob)); err != nil {
			return err
		}
	}
	if d.NextBlob > maxCount || d.MaxStoreID > maxCount {
		if err := report(malformed(where, "no number is left for a blob or object store")); err != nil {
			return err
		}
	}
	names := map[string]bool{}
	for _, s := range d.Stores {
		if names[s.Name] {
			if err := report(malformed(where, "object store %d has the name of another", s.ID)); err != nil {
				return err
			}
		}
		names[s.Name] = true
		if err := s.check(d, report); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) check(d *Database, report func(error) error) error {
	where := fmt.Sprintf("metadata of object store %d/%d", d.ID, s.ID)
	for n := byte(StoreName); n <= StoreMaxIndexID; n++ {
		if !s.have.has(n) && n != StoreEvictable {
			if err := report(malformed(where, "property %d is missing", n)); err != nil {
				return err
			}
		}
	}
	if s.ID < 1 || s.ID > d.MaxStoreID {
		if err := report(malformed(where, "its id is above the greatest, %d", d.MaxStoreID)); err != nil {
			return err
		}
	}
	if s.LastVersion > maxCount || s.MaxIndexID > maxIndexCount {
		if err := report(malformed(where, "no version is left for a record, or no id for an index")); err != nil {
			return err
		}
	}
	names := map[string]bool{}
	for _, x := range s.Indexes {
		where := fmt.Sprintf("metadata of index %d/%d/%d", d.ID, s.ID, x.ID)
		got := ""
		switch {
		case names[x.Name]:
			got = "it has the name of another"
		case x.ID < MinIndexID || x.ID > s.MaxIndexID || x.ID > maxIndexID:
			got = "its id is above the greatest"
		case !x.have.has(IndexName) || !x.have.has(IndexUnique) || !x.have.has(IndexKeyPath):
			got = "a property is missing"
		case x.KeyPath.Type == NoKeyPath:
			got = "it has no key path"
		}
		names[x.Name] = true
		if got != "" {
			if err := report(malformed(where, "%s", got)); err != nil {
				return err
			}
		}
	}
	return nil
}
