package merging

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// family returns the common prefix of the keys of one kind of rows in an object store.
func (id storeID) family(k indexeddb.Kind) []byte {
	return indexeddb.PageFamily(indexeddb.Row{Kind: k, Database: id.database, Store: id.store})
}

// key returns the row key of the record with the primary key part.
func (id storeID) key(k indexeddb.Kind, part []byte) []byte { return append(id.family(k), part...) }

func (id storeID) contentKey(part []byte, position int) []byte {
	return indexeddb.AppendPageUint(id.key(indexeddb.KindContent, part), int64(position))
}

// record is a record of one version.
type record struct {
	row     indexeddb.Row
	version int64
	script  []byte // the serialized value
	objects []indexeddb.ExternalObject
	// value includes the key (Inject). It is nil when it cannot be decoded.
	value value.Value
	// own is set when the stored value contains the key.
	own bool
}

// read reads a record without decoding its value. It returns nil when there is none.
func read(ctx context.Context, r ordered.Reader, id storeID, part []byte) (*record, error) {
	key := id.key(indexeddb.KindRecord, part)
	page, err := r.Get(ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := &record{}
	var raw []byte
	if out.row, raw, err = indexeddb.DecodePageRow(key, page); err != nil {
		return nil, err
	}
	if out.version, out.script, err = indexeddb.DecodeRecord(raw); err != nil {
		return nil, err
	}
	out.objects, err = indexeddb.PageObjects(ctx, r, id.key(indexeddb.KindExternal, part))
	return out, err
}

// decode decodes the value of a record.
func (rec *record) decode(ctx context.Context, r ordered.Reader, id storeID, part []byte, s *indexeddb.Store) error {
	v, err := value.Decode(rec.script)
	if w, ok := v.(*value.Wrapped); err == nil && ok {
		var content []byte
		if content, err = r.Get(ctx, id.contentKey(part, w.Index)); errors.Is(err, base.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		v, err = value.Decode(content)
	}
	if err != nil {
		return nil // cannot be decoded: the value stays as it is
	}
	if s.Injects() {
		path := s.KeyPath.Paths[0]
		_, rec.own = indexeddb.At(v, path, rec.objects)
		if !rec.own {
			if v, ok := indexeddb.Inject(v, path, rec.row.Primary); ok {
				rec.value = v
			}
			return nil
		}
	}
	rec.value = v
	return nil
}

// derive writes the index rows of a record in the result, for the indexes for which want returns
// true.
func (m *Merge) derive(ctx context.Context, s *store, part []byte, want func(*index) bool) error {
	if !slices.ContainsFunc(s.indexes, want) {
		return nil
	}
	rec, err := read(ctx, m.v.Result, s.storeID, part)
	if errors.Is(err, base.ErrCorrupt) {
		return nil // Check reports it
	}
	if err != nil || rec == nil {
		return err
	}
	if err := rec.decode(ctx, m.v.Result, s.storeID, part, s.meta); err != nil {
		return err
	}
	if rec.value == nil {
		return nil
	}
	for _, x := range s.indexes {
		if !want(x) {
			continue
		}
		for _, k := range x.meta.Keys(rec.value, rec.objects) {
			key, value := indexeddb.PageRow(indexeddb.Row{
				Kind: indexeddb.KindIndexRow, Database: s.database, Store: s.store, Index: x.meta.ID, Key: k, Primary: rec.row.Primary,
			}, nil)
			if err := m.putIndexRow(ctx, s, x, key, value, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastKey is the greatest key from a generator.
const lastKey = 1 << 53

// move gives a record of a side the next number of the key generator, and writes it with all its
// rows. It returns false when the generator is exhausted, or when the value contains the key and
// cannot be changed.
func (m *Merge) move(ctx context.Context, s *store, primary indexeddb.Key, side Side) (bool, error) {
	if s.meta.KeyGenerator > lastKey {
		return false, nil
	}
	next, err := indexeddb.NumberKey(float64(s.meta.KeyGenerator))
	if err != nil {
		return false, err
	}
	moved, err := m.moveTo(ctx, s, primary, side, next)
	if moved {
		s.meta.KeyGenerator++
	}
	return moved, err
}

// moveTo is move with a given free number.
func (m *Merge) moveTo(ctx context.Context, s *store, primary indexeddb.Key, side Side, next indexeddb.Key) (bool, error) {
	part := primary.AppendPagePart(nil)
	rec, err := read(ctx, m.sides[side], s.at[side], part)
	if errors.Is(err, base.ErrCorrupt) {
		return false, nil
	}
	if err != nil || rec == nil {
		return false, err
	}
	if done, err := rec.renumber(ctx, m.sides[side], s.at[side], part, s.meta, next); err != nil || !done {
		return false, err
	}
	row, err := m.sides[side].Get(ctx, s.at[side].key(indexeddb.KindRecord, part))
	if err == nil {
		err = m.leaveNote(ctx, s, primary, int64(next.Number()), row)
	}
	if err != nil {
		return false, err
	}
	s.meta.LastVersion++
	rec.version = s.meta.LastVersion
	if err := m.write(ctx, s, rec, side, part); err != nil {
		return false, err
	}
	m.moved[place{s.storeID, side, primary}] = next
	to := next.AppendPagePart(nil)
	// Before follow, fill writes indexes that are not plain for all records.
	if err := m.derive(ctx, s, to, func(x *index) bool { return x.plain || !s.plain || m.filled }); err != nil {
		return false, err
	}
	return true, m.v.Report(ctx, s.key(indexeddb.KindRecord, to), RuleMoved)
}

// write writes a record of a side into the object store of the result, without index rows. part is
// the primary key on that side.
func (m *Merge) write(ctx context.Context, s *store, rec *record, side Side, part []byte) error {
	row := rec.row
	row.Database, row.Store = s.database, s.store
	key, page := indexeddb.PageRow(row, indexeddb.AppendRecord(nil, rec.version, rec.script))
	if err := m.v.Result.Put(ctx, key, page); err != nil {
		return err
	}
	if len(rec.objects) == 0 {
		return nil
	}
	to := row.Primary.AppendPagePart(nil)
	row.Kind = indexeddb.KindExternal
	key, page = indexeddb.PageRow(row, indexeddb.AppendExternalObjects(nil, rec.objects))
	if err := m.v.Result.Put(ctx, key, page); err != nil {
		return err
	}
	for i, o := range rec.objects {
		if o.Type == indexeddb.ObjectHandle || o.Size == 0 {
			continue
		}
		if err := m.copy(ctx, s.contentKey(to, i), side, s.at[side].contentKey(part, i)); err != nil {
			return fmt.Errorf("copy external object %d: %w", i, err)
		}
	}
	return nil
}

// copy copies a value from a side to the result.
func (m *Merge) copy(ctx context.Context, to []byte, side Side, from []byte) error {
	v, err := m.sides[side].Open(ctx, from)
	if errors.Is(err, base.ErrNotFound) {
		return nil // missing on that side
	}
	if err != nil {
		return err
	}
	return errors.Join(m.v.Result.PutReader(ctx, to, v, v.Size()), v.Close())
}
