package records

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"time"

	"github.com/ledgerd/ledger"
)

// merger merges a value that both sides may have changed. base is the zero reflect.Value when the
// common ancestors have different versions of the record. leftNewer reports which side wrote the
// record last. lost reports that a change of one side was dropped.
type merger func(base, left, right reflect.Value, leftNewer bool) (merged reflect.Value, lost bool)

var timeType = reflect.TypeFor[time.Time]()

// mergerOf returns the merger of a type with a tag, which reads the tags of structs. Errors match
// ledger.ErrInvalid.
func mergerOf(t reflect.Type, tag string) (merger, error) {
	ordered := t == timeType || t.Kind() == reflect.String || t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
	switch {
	case tag == "counter" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64:
		return mergeCounter, nil
	case tag == "max" && ordered:
		return mergeMax, nil
	case tag == "set" && t.Kind() == reflect.Map && isPlain(t.Key()):
		return mergeMap, nil
	case tag == "set" && t.Kind() == reflect.Slice && (isPlain(t.Elem()) || t.Elem() == timeType):
		return mergeSlice, nil
	case tag == "" && t.Kind() == reflect.Struct && t != timeType:
		return structMerger(t)
	case tag == "":
		return mergeLast, nil
	}
	return nil, fmt.Errorf("tag %q does not fit the type %s: %w", tag, t, ledger.ErrInvalid)
}

// isPlain reports whether == compares values of the type by content, so that a decoded value equals
// the encoded one. Pointers differ after decoding, and == of interfaces may panic.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() == reflect.String || t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
}

// structMerger merges structs field by field. A struct with unexported fields is merged as one
// value, so its fields have no tags.
func structMerger(t reflect.Type) (merger, error) {
	var each []merger
	hidden, tagged := false, false
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("ledger")
		hidden, tagged = hidden || !f.IsExported(), tagged || tag != ""
		m, err := mergerOf(f.Type, tag)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		each = append(each, m)
	}
	if hidden && tagged {
		return nil, fmt.Errorf("%s has tags and fields that are not exported: %w", t, ledger.ErrInvalid)
	}
	if hidden {
		return mergeLast, nil
	}
	return func(base, left, right reflect.Value, leftNewer bool) (reflect.Value, bool) {
		out, lost := reflect.New(t).Elem(), false
		for i, m := range each {
			var b reflect.Value
			if base.IsValid() {
				b = base.Field(i)
			}
			v, l := mergeOne(m, b, left.Field(i), right.Field(i), leftNewer)
			out.Field(i).Set(v)
			lost = lost || l
		}
		return out, lost
	}, nil
}

// mergeOne takes the value of the only side that changed it; otherwise it calls m.
func mergeOne(m merger, base, left, right reflect.Value, leftNewer bool) (reflect.Value, bool) {
	switch {
	case same(base, right):
		return left, false
	case same(base, left):
		return right, false
	case same(left, right) && !(base.IsValid() && mayCount(left)): // both may have added the same amount
		return left, false
	}
	return m(base, left, right, leftNewer)
}

// mayCount reports whether v is a counter or has counters.
func mayCount(v reflect.Value) bool {
	return v.Kind() >= reflect.Int && v.Kind() <= reflect.Float64 || v.Kind() == reflect.Struct
}

