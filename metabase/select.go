package metabase

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Select is the older search. It returns the sorted ids of a container's available objects that
// meet all filters, and needs no metadata rows. It decodes every object of the container, unless a
// filter compares a user attribute with Equal. Integers can have any size. Errors: *QueryError,
// base.ErrCorrupt.
func (v *View) Select(ctx context.Context, container ID, filters []Filter) ([]ID, error) {
	for i, f := range filters {
		if f.Op.numeric() && strings.HasPrefix(f.Key, systemPrefix) && f.Key != attrEpoch && f.Key != attrPayloadLength {
			return nil, &QueryError{i, fmt.Sprintf("attribute %s has no integers", f.Key)}
		}
	}
	candidates, err := v.candidates(ctx, container, filters)
	if err != nil {
		return nil, fmt.Errorf("select: %w", err)
	}
	var found []ID
	for _, id := range candidates {
		a := Address{container, id}
		status, err := v.Status(ctx, a)
		if err == nil && status == Available {
			var o *Object
			if o, _, err = v.stored(ctx, a); err == nil {
				var ok bool
				if ok, err = v.selects(ctx, a, o, filters); ok {
					found = append(found, id)
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("select: %w", err)
		}
	}
	slices.SortFunc(found, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(found), nil
}

// candidates returns a superset of the objects that meet all filters.
func (v *View) candidates(ctx context.Context, container ID, filters []Filter) (ids []ID, err error) {
	places := []place{of(kindRoot, container)}
	for _, k := range objectKinds {
		places = append(places, of(k, container))
	}
	for _, f := range filters {
		if f.Op == Equal && !strings.HasPrefix(f.Key, systemPrefix) {
			if f.Value == "" {
				return nil, nil
			}
			places = []place{attributeIn(container, f.Key, f.Value)}
		}
	}
	for _, p := range places {
		for row, err := range v.tree.rows(ctx, p, span{keysOnly: true}) {
			if err != nil {
				return nil, err
			}
			id, ok := idOf(row.Key)
			if !ok {
				return nil, corrupt(p, row.Key, "an id", "%d bytes", len(row.Key))
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// selects reports whether an object meets all filters. o is nil for an object that is not stored.
func (v *View) selects(ctx context.Context, a Address, o *Object, filters []Filter) (bool, error) {
	physical := o != nil
	if !physical {
		var err error
		if o, _, err = v.virtual(ctx, a); err != nil || o == nil {
			return false, err
		}
	}
	for _, f := range filters {
		if !o.meets(f, physical) {
			return false, nil
		}
	}
	return true, nil
}

func (o *Object) meets(f Filter, physical bool) bool {
	var values []string
	switch f.Key {
	case attrObjectID:
		values = []string{o.ID.String()}
	case attrContainerID:
		values = []string{o.Container.String()}
	}
	for attr, value := range o.properties(physical) {
		if attr == f.Key {
			values = append(values, printed(attr, value))
		}
	}
	if f.Op == Absent {
		return len(values) == 0 && !strings.HasPrefix(f.Key, systemPrefix)
	}
	return slices.ContainsFunc(values, func(value string) bool { return f.meetsText(value) })
}

// meetsText reports whether a value in text form meets the filter.
func (f *Filter) meetsText(value string) bool {
	switch {
	case f.Key == attrRoot || f.Key == attrPhysical:
		return f.Op == Flag || f.Op == Equal && f.Value == value
	case f.Op == Equal:
		return value == f.Value
	case f.Op == NotEqual:
		return value != f.Value
	case f.Op == Prefix:
		return strings.HasPrefix(value, f.Value)
	case !f.Op.numeric():
		return false
	}
	have, ok := parseInteger(value)
	var want *big.Int
	if ok {
		want, ok = parseInteger(f.Value)
	}
	return ok && (&condition{Filter: *f, number: want}).matchNumber(have)
}
