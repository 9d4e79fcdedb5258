package merging

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Finish writes everything that spans groups. Call it after all groups. Errors: as Group.
func (m *Merge) Finish(ctx context.Context) error {
	if m.u == nil {
		return nil
	}
	for _, step := range []func(context.Context) error{m.clear, m.fill, m.follow, m.unique, m.metadata} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("merge object stores: %w", err)
		}
	}
	return nil
}

// stores returns the object stores of the result in a fixed order, so that all devices get the same
// result.
func (m *Merge) stores() []*store {
	return slices.SortedFunc(maps.Values(m.u.stores), func(a, b *store) int {
		return cmp.Or(cmp.Compare(a.database, b.database), cmp.Compare(a.store, b.store))
	})
}

// clear removes the base rows of object stores and indexes that the result lacks or redefines. The
// groups do not cover all these rows: a row is unchanged when another object store has the same.
func (m *Merge) clear(ctx context.Context) error {
	remove := func(prefix []byte) error { return m.v.Result.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix)) }
	for _, d := range m.base.Databases {
		for _, s := range d.Stores {
			now := m.u.stores[storeID{d.ID, s.ID}]
			if now == nil || !now.plain {
				if err := remove(indexeddb.PageStore(d.ID, s.ID)); err != nil {
					return err
				}
				continue
			}
			for _, x := range s.Indexes {
				if y := now.index(x.ID); y == nil || !y.plain {
					if err := remove(indexeddb.PageFamily(indexeddb.Row{Kind: indexeddb.KindIndexRow, Database: d.ID, Store: s.ID, Index: x.ID})); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// fill writes object stores and indexes with a number that differs from their number on a side.
func (m *Merge) fill(ctx context.Context) error {
	for _, s := range m.stores() {
		if !s.plain {
			if err := m.fillStore(ctx, s); err != nil {
				return err
			}
			continue
		}
		again := func(x *index) bool { return !x.plain }
		if !slices.ContainsFunc(s.indexes, again) {
			continue
		}
		w := walkRecords(m.v.Result, s.storeID)
		for w.next(ctx) {
			if err := m.derive(ctx, s, w.part, again); err != nil {
				return errors.Join(err, w.it.Close())
			}
		}
		if err := w.close(); err != nil {
			return err
		}
	}
	return nil
}

// recordWalk iterates over the primary keys of an object store.
type recordWalk struct {
	it     ordered.Iter
	prefix int
	part   []byte // nil at the end
}

func walkRecords(r ordered.Reader, id storeID) *recordWalk {
	prefix := id.family(indexeddb.KindRecord)
	return &recordWalk{it: r.Iter(ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix), KeysOnly: true}), prefix: len(prefix)}
}

func (w *recordWalk) next(ctx context.Context) bool {
	w.part = nil
	if w.it.Next(ctx) {
		w.part = bytes.Clone(w.it.Key()[w.prefix:])
	}
	return w.part != nil
}

func (w *recordWalk) close() error { return errors.Join(w.it.Err(), w.it.Close()) }

// fillStore writes a new object store whose rows have other keys on a side.
func (m *Merge) fillStore(ctx context.Context, s *store) error {
	var walks [2]*recordWalk
	for side, at := range s.at {
		if s.sides[side] == nil {
			at = storeID{} // matches no records
		}
		walks[side] = walkRecords(m.sides[side], at)
		walks[side].next(ctx)
	}
	err := m.fillRecords(ctx, s, walks)
	return errors.Join(err, walks[Left].close(), walks[Right].close())
}

func (m *Merge) fillRecords(ctx context.Context, s *store, walks [2]*recordWalk) error {
	for walks[Left].part != nil || walks[Right].part != nil {
		l, r := walks[Left].part, walks[Right].part
		order := bytes.Compare(l, r)
		switch {
		case l == nil:
			order = 1
		case r == nil:
			order = -1
		}
		var err error
		switch {
		case order < 0:
			err = m.fillRecord(ctx, s, l, Left)
		case order > 0:
			err = m.fillRecord(ctx, s, r, Right)
		default:
			err = m.fillConflict(ctx, s, l)
		}
		if err != nil {
			return err
		}
		if order <= 0 {
			walks[Left].next(ctx)
		}
		if order >= 0 {
			walks[Right].next(ctx)
		}
	}
	return nil
}

// fillRecord writes a record from one side. A damaged record is copied as it is, for Check.
func (m *Merge) fillRecord(ctx context.Context, s *store, part []byte, side Side) error {
	rec, err := read(ctx, m.sides[side], s.at[side], part)
	switch {
	case errors.Is(err, base.ErrCorrupt):
		return errors.Join(
			m.copy(ctx, s.key(indexeddb.KindRecord, part), side, s.at[side].key(indexeddb.KindRecord, part)),
			m.copy(ctx, s.key(indexeddb.KindExternal, part), side, s.at[side].key(indexeddb.KindExternal, part)))
	case err == nil && rec != nil:
		err = m.write(ctx, s, rec, side, part)
	}
	if err != nil {
		return err
	}
	return m.derive(ctx, s, part, func(*index) bool { return true })
}

// fillConflict merges two records that both sides have created under one key.
func (m *Merge) fillConflict(ctx context.Context, s *store, part []byte) error {
	var recs [2]*record
	var keys [][]byte
	for side := range recs {
		rec, err := read(ctx, m.sides[side], s.at[side], part)
		switch {
		case err == nil:
			recs[side] = rec
		case !errors.Is(err, base.ErrCorrupt):
			return err
		}
		keys = append(keys, s.at[side].key(indexeddb.KindRecord, part))
	}
	slices.SortFunc(keys, bytes.Compare)
	side, err := m.v.Newest(ctx, slices.CompactFunc(keys, bytes.Equal))
	if err != nil {
		return err
	}
	readable := recs[Left] != nil && recs[Right] != nil
	same := readable && bytes.Equal(recs[Left].script, recs[Right].script) && len(recs[Left].objects) == 0 && len(recs[Right].objects) == 0
	if readable && !same && s.generates(recs[Left].row.Primary) {
		for _, later := range []Side{side, 1 - side} {
			moved, err := m.move(ctx, s, recs[Left].row.Primary, later)
			if err != nil {
				return err
			}
			if moved {
				return m.fillRecord(ctx, s, part, 1-later)
			}
		}
	}
	if err := m.fillRecord(ctx, s, part, side); err != nil || same {
		return err
	}
	if err := m.stamp(ctx, s, part); err != nil {
		return err
	}
	return m.v.Report(ctx, s.key(indexeddb.KindRecord, part), RuleNewest)
}

// unique removes records from unique indexes in which their keys occur twice.
func (m *Merge) unique(ctx context.Context) error {
	for _, prefix := range slices.Sorted(maps.Keys(m.twice)) {
		if err := m.once(ctx, []byte(prefix), m.twice[prefix]); err != nil {
			return err
		}
	}
	return nil
}

// candidate is one of several rows with the same key in a unique index.
type candidate struct {
	key    []byte
	inBase bool
	in     [2]bool
}

// once keeps one row of a key: the row in the base, else the first one written, else the one with
// the least primary key.
func (m *Merge) once(ctx context.Context, prefix []byte, of suspect) error {
	var all []candidate
	it := m.v.Result.Iter(ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix), KeysOnly: true})
	for it.Next(ctx) {
		all = append(all, candidate{key: bytes.Clone(it.Key())})
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil || len(all) < 2 {
		return err
	}
	family := func(id storeID, index int64) []byte {
		return indexeddb.PageFamily(indexeddb.Row{Kind: indexeddb.KindIndexRow, Database: id.database, Store: id.store, Index: index})
	}
	own := len(family(of.s.storeID, of.x.meta.ID))
	var keys [][]byte
	for i := range all {
		c := &all[i]
		var err error
		if of.s.base != nil && of.s.base.Index(of.x.meta.ID) != nil {
			if c.inBase, err = exists(ctx, m.v.Base, c.key); err != nil {
				return err
			}
		}
		for side, at := range of.x.at {
			if at == 0 {
				continue
			}
			key := append(family(of.s.at[side], at), c.key[own:]...)
			if c.in[side], err = exists(ctx, m.sides[side], key); err != nil {
				return err
			}
			if c.in[side] && !c.inBase {
				keys = append(keys, key)
			}
		}
	}
	later := Left
	if len(keys) > 0 {
		slices.SortFunc(keys, bytes.Compare)
		var err error
		if later, err = m.v.Newest(ctx, slices.CompactFunc(keys, bytes.Equal)); err != nil {
			return err
		}
	}
	rank := func(c candidate) int {
		switch {
		case c.inBase:
			return 0
		case c.in[1-later]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(rank(a), rank(b)) })
	for _, c := range all[1:] {
		if err := m.v.Result.Delete(ctx, c.key); err != nil {
			return err
		}
		if err := m.v.Report(ctx, c.key, RuleUnique); err != nil {
			return err
		}
	}
	return nil
}

func exists(ctx context.Context, r ordered.Reader, key []byte) (bool, error) {
	_, err := r.Get(ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// metadata writes the merged metadata.
func (m *Merge) metadata(ctx context.Context) error {
	want := map[string][]byte{}
	if m.u.schema.Version > 0 {
		for r, value := range m.u.schema.Rows() {
			key, page := indexeddb.PageRow(r, value)
			want[string(key)] = page
		}
	}
	families := []indexeddb.Row{{Kind: indexeddb.KindGlobal}}
	for _, id := range m.ids {
		families = append(families, indexeddb.Row{Kind: indexeddb.KindDatabase, Database: id})
	}
	for _, family := range families {
		var gone [][]byte
		deleted := family.Database > 0 && m.u.schema.Database(family.Database) == nil
		for row, err := range ordered.Rows(ctx, m.v.Result, ordered.Prefix(indexeddb.PageFamily(family))) {
			if err != nil {
				return err
			}
			page, ok := want[string(row.Key)]
			r, err := indexeddb.DecodePageKey(row.Key)
			switch {
			case ok && bytes.Equal(page, row.Value):
				delete(want, string(row.Key))
			case !ok && err == nil && (described(r) || deleted):
				gone = append(gone, row.Key)
			}
		}
		for _, key := range gone {
			if err := m.v.Result.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if err := m.v.Result.Put(ctx, []byte(key), want[key]); err != nil {
			return err
		}
	}
	for _, r := range m.u.renamed {
		key, _ := indexeddb.PageKey(nil, r)
		if err := m.v.Report(ctx, key, RuleRenamed); err != nil {
			return err
		}
	}
	return nil
}
