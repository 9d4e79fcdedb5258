package merging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Side is one of the two versions to merge.
type Side uint8

// The sides.
const (
	Left Side = iota
	Right
)

// The rules given to Versions.Report.
const (
	RuleNewest  = "indexeddb"
	RuleDeleted = "indexeddb: object store deleted"
	RuleMoved   = "indexeddb: next number of the key generator"
	RuleUnique  = "indexeddb: unique index"
	RuleRenamed = "indexeddb: name taken"
)

// Versions are the input and the output of a merge.
type Versions struct {
	Base, Left, Right ordered.Reader
	// Result contains the rows of Base, and receives those of the merge.
	Result ordered.Writer
	// Newest returns the side with the latest write to one of the keys. The keys ascend.
	Newest func(ctx context.Context, keys [][]byte) (Side, error)
	// Report is called for each key where a rule decides otherwise than by taking a side.
	Report func(ctx context.Context, key []byte, rule string) error
}

// Group is the set of changed rows of a record, or a single other row.
type Group interface {
	// Changes yields the rows of the group that a side has changed, in key order.
	Changes(ctx context.Context) iter.Seq2[Change, error]
	// Take sets the changed rows for which want returns true to their state on a side.
	Take(ctx context.Context, s Side, want func(key []byte) bool) error
}

// Change is a row that at least one side has changed.
type Change struct {
	Key []byte
	// InBase and In say which versions contain the row, and By which sides have changed it.
	InBase bool
	In, By [2]bool
	// Same is set when both sides have the same row, or both have none.
	Same bool
	// BaseUnknown is set when there are several bases with different versions of the row. InBase is
	// false then.
	BaseUnknown bool
}

// Merge is the state of one merge. It must not be used concurrently.
type Merge struct {
	v     Versions
	sides [2]ordered.Reader
	base  *indexeddb.Schema
	ids   []int64 // of the databases of all versions
	u     *united // nil when the metadata of a side cannot be read; groups are then merged by takeLast
	twice map[string]suspect
	// moved holds the new numbers that this merge assigns to records of a side. followers holds
	// records that a side has already moved.
	moved     map[place]indexeddb.Key
	followers []follower
	moves     map[storeID]*moves // see movesOf
	filled    bool               // indexes that are not plain have the rows of all records
}

// suspect is the index of a key that may occur twice in a unique index.
type suspect struct {
	s *store
	x *index
}

// New begins a merge. Errors: those of the readers and of ctx.
func New(ctx context.Context, v Versions) (*Merge, error) {
	m := &Merge{v: v, sides: [2]ordered.Reader{v.Left, v.Right}, twice: map[string]suspect{}, moved: map[place]indexeddb.Key{}, moves: map[storeID]*moves{}}
	var schemas [2]*indexeddb.Schema
	for side, r := range m.sides {
		s, err := indexeddb.PageSchema(ctx, r, func(err error) error { return err })
		if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
			return m, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the metadata of a side: %w", err)
		}
		schemas[side] = s
	}
	// A base of several commits lacks rows on which these differ.
	var err error
	if m.base, err = indexeddb.PageSchema(ctx, v.Base, func(error) error { return nil }); err != nil {
		return nil, fmt.Errorf("read the metadata of the base: %w", err)
	}
	for _, s := range []*indexeddb.Schema{m.base, schemas[Left], schemas[Right]} {
		for _, d := range s.Databases {
			m.ids = append(m.ids, d.ID)
		}
	}
	slices.Sort(m.ids)
	m.ids = slices.Compact(m.ids)
	m.u = unite(m.base, schemas[Left], schemas[Right])
	return m, nil
}

// GroupOf returns the name of the group of a key. Groups of metadata sort before those of records.
func GroupOf(key []byte) []byte {
	name, err := indexeddb.RowGroup(key)
	if err != nil {
		return key
	}
	return name
}

// group is the group being merged.
type group struct {
	Group
	m       *Merge
	s       *store
	record  indexeddb.Row // its row; without primary key when the key is long
	name    []byte        // the page key of record
	part    []byte        // of the primary key
	changes []changed
	// from marks the sides whose record is taken: both when they have the same.
	from [2]bool
}

// changed is a changed row with its decoded key.
type changed struct {
	Change
	row indexeddb.Row
}

