package merging

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
)

// storeID identifies an object store of a version.
type storeID struct{ database, store int64 }

// store is an object store of the result.
type store struct {
	storeID
	meta *indexeddb.Store
	// at is its id on the left and right, or zero if absent. sides is its metadata there.
	at    [2]storeID
	sides [2]*indexeddb.Store
	// base is its metadata in the base, nil for a new store.
	base *indexeddb.Store
	// plain is set when all versions have it under the same number, and the base has no other one
	// there. Then its groups are merged one by one.
	plain   bool
	indexes []*index
}

// index is an index of the result.
type index struct {
	meta *indexeddb.Index
	// at is its number on the left and right, or 0 if absent.
	at [2]int64
	// plain is as in store.
	plain bool
}

// index returns the index with a number in the result.
func (s *store) index(id int64) *index {
	for _, x := range s.indexes {
		if x.meta.ID == id {
			return x
		}
	}
	return nil
}

// united is the metadata of the result.
type united struct {
	schema *indexeddb.Schema
	stores map[storeID]*store
	// kept lists the object stores of each side that are in the result.
	kept [2]map[storeID]bool
	// renamed holds the rows of names that were not unique.
	renamed []indexeddb.Row
}

// pair is a database, object store or index with its versions.
type pair[T comparable] struct {
	base  T
	sides [2]T
	id    int64 // in the result
	plain bool
}

// kind defines the identity of databases, object stores or indexes. T is a pointer.
type kind[T comparable] struct {
	id func(T) int64
	// same compares two things with one number, and equal two new things.
	same, equal func(a, b T) bool
	name        func(T) string
	definition  func(T) []byte // the immutable part
}

