package merging

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/diff3"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// three are the versions of one object, in terms of the united tables. A missing version is nil.
type three struct{ base, left, right *layout.Object }

// merge returns the merged object, or nil when it is deleted.
func (m *Merge) merge(ctx context.Context, v three) (*layout.Object, error) {
	switch {
	case v.left == nil || v.right == nil:
		one := v.left
		if one == nil {
			one = v.right
		}
		if one != nil && one.Same(v.base) {
			return nil, nil
		}
		return one, nil
	case v.left.Same(v.right):
		return v.left, nil
	}
	v, err := m.align(ctx, v)
	if err != nil {
		return nil, err
	}
	f := fields{three: v, merge: m, ctx: ctx, result: layout.NewObject(v.left.ID, v.left.Type)}
	for _, field := range v.left.Type.Fields {
		switch field.Model.Kind {
		case schema.Counter:
			f.counter(field)
		case schema.Set, schema.Map:
			f.elements(field)
		case schema.List:
			f.list(field)
		default:
			f.value(field)
		}
	}
	return f.result, f.err
}

// align migrates all versions to the newer schema. That is the schema to which one side has
// changed, or else the one with the greater index.
func (m *Merge) align(ctx context.Context, v three) (three, error) {
	l, r := v.left.Type, v.right.Type
	to := l
	switch {
	case l == r:
	case v.base != nil && v.base.Type == l:
		to = r
	case v.base != nil && v.base.Type == r:
		to = l
	case r.Schema.Index > l.Schema.Index:
		to = r
	}
	for _, o := range []**layout.Object{&v.base, &v.left, &v.right} {
		if *o == nil || (*o).Type == to {
			continue
		}
		n, err := (*o).Migrate(to, func(id encoding.ObjID) (bool, error) { return m.inEither(ctx, id) })
		if err != nil {
			return v, err
		}
		*o = n
	}
	return v, nil
}

// fields merges the fields of an object.
type fields struct {
	three
	merge  *Merge
	ctx    context.Context
	result *layout.Object
	err    error
}

// newest reports whether the left side wrote the object last, and records that one side's row is
// lost.
func (f *fields) newest(field *layout.Field, content []byte) (left bool) {
	left = f.merge.v.LeftNewer(f.result.ID)
	key := append(append(slices.Clone(f.result.ID[:]), field.Prefix...), content...)
	f.merge.lost = append(f.merge.lost, lost{key, left})
	return left
}

func (f *fields) value(field *layout.Field) {
	l, r := f.left.Value(field), f.right.Value(field)
	v := l
	switch {
	case bytes.Equal(l, r):
	case f.base != nil && bytes.Equal(f.base.Value(field), l):
		v = r
	case f.base != nil && bytes.Equal(f.base.Value(field), r):
	case !f.newest(field, nil):
		v = r
	}
	f.result.Set(field, v)
}

func (f *fields) counter(field *layout.Field) {
	number := func(o *layout.Object) (int64, bool) {
		if o == nil {
			return 0, false
		}
		n, err := layout.ParseCounter(o.Values[field.ID])
		return n, err == nil // without a row: 0, and not known
	}
	l, _ := number(f.left)
	r, _ := number(f.right)
	b, known := number(f.base)
	n := l + r - b
	switch {
	case l == r && !known:
		n = l
	case !known && f.newest(field, nil):
		n = l
	case !known:
		n = r
	}
	f.result.Values[field.ID] = layout.CounterValue(n)
}

func (f *fields) elements(field *layout.Field) {
	var b map[string][]byte
	if f.base != nil {
		b = f.base.Collections[field.ID]
	}
	l, r := f.left.Collections[field.ID], f.right.Collections[field.ID]
	keys := maps.Clone(l)
	if keys == nil {
		keys = map[string][]byte{}
	}
	maps.Copy(keys, r)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		bv, inBase := b[key]
		lv, inLeft := l[key]
		rv, inRight := r[key]
		v, keep := lv, true
		switch {
		case inLeft && inRight && bytes.Equal(lv, rv):
		case inLeft && inRight:
			if inBase && bytes.Equal(bv, lv) || !(inBase && bytes.Equal(bv, rv)) && !f.newest(field, []byte(key)) {
				v = rv
			}
		default: // one side lacks the element: it was removed there, or added or changed here
			if !inLeft {
				v = rv
			}
			keep = !inBase || !bytes.Equal(bv, v)
		}
		if keep {
			f.result.Rows(field)[key] = v
		}
	}
}

func (f *fields) list(field *layout.Field) {
	texts := func(o *layout.Object) (list []string) {
		if o != nil {
			for _, e := range o.List(field) {
				list = append(list, string(e))
			}
		}
		return list
	}
	l, r := texts(f.left), texts(f.right)
	var merged []string
	switch {
	case slices.Equal(l, r):
		merged = l
	case f.base == nil:
		if merged = r; f.newest(field, nil) {
			merged = l
		}
	default:
		for _, h := range diff3.Merge(texts(f.base), l, r) {
			merged = append(merged, f.hunk(field, h)...)
		}
	}
	list := make([][]byte, 0, len(merged))
	for _, e := range merged {
		list = append(list, []byte(e))
	}
	if len(list) > 0 {
		f.result.SetList(field, list)
	}
}

func (f *fields) hunk(field *layout.Field, h diff3.Hunk[string]) []string {
	switch {
	case !h.Conflict:
		return h.Merged
	case len(h.Base) == 0: // both inserted: the earlier insertion is first
		first, second := h.Left, h.Right
		if f.merge.v.LeftNewer(f.result.ID) {
			first, second = second, first
		}
		return append(slices.Clone(first), second...)
	case f.newest(field, nil):
		return h.Left
	}
	return h.Right
}
