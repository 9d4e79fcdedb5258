package metabase

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"math/big"
	"slices"
)

// The limits of a query.
const (
	MaxFilters    = 8
	MaxAttributes = 8
	MaxCount      = 1000
)

// Query describes a search for objects of one container.
type Query struct {
	Container ID
	// Filters must all match. The first one, the primary filter, selects the rows that are read.
	Filters []Filter
	// Attributes are the attributes to return. The first must be that of the primary filter, and
	// the result is sorted by it: as integers when the primary filter compares integers, else by
	// the stored bytes. Without attributes, or when the primary filter is Absent, objects are
	// sorted by id.
	Attributes []string
	// Cursor is the cursor that the previous page returned, or "" for the first page.
	Cursor string
	// Count is the maximum number of objects to return, 1 to 1000.
	Count int
}

// Found is one result of a search.
type Found struct {
	ID ID
	// Attributes are the values of the query's attributes as text, in the form of filters; "" for
	// an absent attribute. A value found by comparing integers is printed without leading zeros.
	Attributes []string
}

// search is a running query.
type search struct {
	*View
	query   Query
	meta    place
	first   *condition              // the primary filter, nil when there is none
	groups  map[string][]*condition // by key
	order   []string                // the keys of groups, in order of their first filter
	span    span                    // the range of keys in the index of the primary filter
	integer bool                    // the index is that of integers
	present presence
}

// Search returns one page of matching objects and a cursor for the next page, "" after the last. It
// skips objects that are not available. A cursor is valid for the same filters and attributes as
// long as the metabase exists, even when objects are added or removed. If an object has several
// values of a key, one value must meet all filters on that key. Errors: *QueryError,
// ErrInvalidCursor, ErrOldVersion, base.ErrCorrupt, those of the store.
func (v *View) Search(ctx context.Context, q Query) ([]Found, string, error) {
	s, reachable, err := v.prepare(q)
	if err != nil || !reachable {
		return nil, "", err
	}
	from, err := s.start()
	if err != nil {
		return nil, "", err
	}
	if s.present, err = v.look(ctx, q.Container); err != nil {
		return nil, "", err
	}
	var hits []hit
	switch {
	case s.byAttribute() || s.first != nil && s.first.Op == Equal:
		hits, err = s.take(ctx, s.indexed(ctx, from, true))
	case s.first == nil || s.first.Op == Absent:
		hits, err = s.take(ctx, s.objects(ctx, from))
	default:
		hits, err = s.race(ctx, from)
	}
	if err != nil {
		return nil, "", fmt.Errorf("search: %w", err)
	}
	return s.page(ctx, hits)
}

// prepare verifies a query. reachable is false when no object can match.
func (v *View) prepare(q Query) (s *search, reachable bool, err error) {
	wrong := func(format string, args ...any) (*search, bool, error) {
		return nil, false, &QueryError{-1, fmt.Sprintf(format, args...)}
	}
	switch {
	case v.version < newestVersion:
		return nil, false, ErrOldVersion
	case len(q.Filters) > MaxFilters:
		return wrong("%d filters, at most %d are allowed", len(q.Filters), MaxFilters)
	case len(q.Attributes) > MaxAttributes:
		return wrong("%d attributes, at most %d are allowed", len(q.Attributes), MaxAttributes)
	case q.Count < 1 || q.Count > MaxCount:
		return wrong("count is %d, want 1 to %d", q.Count, MaxCount)
	case q.Container.IsZero():
		return wrong("no container")
	case len(q.Attributes) > 0 && (len(q.Filters) == 0 || q.Filters[0].Key != q.Attributes[0]):
		return wrong("the first attribute must be that of the first filter")
	}
	s = &search{View: v, query: q, meta: of(kindMetadata, q.Container), groups: map[string][]*condition{}}
	reachable = true
	for i, f := range q.Filters {
		c, ok, err := compile(i, f)
		if err != nil {
			return nil, false, err
		}
		reachable = reachable && ok
		if i == 0 {
			s.first = &c
		}
		if s.groups[f.Key] == nil {
			s.order = append(s.order, f.Key)
		}
		s.groups[f.Key] = append(s.groups[f.Key], &c)
	}
	for i, a := range q.Attributes {
		if a == attrObjectID || a == attrContainerID || slices.Contains(q.Attributes[:i], a) || bytes.IndexByte([]byte(a), 0) >= 0 {
			return wrong("attribute %.100q cannot be returned, or is asked for twice", a)
		}
	}
	if reachable && s.first != nil {
		s.integer = s.first.Op.numeric()
		s.span = s.first.span(s.integer)
		for _, c := range s.groups[s.first.Key] {
			s.span = s.span.intersect(c.span(s.integer))
		}
		s.span.keysOnly = true
	}
	return s, reachable, nil
}

// byAttribute reports whether the result is sorted by the primary attribute.
func (s *search) byAttribute() bool { return len(s.query.Attributes) > 0 && s.first.Op != Absent }

