package permazen

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Element is an element of a set or list, or an entry of a map.
type Element struct {
	// Key is the key of a map entry, or the index in a list, as int.
	Key any
	// Value is the element, or the value of an entry.
	Value any
}

// Elements yields the elements of a set, list or map in order. The loop may change elements; it
// sees changes after its present position. An error is in the last pair.
func (tx *Tx) Elements(ctx context.Context, id ObjID, field string) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		f, err := tx.field(ctx, id, field, schema.Set, schema.List, schema.Map)
		if err != nil {
			yield(Element{}, fmt.Errorf("read elements: %w", err))
			return
		}
		prefix := rowKey(id, f, nil)
		for row, err := range ordered.Rows(ctx, tx.r, ordered.Prefix(prefix)) {
			var e Element
			if err == nil {
				e, err = element(f, row.Key[len(prefix):], row.Value)
			}
			if err != nil {
				yield(Element{}, fmt.Errorf("read field %s of object %s: %w", field, id, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// element decodes a row of a collection.
func element(f *layout.Field, content, value []byte) (Element, error) {
	k, v, err := f.Decode(content, value)
	return Element{k, v}, err
}

// collection returns a field of a writable transaction.
func (tx *Tx) collection(ctx context.Context, id ObjID, name string, kind schema.Kind) (*layout.Field, error) {
	if err := tx.writable(); err != nil {
		return nil, err
	}
	return tx.field(ctx, id, name, kind)
}

// putElement writes a row of a collection and its index rows.
func (tx *Tx) putElement(ctx context.Context, id ObjID, f *layout.Field, content, value []byte) error {
	before, had, err := tx.find(ctx, rowKey(id, f, content))
	if err != nil || had && bytes.Equal(before, value) {
		return err
	}
	if had {
		if err := tx.removeElement(ctx, id, f, content, before); err != nil {
			return err
		}
	}
	if err := tx.w.Put(ctx, rowKey(id, f, content), value); err != nil {
		return err
	}
	f.ElementKeys(id, content, value, func(key []byte) {
		if err == nil {
			err = tx.w.Put(ctx, key, nil)
		}
	})
	return err
}

// removeElement removes a row of a collection and its index rows.
func (tx *Tx) removeElement(ctx context.Context, id ObjID, f *layout.Field, content, value []byte) error {
	err := tx.w.Delete(ctx, rowKey(id, f, content))
	f.ElementKeys(id, content, value, func(key []byte) {
		if err == nil {
			err = tx.w.Delete(ctx, key)
		}
	})
	return err
}

// takeElement removes a row of a collection and reports whether it existed.
func (tx *Tx) takeElement(ctx context.Context, id ObjID, f *layout.Field, content []byte) (bool, error) {
	value, ok, err := tx.find(ctx, rowKey(id, f, content))
	if err != nil || !ok {
		return false, err
	}
	return true, tx.removeElement(ctx, id, f, content, value)
}

// Add adds an element to a set and reports whether it was new. Errors: ErrNoObject, ErrNoType,
// ErrNoField, ErrBadReference, base.ErrInvalid.
func (tx *Tx) Add(ctx context.Context, id ObjID, field string, element any) (bool, error) {
	f, err := tx.collection(ctx, id, field, schema.Set)
	if err != nil {
		return false, fmt.Errorf("add: %w", err)
	}
	content, err := tx.checkValue(ctx, f.Sub[0], element)
	if err != nil {
		return false, fmt.Errorf("add: %w", err)
	}
	if _, ok, err := tx.find(ctx, rowKey(id, f, content)); ok || err != nil {
		return false, err
	}
	return true, tx.putElement(ctx, id, f, content, nil)
}

// Remove removes an element from a set, or a key from a map, and reports whether it existed.
// Errors: ErrNoObject, ErrNoType, ErrNoField, base.ErrInvalid.
func (tx *Tx) Remove(ctx context.Context, id ObjID, field string, key any) (bool, error) {
	if err := tx.writable(); err != nil {
		return false, err
	}
	f, content, err := tx.elementKey(ctx, id, field, key)
	if err != nil {
		return false, fmt.Errorf("remove: %w", err)
	}
	return tx.takeElement(ctx, id, f, content)
}

func (tx *Tx) elementKey(ctx context.Context, id ObjID, field string, key any) (*layout.Field, []byte, error) {
	f, err := tx.field(ctx, id, field, schema.Set, schema.Map)
	if err != nil {
		return nil, nil, err
	}
	content, err := f.Sub[0].Codec.Append(nil, key)
	if err != nil {
		return nil, nil, fmt.Errorf("field %s: %w", f.Sub[0].Name(), err)
	}
	return f, content, nil
}

// Contains reports whether a set contains an element, or a map a key. Errors: ErrNoObject,
// ErrNoType, ErrNoField, base.ErrInvalid.
func (tx *Tx) Contains(ctx context.Context, id ObjID, field string, key any) (bool, error) {
	f, content, err := tx.elementKey(ctx, id, field, key)
	if err != nil {
		return false, fmt.Errorf("look for an element: %w", err)
	}
	_, ok, err := tx.find(ctx, rowKey(id, f, content))
	return ok, err
}

// Put sets the value of a key in a map. Errors: as Add.
func (tx *Tx) Put(ctx context.Context, id ObjID, field string, key, value any) error {
	f, err := tx.collection(ctx, id, field, schema.Map)
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	k, err := tx.checkValue(ctx, f.Sub[0], key)
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	v, err := tx.checkValue(ctx, f.Sub[1], value)
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return tx.putElement(ctx, id, f, k, v)
}

// Lookup returns the value of a key in a map, and whether the key exists. Errors: as Contains.
func (tx *Tx) Lookup(ctx context.Context, id ObjID, field string, key any) (value any, ok bool, err error) {
	f, content, err := tx.elementKey(ctx, id, field, key)
	if err != nil {
		return nil, false, fmt.Errorf("look up: %w", err)
	}
	b, ok, err := tx.find(ctx, rowKey(id, f, content))
	if err != nil || !ok || f.Model.Kind == schema.Set {
		return nil, ok, err
	}
	value, err = f.Sub[1].Codec.Value(b)
	return value, true, err
}

// Len returns the length of a list. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) Len(ctx context.Context, id ObjID, field string) (int, error) {
	f, err := tx.field(ctx, id, field, schema.List)
	if err != nil {
		return 0, fmt.Errorf("measure a list: %w", err)
	}
	return tx.listLen(ctx, id, f)
}

func (tx *Tx) listLen(ctx context.Context, id ObjID, f *layout.Field) (int, error) {
	r := ordered.Prefix(rowKey(id, f, nil))
	r.Reverse, r.KeysOnly = true, true
	it := tx.r.Iter(r)
	defer it.Close()
	if !it.Next(ctx) {
		return 0, it.Err()
	}
	i, _, err := encoding.Uint(it.Key()[len(r.Start):])
	return int(i) + 1, err
}

// At returns the element of a list at index i. Errors: ErrNoObject, ErrNoType, ErrNoField,
// base.ErrNotFound when the list is shorter.
func (tx *Tx) At(ctx context.Context, id ObjID, field string, i int) (any, error) {
	f, err := tx.field(ctx, id, field, schema.List)
	if err != nil {
		return nil, fmt.Errorf("read an element: %w", err)
	}
	if err := layout.CheckLength(i); err != nil || i < 0 {
		return nil, fmt.Errorf("read element %d: %w", i, base.ErrNotFound)
	}
	b, err := tx.r.Get(ctx, rowKey(id, f, elementIndex(i)))
	if err != nil {
		return nil, fmt.Errorf("read element %d: %w", i, err)
	}
	return f.Sub[0].Codec.Value(b)
}

// Insert inserts elements before index i of a list; the length of the list as i appends. Errors: as
// Add.
func (tx *Tx) Insert(ctx context.Context, id ObjID, field string, i int, elements ...any) error {
	return tx.splice(ctx, id, field, i, 0, elements)
}

// Append appends elements to a list. Errors: as Add.
func (tx *Tx) Append(ctx context.Context, id ObjID, field string, elements ...any) error {
	n, err := tx.Len(ctx, id, field)
	if err != nil {
		return err
	}
	return tx.splice(ctx, id, field, n, 0, elements)
}

// SetAt replaces an element of a list. Errors: as Add.
func (tx *Tx) SetAt(ctx context.Context, id ObjID, field string, i int, element any) error {
	return tx.splice(ctx, id, field, i, 1, []any{element})
}

// RemoveAt removes an element from a list. Errors: as Add.
func (tx *Tx) RemoveAt(ctx context.Context, id ObjID, field string, i int) error {
	return tx.splice(ctx, id, field, i, 1, nil)
}

// splice replaces elements of a list and moves the elements after them.
func (tx *Tx) splice(ctx context.Context, id ObjID, field string, at, remove int, elements []any) error {
	f, err := tx.collection(ctx, id, field, schema.List)
	if err != nil {
		return fmt.Errorf("change a list: %w", err)
	}
	n, err := tx.listLen(ctx, id, f)
	if err != nil {
		return fmt.Errorf("change a list: %w", err)
	}
	if at < 0 || at > n || remove > n-at {
		return fmt.Errorf("change element %d of a list with %d elements: %w", at, n, base.ErrInvalid)
	}
	if err := layout.CheckLength(n + len(elements)); err != nil {
		return fmt.Errorf("change a list: %w", err)
	}
	var list [][]byte
	for _, e := range elements {
		b, err := tx.checkValue(ctx, f.Sub[0], e)
		if err != nil {
			return fmt.Errorf("change a list: %w", err)
		}
		list = append(list, b)
	}
	if len(elements) != remove {
		r := ordered.Range{Start: rowKey(id, f, elementIndex(at+remove)), End: ordered.PrefixEnd(rowKey(id, f, nil))}
		for row, err := range ordered.Rows(ctx, tx.r, r) {
			if err != nil {
				return fmt.Errorf("change a list: %w", err)
			}
			list = append(list, row.Value)
		}
	}
	for i, b := range list {
		if err := tx.putElement(ctx, id, f, elementIndex(at+i), b); err != nil {
			return fmt.Errorf("change a list: %w", err)
		}
	}
	for i := n + len(elements) - remove; i < n; i++ {
		if _, err := tx.takeElement(ctx, id, f, elementIndex(i)); err != nil {
			return fmt.Errorf("change a list: %w", err)
		}
	}
	return nil
}

// Clear removes all elements of a set, list or map. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) Clear(ctx context.Context, id ObjID, field string) error {
	if err := tx.writable(); err != nil {
		return err
	}
	f, err := tx.field(ctx, id, field, schema.Set, schema.List, schema.Map)
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	prefix := rowKey(id, f, nil)
	for row, err := range ordered.Rows(ctx, tx.r, ordered.Prefix(prefix)) {
		if err == nil {
			err = tx.removeElement(ctx, id, f, row.Key[len(prefix):], row.Value)
		}
		if err != nil {
			return fmt.Errorf("clear field %s of object %s: %w", field, id, err)
		}
	}
	return nil
}