// match pairs the things of the versions and assigns numbers; additional numbers are above last. It
// omits things that a side has deleted. It returns the pairs and the greatest number.
func (k kind[T]) match(base []T, sides [2][]T, last int64) ([]*pair[T], int64) {
	var none T
	find := func(all []T, x T, is func(a, b T) bool) T {
		for _, y := range all {
			if is(x, y) {
				return y
			}
		}
		return none
	}
	known := func(a, b T) bool { return k.id(a) == k.id(b) && k.same(a, b) }
	var all, added []*pair[T]
	for side, things := range sides {
		others := sides[1-side]
		for _, x := range things {
			b := find(base, x, known)
			if b != none {
				if y := find(others, x, known); y != none && side == 0 {
					all = append(all, &pair[T]{base: b, sides: [2]T{x, y}, id: k.id(x), plain: true})
				}
				continue
			}
			y := find(others, x, func(a, b T) bool { return k.equal(a, b) && find(base, b, known) == none })
			if side == 1 && y != none {
				continue // found from the left
			}
			p := &pair[T]{}
			p.sides[side], p.sides[1-side] = x, y
			added = append(added, p)
		}
	}
	taken := map[int64]bool{}
	for _, p := range all {
		taken[p.id] = true
	}
	wanted := func(p *pair[T]) (ids []int64) {
		for _, x := range p.sides {
			if x != none {
				ids = append(ids, k.id(x))
			}
		}
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	agreed := func(p *pair[T]) int { // those with one number on both sides sort first
		if p.sides[0] != none && p.sides[1] != none && len(wanted(p)) == 1 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(added, func(a, b *pair[T]) int {
		x, y := first(a.sides), first(b.sides)
		return cmp.Or(cmp.Compare(agreed(a), agreed(b)), cmp.Compare(k.name(x), k.name(y)), bytes.Compare(k.definition(x), k.definition(y)), slices.Compare(wanted(a), wanted(b)))
	})
	for _, p := range added {
		ids := wanted(p)
		for _, id := range ids {
			if p.id == 0 && !taken[id] {
				p.id = id
			}
		}
		if p.id == 0 {
			last++
			p.id = last
		}
		taken[p.id] = true
		inBase := slices.ContainsFunc(base, func(b T) bool { return k.id(b) == p.id })
		p.plain = len(ids) == 1 && ids[0] == p.id && !inBase
		for side, things := range sides { // and no other thing of a side has the number
			p.plain = p.plain && !slices.ContainsFunc(things, func(x T) bool { return k.id(x) == p.id && x != p.sides[side] })
		}
		all = append(all, p)
	}
	for id := range taken {
		last = max(last, id)
	}
	slices.SortFunc(all, func(a, b *pair[T]) int { return cmp.Compare(a.id, b.id) })
	return all, last
}

var databases = kind[*indexeddb.Database]{
	id:    func(d *indexeddb.Database) int64 { return d.ID },
	same:  sameDatabase,
	equal: sameDatabase,
	name:  func(d *indexeddb.Database) string { return d.Origin + "\x00" + d.Name },

	definition: func(*indexeddb.Database) []byte { return nil },
}

func sameDatabase(a, b *indexeddb.Database) bool { return a.Origin == b.Origin && a.Name == b.Name }

var stores = kind[*indexeddb.Store]{
	id:    func(s *indexeddb.Store) int64 { return s.ID },
	same:  sameStore,
	equal: func(a, b *indexeddb.Store) bool { return a.Name == b.Name && sameStore(a, b) },
	name:  func(s *indexeddb.Store) string { return s.Name },

	definition: func(s *indexeddb.Store) []byte { return s.KeyPath.Append(indexeddb.AppendBool(nil, s.AutoIncrement)) },
}

func sameStore(a, b *indexeddb.Store) bool {
	return a.AutoIncrement == b.AutoIncrement && a.KeyPath.Equal(b.KeyPath)
}

var indexes = kind[*indexeddb.Index]{
	id:    func(x *indexeddb.Index) int64 { return x.ID },
	same:  sameIndex,
	equal: func(a, b *indexeddb.Index) bool { return a.Name == b.Name && sameIndex(a, b) },
	name:  func(x *indexeddb.Index) string { return x.Name },

	definition: func(x *indexeddb.Index) []byte {
		return x.KeyPath.Append(indexeddb.AppendBool(indexeddb.AppendBool(nil, x.Unique), x.MultiEntry))
	},
}

func sameIndex(a, b *indexeddb.Index) bool {
	return a.Unique == b.Unique && a.MultiEntry == b.MultiEntry && a.KeyPath.Equal(b.KeyPath)
}

// unite merges the metadata.
func unite(base, left, right *indexeddb.Schema) *united {
	u := &united{
		schema: &indexeddb.Schema{Version: max(left.Version, right.Version)},
		stores: map[storeID]*store{}, kept: [2]map[storeID]bool{{}, {}},
	}
	const low = 1<<32 - 1
	l, r := left.DataVersion, right.DataVersion
	u.schema.DataVersion = indexeddb.DataVersion(max(l>>32, r>>32), max(l&low, r&low))
	var all []*pair[*indexeddb.Database]
	all, u.schema.MaxDatabaseID = databases.match(base.Databases, [2][]*indexeddb.Database{left.Databases, right.Databases},
		max(base.MaxDatabaseID, left.MaxDatabaseID, right.MaxDatabaseID))
	for _, p := range all {
		u.schema.Databases = append(u.schema.Databases, u.database(p))
	}
	if len(all) == 0 && (left.Version == 0 || right.Version == 0) {
		u.schema.Version = 0 // a side has no rows of IndexedDB any more
	}
	return u
}

// first returns the left metadata, or the right if the left side has none.
func first[T comparable](sides [2]T) T {
	var none T
	if sides[0] != none {
		return sides[0]
	}
	return sides[1]
}

func (u *united) database(p *pair[*indexeddb.Database]) *indexeddb.Database {
	one := first(p.sides)
	d := &indexeddb.Database{ID: p.id, Origin: one.Origin, Name: one.Name}
	var lists [2][]*indexeddb.Store
	var versions [2]int64
	for side, s := range p.sides {
		if s != nil {
			d.Version, d.NextBlob, d.MaxStoreID = max(d.Version, s.Version), max(d.NextBlob, s.NextBlob), max(d.MaxStoreID, s.MaxStoreID)
			lists[side], versions[side] = s.Stores, s.Version
		}
	}
	var old []*indexeddb.Store
	if p.base != nil {
		old, d.MaxStoreID = p.base.Stores, max(d.MaxStoreID, p.base.MaxStoreID)
	}
	var all []*pair[*indexeddb.Store]
	all, d.MaxStoreID = stores.match(old, lists, d.MaxStoreID)
	var names names
	for _, sp := range all {
		s := u.store(p, sp, versions)
		d.Stores = append(d.Stores, s.meta)
		u.stores[s.storeID] = s
		names.add(&s.meta.Name, sp.base != nil, versionOf(sp.sides, versions), stores.definition(s.meta), indexeddb.Row{Kind: indexeddb.KindStore, Database: d.ID, Store: s.store})
	}
	u.renamed = append(u.renamed, names.settle()...)
	return d
}

// versionOf returns the greatest version of the database on the sides that contain a thing.
func versionOf[T comparable](sides [2]T, versions [2]int64) (v int64) {
	var none T
	for side, x := range sides {
		if x != none {
			v = max(v, versions[side])
		}
	}
	return v
}

func (u *united) store(d *pair[*indexeddb.Database], p *pair[*indexeddb.Store], versions [2]int64) *store {
	s := &store{storeID: storeID{d.id, p.id}, sides: p.sides, base: p.base, plain: d.plain && p.plain}
	one := first(p.sides)
	meta := &indexeddb.Store{ID: p.id, KeyPath: one.KeyPath, AutoIncrement: one.AutoIncrement, MaxIndexID: indexeddb.MinIndexID}
	s.meta = meta
	meta.Name = mergedName(p.base, p.sides, versions, stores.name)
	var lists [2][]*indexeddb.Index
	for side, x := range p.sides {
		if x == nil {
			continue
		}
		meta.LastVersion, meta.KeyGenerator = max(meta.LastVersion, x.LastVersion), max(meta.KeyGenerator, x.KeyGenerator)
		meta.MaxIndexID = max(meta.MaxIndexID, x.MaxIndexID)
		lists[side] = x.Indexes
		s.at[side] = storeID{d.sides[side].ID, x.ID}
		u.kept[side][s.at[side]] = true
	}
	var old []*indexeddb.Index
	if p.base != nil {
		old, meta.MaxIndexID = p.base.Indexes, max(meta.MaxIndexID, p.base.MaxIndexID)
	}
	var all []*pair[*indexeddb.Index]
	all, meta.MaxIndexID = indexes.match(old, lists, meta.MaxIndexID)
	var names names
	for _, xp := range all {
		one := first(xp.sides)
		x := &index{plain: xp.plain}
		x.meta = &indexeddb.Index{ID: xp.id, KeyPath: one.KeyPath, Unique: one.Unique, MultiEntry: one.MultiEntry, Name: mergedName(xp.base, xp.sides, versions, indexes.name)}
		for side, y := range xp.sides {
			if y != nil {
				x.at[side] = y.ID
			}
		}
		s.indexes = append(s.indexes, x)
		meta.Indexes = append(meta.Indexes, x.meta)
		names.add(&x.meta.Name, xp.base != nil, versionOf(xp.sides, versions), indexes.definition(x.meta), indexeddb.Row{Kind: indexeddb.KindIndex, Database: d.id, Store: p.id, Index: xp.id})
	}
	u.renamed = append(u.renamed, names.settle()...)
	return s
}

// mergedName returns the name of a thing that may have been renamed. If both sides renamed it, the
// greater version of the database decides.
func mergedName[T comparable](old T, sides [2]T, versions [2]int64, name func(T) string) string {
	var none T
	if sides[0] == none || sides[1] == none {
		return name(first(sides))
	}
	l, r := name(sides[0]), name(sides[1])
	switch {
	case old != none && name(old) == l:
		return r
	case old != none && name(old) == r, versions[0] > versions[1]:
		return l
	case versions[0] < versions[1]:
		return r
	}
	return min(l, r)
}

// names makes names unique.
type names struct{ all []naming }

type naming struct {
	name       *string
	known      bool
	version    int64
	definition []byte
	row        indexeddb.Row
}

func (n *names) add(name *string, known bool, version int64, definition []byte, row indexeddb.Row) {
	n.all = append(n.all, naming{name, known, version, definition, row})
}

// settle changes duplicate names, and returns the rows of the changed ones.
func (n *names) settle() (renamed []indexeddb.Row) {
	rank := func(known bool) int {
		if known {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(n.all, func(a, b naming) int {
		return cmp.Or(cmp.Compare(rank(a.known), rank(b.known)), cmp.Compare(b.version, a.version), bytes.Compare(a.definition, b.definition))
	})
	wanted, taken := map[string]bool{}, map[string]bool{}
	for _, x := range n.all {
		wanted[*x.name] = true
	}
	for _, x := range n.all {
		name := *x.name
		for i := 2; taken[name]; i++ {
			if again := fmt.Sprintf("%s %d", *x.name, i); !wanted[again] {
				name = again
			}
		}
		if name != *x.name {
			*x.name = name
			renamed = append(renamed, x.row)
		}
		taken[name] = true
	}
	return renamed
}