func same(a, b reflect.Value) bool {
	if !a.IsValid() {
		return false
	}
	if a.Type() == timeType {
		return a.Interface().(time.Time).Equal(b.Interface().(time.Time))
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// mergeLast takes the side that wrote the record last.
func mergeLast(_, left, right reflect.Value, leftNewer bool) (reflect.Value, bool) {
	if same(left, right) {
		return left, false
	}
	if leftNewer {
		return left, true
	}
	return right, true
}

// mergeCounter adds the changes of both sides. A sum beyond the integer type becomes the type's
// least or greatest number; the rest is lost. Without a base it takes the greater number, since a
// sum would count the common part twice.
func mergeCounter(base, left, right reflect.Value, leftNewer bool) (out reflect.Value, lost bool) {
	if !base.IsValid() {
		return mergeMax(base, left, right, leftNewer)
	}
	out = reflect.New(base.Type()).Elem()
	if base.CanFloat() {
		out.SetFloat(left.Float() + right.Float() - base.Float())
		return out, false
	}
	sum := new(big.Int).Add(integer(left), integer(right))
	sum.Sub(sum, integer(base))
	one := big.NewInt(1)
	low, high := new(big.Int), new(big.Int).Lsh(one, uint(base.Type().Bits()))
	if base.CanInt() {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	high.Sub(high, one)
	switch {
	case sum.Cmp(low) < 0:
		sum, lost = low, true
	case sum.Cmp(high) > 0:
		sum, lost = high, true
	}
	if base.CanInt() {
		out.SetInt(sum.Int64())
	} else {
		out.SetUint(sum.Uint64())
	}
	return out, lost
}

func integer(v reflect.Value) *big.Int {
	if v.CanInt() {
		return big.NewInt(v.Int())
	}
	return new(big.Int).SetUint64(v.Uint())
}

// mergeMax takes the greater value.
func mergeMax(_, left, right reflect.Value, _ bool) (reflect.Value, bool) {
	if compare(left, right) < 0 {
		return right, false
	}
	return left, false
}

func compare(a, b reflect.Value) int {
	switch k := a.Kind(); {
	case a.Type() == timeType:
		return a.Interface().(time.Time).Compare(b.Interface().(time.Time))
	case k == reflect.String:
		return cmp.Compare(a.String(), b.String())
	case k <= reflect.Int64:
		return cmp.Compare(a.Int(), b.Int())
	case k <= reflect.Uintptr:
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return cmp.Compare(a.Float(), b.Float())
}

// mergeMap applies the additions, changes and removals of both sides.
func mergeMap(base, left, right reflect.Value, leftNewer bool) (reflect.Value, bool) {
	if !base.IsValid() {
		base = reflect.Zero(left.Type())
	}
	out, lost := reflect.MakeMap(base.Type()), false
	for _, keys := range [][]reflect.Value{left.MapKeys(), right.MapKeys()} {
		for _, k := range keys {
			b, l, r := base.MapIndex(k), left.MapIndex(k), right.MapIndex(k)
			switch {
			case l.IsValid() && r.IsValid():
				v, gone := mergeOne(mergeLast, b, l, r, leftNewer)
				out.SetMapIndex(k, v)
				lost = lost || gone
			case l.IsValid() && (!b.IsValid() || !same(b, l)):
				out.SetMapIndex(k, l)
			case r.IsValid() && (!b.IsValid() || !same(b, r)):
				out.SetMapIndex(k, r)
			}
		}
	}
	return out, lost
}

// mergeSlice takes the elements of both sides without those that one side removed: first those of
// the side that wrote the record last, in its order, then the others.
func mergeSlice(base, left, right reflect.Value, leftNewer bool) (reflect.Value, bool) {
	if !base.IsValid() {
		base = reflect.Zero(left.Type())
	}
	first, second := right, left
	if leftNewer {
		first, second = left, right
	}
	has := func(s reflect.Value) map[any]bool {
		m := map[any]bool{}
		for i := range s.Len() {
			m[element(s.Index(i))] = true
		}
		return m
	}
	before, one, two := has(base), has(first), has(second)
	out, taken := reflect.MakeSlice(base.Type(), 0, first.Len()+second.Len()), map[any]bool{}
	for _, s := range []reflect.Value{first, second} {
		for i := range s.Len() {
			e := element(s.Index(i))
			if taken[e] || before[e] && !(one[e] && two[e]) {
				continue
			}
			taken[e] = true
			out = reflect.Append(out, s.Index(i))
		}
	}
	return out, false
}

// element returns the value of v for ==. Equal times in several time zones are one element.
func element(v reflect.Value) any {
	if v.Type() == timeType {
		return v.Interface().(time.Time).UTC()
	}
	return v.Interface()
}
