package permazen

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Migration describes a completed migration of an object to Options.Migrate. Fields whose name and
// encoding are in both schemas keep their values. Other fields have their defaults.
type Migration struct {
	Tx *Tx
	ID ObjID
	// Type is the name of the object's type.
	Type string
	// From is the previous schema of the object.
	From *schema.Model
	// Old has the previous values by field name: a value, int64 for a counter, or []Element.
	Old map[string]any
}

// MigrateAll migrates all objects of other schemas whose type is in the schema of the transaction,
// and returns their number. Errors: those of Options.Migrate.
func (tx *Tx) MigrateAll(ctx context.Context) (n int, err error) {
	if err := tx.writable(); err != nil {
		return 0, err
	}
	indexes := make([]uint32, 0, len(tx.tables.Schemas))
	for index := range tx.tables.Schemas {
		if index != tx.schema.Index {
			indexes = append(indexes, index)
		}
	}
	slices.Sort(indexes)
	for _, index := range indexes {
		for row, err := range ordered.Rows(ctx, tx.r, ordered.Prefix(layout.ObjectsPrefix(index))) {
			var id ObjID
			if err == nil {
				_, id, err = layout.ParseObjectsRow(row.Key)
			}
			if err == nil && tx.schema.Type(id.Type()) != nil {
				_, err = tx.use(ctx, id)
				n++
			}
			if err != nil {
				return n, fmt.Errorf("migrate all objects: %w", err)
			}
		}
	}
	return n, nil
}

// migrate migrates an object to the schema of the transaction and returns its type there. In a view
// it changes nothing.
func (tx *Tx) migrate(ctx context.Context, id ObjID, from *layout.Type) (*layout.Type, error) {
	to := tx.schema.Type(id.Type())
	if to == nil {
		return nil, fmt.Errorf("object %s of type %s: %w", id, from.Model.Name, ErrNoType)
	}
	if tx.w == nil {
		return to, nil
	}
	before, err := tx.tables.ReadObject(ctx, tx.r, id)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	after, err := before.Migrate(to, func(id ObjID) (bool, error) { return tx.Exists(ctx, id) })
	if err == nil {
		err = layout.Replace(ctx, tx.w, before, after)
	}
	if err != nil {
		return nil, fmt.Errorf("migrate object %s: %w", id, err)
	}
	if tx.db.o.Migrate == nil {
		return to, nil
	}
	m := &Migration{Tx: tx, ID: id, Type: to.Model.Name, From: from.Schema.Model}
	if m.Old, err = decode(before); err != nil {
		return nil, fmt.Errorf("migrate object %s: %w", id, err)
	}
	tx.last, tx.lastType = id, to
	if err := tx.db.o.Migrate(ctx, m); err != nil {
		return nil, fmt.Errorf("migrate object %s: %w", id, err)
	}
	return to, nil
}

// decode returns the values of an object by field name.
func decode(o *layout.Object) (map[string]any, error) {
	all := map[string]any{}
	for _, f := range o.Type.Fields {
		v, err := decodeField(o, f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Model.Name, err)
		}
		all[f.Model.Name] = v
	}
	return all, nil
}

func decodeField(o *layout.Object, f *layout.Field) (any, error) {
	switch f.Model.Kind {
	case schema.Counter:
		if b, ok := o.Values[f.ID]; ok {
			return layout.ParseCounter(b)
		}
		return int64(0), nil
	case schema.Set, schema.List, schema.Map:
		rows := o.Collections[f.ID]
		keys := make([]string, 0, len(rows))
		for key := range rows {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		elements := []Element{}
		for _, key := range keys {
			e, err := element(f, []byte(key), rows[key])
			if err != nil {
				return nil, err
			}
			elements = append(elements, e)
		}
		return elements, nil
	}
	return f.Codec.Value(o.Value(f))
}
