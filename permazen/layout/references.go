package layout

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Referrer is a field of an object that refers to another object.
type Referrer struct {
	ID    encoding.ObjID
	Field *Field // the sub-field in a collection
}

// Referrers calls f for each reference to an object in the indexes, ordered by field and object. f
// must not change rows. Errors: base.ErrCorrupt, those of r, of ctx and of f.
func (t *Tables) Referrers(ctx context.Context, r ordered.Reader, id encoding.ObjID, f func(Referrer) error) error {
	for _, index := range t.TargetIndexes() {
		rg := ordered.Prefix(append(encoding.AppendUint(nil, index), id[:]...))
		rg.KeysOnly = true
		if err := t.referrers(ctx, r, rg, f); err != nil {
			return fmt.Errorf("find what refers to object %s: %w", id, err)
		}
	}
	return nil
}

func (t *Tables) referrers(ctx context.Context, r ordered.Reader, rg ordered.Range, f func(Referrer) error) error {
	it := r.Iter(rg)
	defer it.Close()
	for it.Next(ctx) {
		row, err := t.ParseIndexRow(it.Key())
		if err != nil {
			return err
		}
		typ, err := t.ReadMeta(ctx, r, row.ID)
		if err != nil {
			return err
		}
		if typ == nil {
			continue
		}
		if field := typ.anyField(row.Index); field != nil {
			if err := f(Referrer{row.ID, field}); err != nil {
				return err
			}
		}
	}
	return it.Err()
}

// anyField returns the field or sub-field with a storage id, or nil.
func (t *Type) anyField(id uint32) *Field {
	for _, f := range t.Fields {
		if f.ID == id {
			return f
		}
		for _, s := range f.Sub {
			if s.ID == id {
				return s
			}
		}
	}
	return nil
}

// Fate is the treatment of a reference.
type Fate uint8

// The fates.
const (
	Keep Fate = iota
	// Null makes the reference null. Drop removes it from its collection, or acts as Null.
	Null
	Drop
)

// FateOf returns the fate that a delete action gives to references to a deleted object.
func FateOf(a schema.DeleteAction) Fate {
	switch a {
	case schema.Nullify:
		return Null
	case schema.Remove:
		return Drop
	}
	return Keep
}

// target decodes a reference. ok is false for null and for invalid bytes.
func target(value []byte) (id encoding.ObjID, ok bool) {
	id, err := encoding.ReadObjID(value)
	return id, err == nil && len(value) == IDBytes
}

// Targets calls f for each reference of the object that is not null, in order of fields.
func (o *Object) Targets(f func(field *Field, id encoding.ObjID)) {
	o.Release(func(field *Field, id encoding.ObjID) Fate {
		f(field, id)
		return Keep
	})
}

// ForwardTargets returns the targets of the object's forward-delete fields.
func (o *Object) ForwardTargets() (ids []encoding.ObjID) {
	o.Targets(func(f *Field, id encoding.ObjID) {
		if f.Model.ForwardDelete {
			ids = append(ids, id)
		}
	})
	return ids
}

// Release calls fate for each reference of the object and applies the result. It reports whether
// the object has changed.
func (o *Object) Release(fate func(f *Field, id encoding.ObjID) Fate) (changed bool) {
	ask := func(f *Field, value []byte) Fate {
		if f.Model.Kind == schema.Reference {
			if id, ok := target(value); ok {
				return fate(f, id)
			}
		}
		return Keep
	}
	for _, f := range o.Type.Fields {
		switch f.Model.Kind {
		case schema.Reference:
			if ask(f, o.Value(f)) != Keep {
				delete(o.Values, f.ID)
				changed = true
			}
		case schema.List:
			changed = o.releaseList(f, ask) || changed
		case schema.Set, schema.Map:
			changed = o.releaseKeys(f, ask) || changed
		}
	}
	return changed
}

func (o *Object) releaseList(f *Field, ask func(*Field, []byte) Fate) (changed bool) {
	if f.Sub[0].Model.Kind != schema.Reference {
		return false
	}
	var list [][]byte
	for _, e := range o.List(f) {
		switch ask(f.Sub[0], e) {
		case Keep:
			list = append(list, e)
			continue
		case Null:
			list = append(list, f.Sub[0].Default)
		}
		changed = true
	}
	if changed {
		o.SetList(f, list)
	}
	return changed
}

func (o *Object) releaseKeys(f *Field, ask func(*Field, []byte) Fate) (changed bool) {
	rows := o.Collections[f.ID]
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		value := rows[key]
		valueFate := Keep
		if f.Model.Kind == schema.Map {
			valueFate = ask(f.Sub[1], value)
		}
		switch keyFate := ask(f.Sub[0], []byte(key)); {
		case keyFate == Drop || valueFate == Drop:
			delete(rows, key)
		case keyFate == Null:
			delete(rows, key)
			if valueFate == Null {
				value = f.Sub[1].Default
			}
			rows[string(f.Sub[0].Default)] = value
		case valueFate == Null:
			rows[key] = f.Sub[1].Default
		default:
			continue
		}
		changed = true
	}
	return changed
}

// Same reports whether two objects have the same rows. Either may be nil.
func (o *Object) Same(p *Object) bool {
	if o == nil || p == nil {
		return o == p
	}
	equal := func(a, b []byte) bool { return bytes.Equal(a, b) }
	return o.ID == p.ID && o.Type.ID == p.Type.ID && o.Type.Schema.ID == p.Type.Schema.ID &&
		maps.EqualFunc(o.Values, p.Values, equal) && sameCollections(o, p) && sameCollections(p, o)
}

// sameCollections reports whether b has the collections of a. An empty collection may be absent.
func sameCollections(a, b *Object) bool {
	for id, rows := range a.Collections {
		if len(rows) == 0 {
			continue
		}
		if !maps.EqualFunc(rows, b.Collections[id], func(a, b []byte) bool { return bytes.Equal(a, b) }) {
			return false
		}
	}
	return true
}

// Migrate returns the object with another schema's type of the same storage id. Fields keep their
// value if their storage id is the same; others have defaults. References that the new type forbids
// are dropped. References to absent objects are dropped where only the new field forbids them.
// exists tells which objects exist. o does not change; values are shared.
func (o *Object) Migrate(to *Type, exists func(encoding.ObjID) (bool, error)) (*Object, error) {
	n := NewObject(o.ID, to)
	for _, f := range to.Fields {
		if v, ok := o.Values[f.ID]; ok {
			n.Values[f.ID] = v
		}
		if rows := o.Collections[f.ID]; len(rows) > 0 {
			n.Collections[f.ID] = maps.Clone(rows)
		}
	}
	var failed error
	n.Release(func(f *Field, id encoding.ObjID) Fate {
		if !f.MayRefer(id) {
			return Drop
		}
		was := o.Type.anyField(f.ID)
		if f.Model.AllowDeleted || was == nil || !was.Model.AllowDeleted {
			return Keep
		}
		if there, err := exists(id); err != nil {
			failed = err
		} else if !there {
			return Drop
		}
		return Keep
	})
	return n, failed
}