// primary reports whether the row is part of the record itself.
func (c *changed) primary() bool {
	return c.row.Kind != indexeddb.KindIndexRow && c.row.Kind != indexeddb.KindMoved
}

// Group merges a group. Errors: base.ErrCorrupt, those of the readers, of Result, of g and of ctx.
func (m *Merge) Group(ctx context.Context, name []byte, g Group) error {
	r, err := indexeddb.DecodePageKey(name)
	if m.u == nil || err != nil {
		return m.takeLast(ctx, g)
	}
	if r.Store == 0 || r.Kind < indexeddb.KindRecord {
		if described(r) {
			return nil // Finish writes it
		}
		return m.takeLast(ctx, g)
	}
	id := storeID{r.Database, r.Store}
	w := &group{Group: g, m: m, record: r, name: name, s: m.u.stores[id]}
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		row, err := indexeddb.DecodePageKey(c.Key)
		if err != nil {
			return m.takeLast(ctx, g)
		}
		w.changes = append(w.changes, changed{c, row})
	}
	if w.s == nil || !w.s.plain {
		return w.dropped(ctx, id)
	}
	w.part = name[len(indexeddb.PageFamily(r)):]
	if err := w.merge(ctx); err != nil {
		return fmt.Errorf("merge %s: %w", r.Describe(), err)
	}
	return nil
}

// described reports whether Schema describes this row of metadata.
func described(r indexeddb.Row) bool {
	switch r.Kind {
	case indexeddb.KindGlobal:
		return r.Property <= indexeddb.GlobalDataVersion
	case indexeddb.KindDatabase:
		return r.Property >= indexeddb.DatabaseMaxStoreID
	case indexeddb.KindDatabaseName, indexeddb.KindStore, indexeddb.KindIndex, indexeddb.KindStoreName:
		return true
	}
	return false
}

// takeLast takes the group from the side that wrote it last.
func (m *Merge) takeLast(ctx context.Context, g Group) error {
	var keys [][]byte
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		keys = append(keys, bytes.Clone(c.Key))
	}
	side, err := m.v.Newest(ctx, keys)
	if err != nil {
		return err
	}
	return g.Take(ctx, side, func([]byte) bool { return true })
}

// dropped removes a record of an object store that the result lacks or that Finish fills. When one
// side changed the record and the other deleted the object store, dropped reports it.
func (w *group) dropped(ctx context.Context, id storeID) error {
	for _, c := range w.changes {
		if err := w.m.v.Result.Delete(ctx, c.Key); err != nil {
			return err
		}
	}
	for _, c := range w.changes {
		for side, kept := range w.m.u.kept {
			if c.primary() && c.By[side] && c.In[side] && !kept[id] {
				return w.m.v.Report(ctx, w.name, RuleDeleted)
			}
		}
	}
	return nil
}

// merge merges a record of a plain object store.
func (w *group) merge(ctx context.Context) error {
	conflict, err := w.decide(ctx)
	if err != nil {
		return err
	}
	side := Left
	if !w.from[Left] {
		side = Right
	}
	err = w.Take(ctx, side, func(key []byte) bool {
		r, err := indexeddb.DecodePageKey(key)
		return err == nil && r.Kind != indexeddb.KindIndexRow && r.Kind != indexeddb.KindMoved
	})
	if err == nil {
		err = w.notes(ctx)
	}
	if err != nil {
		return err
	}
	if conflict {
		if err := w.m.stamp(ctx, w.s, w.part); err != nil {
			return err
		}
	}
	if err := w.indexRows(ctx); err != nil {
		return err
	}
	return w.m.derive(ctx, w.s, w.part, func(x *index) bool {
		return x.plain && !(w.from[Left] && x.at[Left] != 0) && !(w.from[Right] && x.at[Right] != 0)
	})
}

