package permazen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// Objects returns the ids of all objects of a type under any schema. Errors: ErrNoType.
func (tx *Tx) Objects(typeName string) (IDs, error) {
	t, err := tx.typeNamed(typeName)
	if err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	return &objects{r: tx.r, prefix: encoding.AppendUint(nil, t.ID)}, nil
}

// WithSchema returns the ids of all objects that have the schema with the given index.
func (tx *Tx) WithSchema(index uint32) IDs { return newRowIDs(tx.r, layout.ObjectsPrefix(index), nil) }

// Index is an index of one type. It omits rows of other types in the same index.
type Index struct {
	tx     *Tx
	prefix []byte
	typ    *layout.Type
	fields []*layout.Field
}

// Index returns the index of a field, or a composite index. The name is that of a field, of a
// sub-field such as "friends.element" or "owes.key", or of the composite index. Errors: ErrNoType,
// ErrNoField.
func (tx *Tx) Index(typeName, name string) (*Index, error) {
	t, err := tx.typeNamed(typeName)
	if err != nil {
		return nil, fmt.Errorf("use an index: %w", err)
	}
	for _, f := range t.Fields {
		for _, f := range append([]*layout.Field{f}, f.Sub...) {
			if f.Name() == name && f.Model.IsIndexed() {
				return &Index{tx, f.Prefix, t, []*layout.Field{f}}, nil
			}
		}
	}
	for _, x := range t.Indexes {
		if x.Model.Name == name {
			return &Index{tx, x.Prefix, t, x.Fields}, nil
		}
	}
	return nil, fmt.Errorf("use index %.100q of type %s: %w", name, typeName, ErrNoField)
}

// key encodes the given values of the first fields of the index.
func (x *Index) key(values []any) ([]byte, error) {
	if len(values) > len(x.fields) {
		return nil, fmt.Errorf("index has %d fields, not %d: %w", len(x.fields), len(values), base.ErrInvalid)
	}
	key := bytes.Clone(x.prefix)
	for i, v := range values {
		var err error
		if key, err = x.fields[i].Codec.Append(key, v); err != nil {
			return nil, fmt.Errorf("field %s: %w", x.fields[i].Name(), err)
		}
	}
	return key, nil
}

// Equal returns the ids of the objects with the given values, one for each field of the index.
// Errors: base.ErrInvalid.
func (x *Index) Equal(values ...any) (IDs, error) {
	if len(values) != len(x.fields) {
		return nil, fmt.Errorf("index has %d fields, not %d: %w", len(x.fields), len(values), base.ErrInvalid)
	}
	key, err := x.key(values)
	if err != nil {
		return nil, err
	}
	return newRowIDs(x.tx.r, key, encoding.AppendUint(nil, x.typ.ID)), nil
}

// Bounds select a range of an index. A bound has values of any number of first fields; an empty one
// is no bound. The range includes From and excludes To by default.
type Bounds struct {
	From, To []any
	// FromOpen excludes From. ToClosed includes To and all entries that begin with its values.
	FromOpen, ToClosed bool
	// Reverse yields entries in descending order.
	Reverse bool
}

// Entry is a row of an index.
type Entry struct {
	Values []any
	ID     ObjID
	// Element is the index in a list, as int, or the key in a map. It is set in indexes of list
	// elements and of map values.
	Element any
}

func (x *Index) bounds(b Bounds) (ordered.Range, error) {
	r := ordered.Prefix(x.prefix)
	r.Reverse, r.KeysOnly = b.Reverse, true
	if len(b.From) > 0 {
		key, err := x.key(b.From)
		if err != nil {
			return r, err
		}
		if r.Start = key; b.FromOpen {
			r.Start = ordered.PrefixEnd(key)
		}
	}
	if len(b.To) > 0 {
		key, err := x.key(b.To)
		if err != nil {
			return r, err
		}
		if r.End = key; b.ToClosed {
			r.End = ordered.PrefixEnd(key)
		}
	}
	return r, nil
}

// Range yields the entries within bounds, in order of values, then of ids. An error is in the last
// pair: base.ErrInvalid, base.ErrCorrupt, those of the store and of ctx.
func (x *Index) Range(ctx context.Context, b Bounds) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		r, err := x.bounds(b)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		it := x.tx.r.Iter(r)
		defer it.Close()
		for it.Next(ctx) {
			row, err := x.tx.tables.ParseIndexRow(it.Key())
			if err == nil && row.ID.Type() != x.typ.ID {
				continue
			}
			var e Entry
			if err == nil {
				e, err = x.entry(row)
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("read index row %x: %w", it.Key(), err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := it.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}

func (x *Index) entry(row layout.IndexRow) (Entry, error) {
	e := Entry{ID: row.ID}
	for i, b := range row.Values {
		v, err := x.fields[i].Codec.Value(b)
		if err != nil {
			return e, err
		}
		e.Values = append(e.Values, v)
	}
	if len(row.Rest) == 0 {
		return e, nil
	}
	if f := x.fields[0]; len(f.Parent.Sub) > 1 {
		v, err := f.Parent.Sub[0].Codec.Value(row.Rest)
		e.Element = v
		return e, err
	}
	i, _, err := encoding.Uint(row.Rest)
	e.Element = int(i)
	return e, err
}

// Within returns the sorted ids of the objects within bounds. It uses 8 bytes of memory for each
// entry. Errors: as Range.
func (x *Index) Within(ctx context.Context, b Bounds) (IDs, error) {
	b.Reverse = false
	r, err := x.bounds(b)
	if err != nil {
		return nil, err
	}
	var ids []ObjID
	it := x.tx.r.Iter(r)
	defer it.Close()
	for it.Next(ctx) {
		row, err := x.tx.tables.ParseIndexRow(it.Key())
		if err != nil {
			return nil, fmt.Errorf("read index row %x: %w", it.Key(), err)
		}
		if row.ID.Type() == x.typ.ID {
			ids = append(ids, row.ID)
		}
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		return nil, err
	}
	slices.SortFunc(ids, func(a, b ObjID) int { return bytes.Compare(a[:], b[:]) })
	return &sliceIDs{ids: slices.Compact(ids), at: -1}, nil
}
