package layout

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/schema"
)

// With returns the tables with a schema for the model, and the schema. A missing schema gets the
// least free index and storage ids. m must be normalized. Errors: base.ErrCorrupt.
func (t *Tables) With(m *schema.Model) (*Tables, *Schema, error) {
	if s := t.Find(m.ID()); s != nil {
		return t, s, nil
	}
	schemas, ids := maps.Clone(t.Schemas), maps.Clone(t.IDs)
	index := uint32(1)
	for schemas[index] != nil {
		index++
	}
	schemas[index] = &Schema{Index: index, Model: m}
	m.Number(ids)
	n, err := New(schemas, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("add a schema: %w", err)
	}
	return n, n.Schemas[index], nil
}

// Without returns the tables without the schemas for which drop returns true, and without the
// storage ids that no schema uses afterwards. Errors: base.ErrCorrupt.
func (t *Tables) Without(drop func(*Schema) bool) (*Tables, error) {
	schemas := maps.Clone(t.Schemas)
	maps.DeleteFunc(schemas, func(_ uint32, s *Schema) bool { return drop(s) })
	used := map[string]bool{}
	for _, s := range schemas {
		for _, id := range s.Model.IDs() {
			used[id] = true
		}
	}
	ids := maps.Clone(t.IDs)
	maps.DeleteFunc(ids, func(id string, _ uint32) bool { return !used[id] })
	return New(schemas, ids)
}

// Write replaces the rows of old in w by those of t. old may be nil. Errors: those of w and of ctx.
func (t *Tables) Write(ctx context.Context, w ordered.Writer, old *Tables) error {
	before := map[string][]byte{}
	if old != nil {
		before = old.rows()
	}
	after := t.rows()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[key]; ok {
			continue
		}
		if err := w.Delete(ctx, []byte(key)); err != nil {
			return fmt.Errorf("remove the table row %x: %w", key, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if b, ok := before[key]; ok && bytes.Equal(b, after[key]) {
			continue
		}
		if err := w.Put(ctx, []byte(key), after[key]); err != nil {
			return fmt.Errorf("write the table row %x: %w", key, err)
		}
	}
	return nil
}

func (t *Tables) rows() map[string][]byte {
	rows := map[string][]byte{string(FormatKey()): FormatValue()}
	for index, s := range t.Schemas {
		rows[string(SchemaKey(index))] = s.Stored
	}
	for id, n := range t.IDs {
		rows[string(StorageKey(n))] = SchemaIDValue(id)
	}
	return rows
}