// decide sets the side to take the record from, and reports whether the record is in conflict.
func (w *group) decide(ctx context.Context) (conflict bool, err error) {
	var by, has [2]bool
	same, known, unknown, inBase := true, false, false, false
	var keys [][]byte
	for _, c := range w.changes {
		if !c.primary() {
			continue
		}
		for side := range by {
			by[side] = by[side] || c.By[side]
		}
		same = same && c.Same
		keys = append(keys, c.Key)
		if c.row.Kind == indexeddb.KindRecord {
			known, has, unknown, inBase = true, c.In, c.BaseUnknown, c.InBase
		}
	}
	switch {
	case same:
		w.from = [2]bool{true, true}
		return false, nil
	case !by[Left] || !by[Right]:
		w.from = by
		if known && !inBase && !unknown && has != [2]bool{} && w.generated() {
			err = w.again(ctx) // the other side has deleted its record with this number
		}
		return false, err
	}
	apart := !inBase && !unknown && w.generated() // two different records
	if known && (inBase || unknown) {
		side, moved, err := w.movedAway(ctx, unknown)
		if err == nil && !moved {
			side, moved, apart, err = w.movedElse(ctx, unknown)
		}
		if err != nil || moved {
			w.from[side] = true
			return false, err
		}
		if !apart {
			if apart, err = w.shared(ctx); err != nil {
				return false, err
			}
		}
	}
	if known && has[Left] != has[Right] { // deleted on one side and changed on the other
		w.from = has
		return false, nil
	}
	side, err := w.m.v.Newest(ctx, keys)
	if err != nil {
		return false, err
	}
	if known && has[Left] && apart {
		moved, err := w.m.move(ctx, w.s, w.record.Primary, side)
		if err == nil && !moved {
			if moved, err = w.m.move(ctx, w.s, w.record.Primary, 1-side); moved {
				side = 1 - side
			}
		}
		if err != nil || moved {
			w.from[1-side] = true
			return false, err
		}
	}
	w.from[side] = true
	return true, nil
}

// generated reports whether the key generators of both sides may have given out the key.
func (w *group) generated() bool { return w.s.generates(w.record.Primary) }

func (s *store) generates(k indexeddb.Key) bool {
	if !s.meta.AutoIncrement || k.IsZero() || k.Type() != indexeddb.KeyNumber || s.sides[Left] == nil || s.sides[Right] == nil {
		return false
	}
	n := k.Number()
	return n == math.Floor(n) && n >= 1 && n < float64(s.sides[Left].KeyGenerator) && n < float64(s.sides[Right].KeyGenerator)
}

// stamp gives the merged record a version above the versions on both sides.
func (m *Merge) stamp(ctx context.Context, s *store, part []byte) error {
	rec, err := read(ctx, m.v.Result, s.storeID, part)
	if errors.Is(err, base.ErrCorrupt) {
		return nil // Check reports it
	}
	if err != nil || rec == nil {
		return err
	}
	s.meta.LastVersion++
	key, page := indexeddb.PageRow(rec.row, indexeddb.AppendRecord(nil, s.meta.LastVersion, rec.script))
	return m.v.Result.Put(ctx, key, page)
}

// indexRows sets the changed index rows to their state on the side of the record, or on both.
func (w *group) indexRows(ctx context.Context) error {
	for _, c := range w.changes {
		if c.row.Kind != indexeddb.KindIndexRow {
			continue
		}
		x := w.s.index(c.row.Index)
		if x == nil || !x.plain { // Finish fills other indexes
			if err := w.m.v.Result.Delete(ctx, c.Key); err != nil {
				return err
			}
			continue
		}
		present, from := false, Left
		for side := range w.from {
			// When both sides have the same record, the side that changed the row counts: the other
			// side did not have the index, or has left the row out.
			if w.from[side] && x.at[side] != 0 && c.In[side] && (c.By[side] || !c.By[1-side] || !w.from[1-side]) {
				present, from = true, Side(side)
			}
		}
		switch {
		case present && !c.InBase:
			value, err := w.m.sides[from].Get(ctx, c.Key)
			if err == nil {
				err = w.m.putIndexRow(ctx, w.s, x, c.Key, value, w.part)
			}
			if err != nil {
				return err
			}
		case !present && c.InBase:
			if err := w.m.v.Result.Delete(ctx, c.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// putIndexRow writes an index row of a record. If the key now occurs twice in a unique index, it
// notes the key in m.twice.
func (m *Merge) putIndexRow(ctx context.Context, s *store, x *index, key, value, part []byte) error {
	if err := m.v.Result.Put(ctx, key, value); err != nil {
		return err
	}
	if !x.meta.Unique {
		return nil
	}
	prefix := key[:len(key)-len(part)]
	it := m.v.Result.Iter(ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix), KeysOnly: true})
	n := 0
	for n < 2 && it.Next(ctx) {
		n++
	}
	if n > 1 {
		m.twice[string(prefix)] = suspect{s, x}
	}
	return errors.Join(it.Err(), it.Close())
}