// start decodes the cursor, which is the last key of the previous page without its first byte. It
// returns the least key of this page in the same form.
func (s *search) start() ([]byte, error) {
	if s.query.Cursor == "" {
		return nil, nil
	}
	b, err := base64.StdEncoding.DecodeString(s.query.Cursor)
	if err != nil {
		return nil, ErrInvalidCursor
	}
	if !s.byAttribute() {
		if _, ok := idOf(b); !ok {
			return nil, ErrInvalidCursor
		}
		return behind(b), nil
	}
	key := append([]byte{s.firstByte()}, b...)
	if _, ok := s.parse(key); !ok || !s.span.holds(key) {
		return nil, ErrInvalidCursor
	}
	return behind(b), nil
}

func (s *search) firstByte() byte {
	if s.integer {
		return metaInteger
	}
	return metaValue
}

// hit is a candidate for the result.
type hit struct {
	id     ID
	key    []byte   // key of the index row, nil when the hit is from the list of objects
	value  []byte   // of the primary attribute, in stored form
	number *big.Int // of the primary attribute, in an index of integers
}

// parse splits a key of the index. The hit shares memory with the key.
func (s *search) parse(key []byte) (h hit, ok bool) {
	prefix := len(s.first.Key) + 2
	if len(key) < prefix+32 || !bytes.HasPrefix(key[1:], append([]byte(s.first.Key), 0)) {
		return h, false
	}
	h.key, h.id = key, ID(key[len(key)-32:])
	h.value = key[prefix : len(key)-32]
	if s.integer {
		h.number, ok = integerOf(h.value)
		return h, ok
	}
	if len(h.value) == 0 || h.value[len(h.value)-1] != 0 {
		return h, false
	}
	h.value = h.value[:len(h.value)-1]
	return h, true
}

// indexed yields the rows of the primary filter's index in order. With sorted, it begins at from.
// Unless the result is sorted by attribute, from is an object id, and the filter accepts one value.
func (s *search) indexed(ctx context.Context, from []byte, sorted bool) iter.Seq2[hit, error] {
	return func(yield func(hit, error) bool) {
		sp := s.span
		switch {
		case sorted && from != nil && s.byAttribute():
			sp.from = append([]byte{s.firstByte()}, from...)
		case sorted && from != nil:
			sp.from = append(bytes.Clone(sp.from), from...)
		}
		if sp.to != nil && bytes.Compare(sp.from, sp.to) >= 0 {
			return
		}
		for row, err := range s.tree.rows(ctx, s.meta, sp) {
			var h hit
			if err == nil {
				var ok bool
				if h, ok = s.parse(row.Key); !ok {
					err = corrupt(s.meta, row.Key, "a value of attribute and object", "%d bytes", len(row.Key))
				}
			}
			if err == nil && !s.first.never && s.first.Op == Equal && !bytes.Equal(h.value, s.first.stored) {
				continue // a longer value that contains this one and the separator
			}
			if !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// objects yields all objects from an id on, in order of ids.
func (s *search) objects(ctx context.Context, from []byte) iter.Seq2[hit, error] {
	return func(yield func(hit, error) bool) {
		sp := prefixed([]byte{metaObject})
		sp.from = append([]byte{metaObject}, from...)
		for row, err := range s.tree.rows(ctx, s.meta, sp) {
			var h hit
			if err == nil {
				var ok bool
				if h.id, ok = idOf(row.Key[1:]); !ok {
					err = corrupt(s.meta, row.Key, "an object", "%d bytes", len(row.Key))
				}
			}
			if !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// take collects matching hits until there is one more than a page holds.
func (s *search) take(ctx context.Context, all iter.Seq2[hit, error]) (hits []hit, err error) {
	for h, err := range all {
		if err != nil {
			return nil, err
		}
		ok, err := s.matches(ctx, h)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		h.key, h.value = bytes.Clone(h.key), bytes.Clone(h.value)
		if hits = append(hits, h); len(hits) > s.query.Count {
			break
		}
	}
	return hits, nil
}

// page makes the result from the hits. An extra last hit only shows that there is another page.
func (s *search) page(ctx context.Context, hits []hit) (found []Found, cursor string, err error) {
	if len(hits) > s.query.Count {
		hits = hits[:s.query.Count]
		last := hits[len(hits)-1]
		b := last.id[:]
		if s.byAttribute() {
			b = last.key[1:]
		}
		cursor = base64.StdEncoding.EncodeToString(b)
	}
	for _, h := range hits {
		f := Found{ID: h.id}
		for i, attr := range s.query.Attributes {
			value := ""
			switch {
			case i == 0 && h.number != nil:
				value = h.number.String()
			case i == 0:
				value = printed(attr, h.value)
			default:
				if value, err = s.attribute(ctx, h.id, attr); err != nil {
					return nil, "", fmt.Errorf("search: %w", err)
				}
			}
			f.Attributes = append(f.Attributes, value)
		}
		found = append(found, f)
	}
	return found, cursor, nil
}

// attribute returns an attribute of an object as text. Of several values it returns the least one.
func (s *search) attribute(ctx context.Context, id ID, attr string) (string, error) {
	prefix := metaKey(metaOwn, id[:], []byte(attr), separator)
	for row, err := range s.tree.rows(ctx, s.meta, prefixed(prefix)) {
		if err != nil {
			return "", err
		}
		return printed(attr, row.Key[len(prefix):]), nil
	}
	return "", nil
}
