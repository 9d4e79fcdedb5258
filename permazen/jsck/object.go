package jsck

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

func isNotFound(err error) bool { return errors.Is(err, base.ErrNotFound) }

// walk reads the rows of objects in order. It reports their defects and the index rows that follow
// from the objects in their repaired form.
type walk struct {
	*checker
	tell   func(context.Context, Issue) error
	expect func(key []byte)

	rows, objects int64
	id            encoding.ObjID
	typ           *layout.Type // nil: the object does not exist
	known         bool         // whether id is set
	values        map[uint32][]byte
	list          *layout.Field // the list whose rows the walk reads
	next          uint32        // the index that the list's next element should have
}

// row processes the next row.
func (w *walk) row(ctx context.Context, key, value []byte) error {
	w.rows++
	if len(key) < layout.IDBytes {
		return w.tell(ctx, invalidKey(key, value, "the key is shorter than an object id"))
	}
	if id := encoding.ObjID(key[:layout.IDBytes]); !w.known || id != w.id {
		w.end()
		w.id, w.known, w.typ, w.list = id, true, nil, nil
		if len(key) == layout.IDBytes {
			return w.first(ctx, key, value)
		}
	}
	if w.typ == nil {
		return w.tell(ctx, invalidKey(key, value, fmt.Sprintf("object %s does not exist", w.id)))
	}
	return w.field(ctx, key, value)
}

// first processes the first row of an object.
func (w *walk) first(ctx context.Context, key, value []byte) error {
	index, flags, err := layout.ParseMeta(value)
	if err != nil {
		return w.tell(ctx, invalidValue(key, value, nil, err.Error()))
	}
	typ := w.tables.TypeOf(w.id, index)
	if typ == nil {
		return w.tell(ctx, invalidValue(key, value, nil, fmt.Sprintf("schema %d does not exist or does not have the type of object %s", index, w.id)))
	}
	w.typ, w.objects = typ, w.objects+1
	if w.values == nil {
		w.values = map[uint32][]byte{}
	}
	clear(w.values)
	if flags != 0 {
		return w.tell(ctx, invalidValue(key, value, layout.MetaValue(index), fmt.Sprintf("the flags of object %s are %#x, want 0", w.id, flags)))
	}
	return nil
}

// end reports the expected index rows of the present object.
func (w *walk) end() {
	if w.typ == nil {
		return
	}
	w.typ.ObjectKeys(w.id, func(f *layout.Field) []byte {
		if v, ok := w.values[f.ID]; ok {
			return v
		}
		return f.Default
	}, w.expect)
	w.typ = nil
}

// field processes a row of a field.
func (w *walk) field(ctx context.Context, key, value []byte) error {
	rest := key[layout.IDBytes:]
	n, size, err := encoding.StrictUint(rest)
	if err != nil {
		return w.tell(ctx, invalidKey(key, value, err.Error()))
	}
	f := w.typ.ByID(n)
	if f == nil {
		return w.tell(ctx, invalidKey(key, value, fmt.Sprintf("type %s has no field with storage id %d", w.typ.Model.Name, n)))
	}
	content := rest[size:]
	if f.Sub == nil && len(content) > 0 {
		return w.tell(ctx, invalidKey(key, value, fmt.Sprintf("field %s: %d bytes follow it", f.Name(), len(content))))
	}
	switch f.Model.Kind {
	case schema.Counter:
		if len(value) != layout.CounterBytes {
			return w.tell(ctx, invalidValue(key, value, nil, fmt.Sprintf("counter %s has %d bytes, want %d", f.Name(), len(value), layout.CounterBytes)))
		}
		return nil
	case schema.List:
		return w.listRow(ctx, f, key, content, value)
	case schema.Set, schema.Map:
		return w.keyRow(ctx, f, key, content, value)
	}
	return w.value(ctx, f, key, value)
}

// check checks a value. to is the correct value, or nil when there is none. text is empty for a
// correct value.
func (w *walk) check(ctx context.Context, f *layout.Field, value []byte) (to []byte, text string, err error) {
	if n, err := f.Codec.Len(value); err != nil || n != len(value) {
		v, err := f.Codec.Value(value)
		if err == nil {
			to, err = f.Codec.Append(nil, v)
		}
		if err != nil {
			return nil, fmt.Sprintf("field %s: %v", f.Name(), err), nil
		}
		return to, fmt.Sprintf("field %s: the value is not in its canonical form", f.Name()), nil
	}
	if f.Model.Kind != schema.Reference || bytes.Equal(value, f.Default) {
		return value, "", nil
	}
	target := encoding.ObjID(value)
	if !f.MayRefer(target) {
		return nil, fmt.Sprintf("field %s: it may not refer to the type of object %s", f.Name(), target), nil
	}
	if f.Model.AllowDeleted {
		return value, "", nil
	}
	there, err := w.exists(ctx, target)
	if err != nil || there {
		return value, "", err
	}
	return nil, fmt.Sprintf("field %s: object %s, to which it refers, does not exist", f.Name(), target), nil
}

// value processes the row of a field with one value.
func (w *walk) value(ctx context.Context, f *layout.Field, key, value []byte) error {
	to, text, err := w.check(ctx, f, value)
	if err != nil {
		return err
	}
	if bytes.Equal(to, f.Default) {
		to, text = nil, fmt.Sprintf("field %s: default values are not stored", f.Name())
	}
	if to != nil && (f.Model.IsIndexed() || len(f.Composites) > 0) {
		w.values[f.ID] = clone(to)
	}
	if text != "" {
		return w.tell(ctx, invalidValue(key, value, to, text))
	}
	return nil
}

// keyRow processes a row of a set or map.
func (w *walk) keyRow(ctx context.Context, f *layout.Field, key, content, value []byte) error {
	_, text, err := w.check(ctx, f.Sub[0], content)
	if err != nil {
		return err
	}
	if text != "" {
		return w.tell(ctx, invalidKey(key, value, text))
	}
	to := []byte{}
	if f.Model.Kind == schema.Map {
		if to, text, err = w.check(ctx, f.Sub[1], value); err != nil {
			return err
		}
	} else if len(value) > 0 {
		text = fmt.Sprintf("field %s: the value of an element's row is not empty", f.Name())
	}
	if to != nil {
		f.ElementKeys(w.id, content, to, w.expect)
	}
	if text != "" {
		return w.tell(ctx, invalidValue(key, value, to, text))
	}
	return nil
}

// listRow processes a row of a list. Elements after a missing or removed one move up.
func (w *walk) listRow(ctx context.Context, f *layout.Field, key, content, value []byte) error {
	if w.list != f {
		w.list, w.next = f, 0
	}
	index, n, err := encoding.StrictUint(content)
	if err != nil || n != len(content) {
		return w.tell(ctx, invalidKey(key, value, fmt.Sprintf("field %s: the key does not end with one index", f.Name())))
	}
	to, text, err := w.check(ctx, f.Sub[0], value)
	if err != nil {
		return err
	}
	if to == nil {
		return w.tell(ctx, invalidValue(key, value, nil, text))
	}
	at := encoding.AppendUint(nil, w.next)
	f.ElementKeys(w.id, at, to, w.expect)
	w.next++
	if index == w.next-1 {
		if text != "" {
			return w.tell(ctx, invalidValue(key, value, to, text))
		}
		return nil
	}
	i := invalidKey(key, value, fmt.Sprintf("field %s: the index is %d, want %d", f.Name(), index, w.next-1))
	i.New, i.NewKey = clone(to), append(clone(key[:len(key)-len(content)]), at...)
	return w.tell(ctx, i)
}
