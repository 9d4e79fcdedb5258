package merging

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// unite returns tables with all schemas and SchemaIds of three versions. Numbers on which both
// sides agree have priority, then those of the base. If two items claim one number, the lesser
// SchemaId gets it.
func unite(base, left, right *layout.Tables) (*layout.Tables, error) {
	all := []*layout.Tables{base, left, right}
	ids := numbers(all, func(t *layout.Tables) map[string]uint32 { return t.IDs })
	models, stored := map[string]*schema.Model{}, map[string][]byte{}
	indexes := numbers(all, func(t *layout.Tables) map[string]uint32 {
		n := map[string]uint32{}
		for index, s := range t.Schemas {
			n[s.ID] = index
			models[s.ID] = s.Model
			// One document can have several compressed forms.
			if old, ok := stored[s.ID]; !ok || cmp.Or(cmp.Compare(len(s.Stored), len(old)), bytes.Compare(s.Stored, old)) < 0 {
				stored[s.ID] = s.Stored
			}
		}
		return n
	})
	schemas := map[uint32]*layout.Schema{}
	for id, index := range indexes {
		schemas[index] = &layout.Schema{Index: index, Model: models[id], Stored: stored[id]}
	}
	return layout.New(schemas, ids)
}

// numbers assigns one number to each id in the versions base, left and right.
func numbers(all []*layout.Tables, of func(*layout.Tables) map[string]uint32) map[string]uint32 {
	base, left, right := of(all[0]), of(all[1]), of(all[2])
	result, taken, next := map[string]uint32{}, map[uint32]bool{}, uint32(0)
	inUse := map[uint32]bool{0: true}
	for _, m := range []map[string]uint32{base, left, right} {
		for n := range maps.Values(m) {
			next, inUse[n] = max(next, n), true
		}
	}
	give := func(id string, wanted ...uint32) {
		if _, ok := result[id]; ok {
			return
		}
		for _, n := range wanted {
			if n != 0 && !taken[n] {
				result[id], taken[n] = n, true
				return
			}
		}
		for inUse[next] { // after the greatest number comes the least one that is free
			next = next%encoding.MaxUint + 1
		}
		result[id], taken[next], inUse[next] = next, true, true
	}
	sides := maps.Clone(left)
	maps.Copy(sides, right)
	for id, n := range sides {
		if left[id] == right[id] {
			give(id, n)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sides)) {
		if base[id] != 0 {
			give(id, base[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sides)) {
		l, r := left[id], right[id]
		give(id, min(l, r), max(l, r))
	}
	for _, id := range slices.Sorted(maps.Keys(base)) {
		give(id, base[id])
	}
	return result
}

// converter converts objects of one version to the united tables.
type converter struct {
	from, to *layout.Tables
	ids      map[uint32]uint32 // changed storage ids
	schemas  map[uint32]uint32 // schema indexes
	original map[encoding.ObjID]encoding.ObjID
}

func newConverter(from, to *layout.Tables) *converter {
	c := &converter{from: from, to: to, ids: map[uint32]uint32{}, schemas: map[uint32]uint32{}, original: map[encoding.ObjID]encoding.ObjID{}}
	for id, n := range from.IDs {
		if to.IDs[id] != n {
			c.ids[n] = to.IDs[id]
		}
	}
	for index, s := range from.Schemas {
		c.schemas[index] = to.Find(s.ID).Index
	}
	return c
}

// renames reports whether the united tables change any number.
func (c *converter) renames() bool {
	for index, to := range c.schemas {
		if index != to {
			return true
		}
	}
	return len(c.ids) > 0
}

// renamed calls f for the objects whose rows contain changed numbers.
func (c *converter) renamed(ctx context.Context, r ordered.Reader, f func(encoding.ObjID)) error {
	for _, index := range slices.Sorted(maps.Keys(c.from.Schemas)) {
		if !c.changes(c.from.Schemas[index]) {
			continue
		}
		err := eachKey(ctx, r, layout.ObjectsPrefix(index), func(key []byte) error {
			_, id, err := layout.ParseObjectsRow(key)
			if err == nil {
				f(id)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(c.ids)) {
		if !c.from.IsType(n) {
			continue
		}
		for _, index := range c.from.TargetIndexes() { // references to objects of the type
			err := eachKey(ctx, r, encoding.AppendUint(encoding.AppendUint(nil, index), n), func(key []byte) error {
				row, err := c.from.ParseIndexRow(key)
				if err == nil {
					f(row.ID)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// changes reports whether the united tables change the number of a schema or of its items.
func (c *converter) changes(s *layout.Schema) bool {
	changed := c.schemas[s.Index] != s.Index
	note := func(n uint32) { changed = changed || c.number(n) != n }
	for _, t := range s.Types {
		note(t.ID)
		for _, f := range t.Fields {
			note(f.ID)
			for _, sub := range f.Sub {
				note(sub.ID)
			}
		}
		for _, x := range t.Indexes {
			note(x.ID)
		}
	}
	return changed
}

func eachKey(ctx context.Context, r ordered.Reader, prefix []byte, f func(key []byte) error) error {
	rg := ordered.Prefix(prefix)
	rg.KeysOnly = true
	it := r.Iter(rg)
	for it.Next(ctx) {
		if err := f(it.Key()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Err(), it.Close())
}

func (c *converter) number(n uint32) uint32 {
	if to, ok := c.ids[n]; ok {
		return to
	}
	return n
}

// id returns the id in the result of an object of the version.
func (c *converter) id(id encoding.ObjID) encoding.ObjID {
	typ := id.Type()
	to, ok := c.ids[typ]
	if !ok || !c.from.IsType(typ) {
		return id
	}
	was := len(encoding.AppendUint(nil, typ))
	var renamed encoding.ObjID
	n := copy(renamed[:], encoding.AppendUint(nil, to))
	copy(renamed[n:], id[was:])
	c.original[renamed] = id
	return renamed
}

// own returns the id in the version of an object of the result. id must have returned it before.
func (c *converter) own(id encoding.ObjID) encoding.ObjID {
	if o, ok := c.original[id]; ok {
		return o
	}
	return id
}

// reference converts a reference and leaves null unchanged.
func (c *converter) reference(f *layout.Field, value []byte) []byte {
	if f.Model.Kind != schema.Reference || len(value) != layout.IDBytes || len(c.ids) == 0 {
		return value
	}
	id := c.id(encoding.ObjID(value))
	return id[:]
}

// object converts an object, which may be nil.
func (c *converter) object(o *layout.Object) (*layout.Object, error) {
	if o == nil {
		return nil, nil
	}
	id := c.id(o.ID)
	s := c.to.Schemas[c.schemas[o.Type.Schema.Index]]
	n := layout.NewObject(id, s.Type(id.Type()))
	if n.Type == nil {
		return nil, errors.New("type of a converted object is missing") // impossible: the united tables have all types
	}
	clear(n.Values)
	for _, f := range o.Type.Fields {
		to := n.Type.ByID(c.number(f.ID))
		if v, ok := o.Values[f.ID]; ok {
			n.Values[to.ID] = c.reference(f, v)
		}
		if rows := o.Collections[f.ID]; len(rows) > 0 {
			n.Collections[to.ID] = c.rows(f, rows)
		}
	}
	return n, nil
}

func (c *converter) rows(f *layout.Field, rows map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(rows))
	for content, value := range rows {
		switch f.Model.Kind {
		case schema.List:
			value = c.reference(f.Sub[0], value)
		case schema.Map:
			value = c.reference(f.Sub[1], value)
			fallthrough
		case schema.Set:
			content = string(c.reference(f.Sub[0], []byte(content)))
		}
		out[content] = value
	}
	return out
}
