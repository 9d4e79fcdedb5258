package metabase

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strconv"
)

// presence records which kinds of marks occur in a container, so that a search skips the lookup of
// other kinds for each object.
type presence struct {
	container                       ID
	locks, expired, graves, garbage bool
	all                             bool // the container is marked for collection
}

func (v *View) look(ctx context.Context, container ID) (p presence, err error) {
	p.container = container
	any := func(to *bool, in place, prefix []byte) {
		if err != nil {
			return
		}
		for _, rowErr := range v.tree.rows(ctx, in, prefixed(prefix)) {
			*to, err = rowErr == nil, rowErr
			return
		}
	}
	any(&p.locks, lockedIn(container), nil)
	if v.epoch > 0 {
		any(&p.expired, attributeIn(container, AttributeExpiration, strconv.FormatUint(v.epoch-1, 10)), nil)
	}
	any(&p.graves, in(kindGraves), container[:])
	any(&p.garbage, in(kindGarbage), container[:])
	if err == nil {
		p.all, err = v.has(ctx, in(kindGarbageContainers), container[:])
	}
	return p, err
}

// available reports whether an object is available.
func (s *search) available(ctx context.Context, id ID) (bool, error) {
	p := s.present
	if !p.all && !p.expired && !p.graves && !p.garbage {
		return true, nil
	}
	status, err := s.Status(ctx, Address{p.container, id})
	return status == Available, err
}

// matches reports whether a hit meets all filters and is available. The caller has already
// restricted index keys to the bounds of the primary filter.
func (s *search) matches(ctx context.Context, h hit) (bool, error) {
	for _, key := range s.order {
		var ok bool
		var err error
		if group := s.groups[key]; h.key != nil && key == s.first.Key && (h.number == nil || allNumeric(group)) {
			ok = h.meets(group)
		} else {
			ok, err = s.ownMeets(ctx, h.id, key, group)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return s.available(ctx, h.id)
}

func allNumeric(group []*condition) bool {
	return !slices.ContainsFunc(group, func(c *condition) bool { return !c.Op.numeric() })
}

// meets reports whether the value in the index meets all conditions.
func (h *hit) meets(group []*condition) bool {
	return !slices.ContainsFunc(group, func(c *condition) bool {
		if h.number != nil {
			return !c.matchNumber(h.number)
		}
		return c.Op == Absent || !c.match(h.value)
	})
}

// ownMeets reports whether one value of an object's attribute meets all conditions. Without a value
// it reports whether all conditions are Absent.
func (s *search) ownMeets(ctx context.Context, id ID, attr string, group []*condition) (bool, error) {
	meets := func(value []byte) bool {
		return !slices.ContainsFunc(group, func(c *condition) bool { return c.Op == Absent || !c.match(value) })
	}
	prefix := metaKey(metaOwn, id[:], []byte(attr), separator)
	if i := slices.IndexFunc(group, func(c *condition) bool { return c.Op == Equal }); i >= 0 {
		if !meets(group[i].stored) {
			return false, nil
		}
		return s.has(ctx, s.meta, append(prefix, group[i].stored...))
	}
	absent := true
	for row, err := range s.tree.rows(ctx, s.meta, prefixed(prefix)) {
		if err != nil {
			return false, err
		}
		absent = false
		if meets(row.Key[len(prefix):]) {
			return true, nil
		}
	}
	return absent && !slices.ContainsFunc(group, func(c *condition) bool { return c.Op != Absent }), nil
}

// raceSteps is the number of rows that each side of a race reads in turn.
const raceSteps = 64

// race finds the first matching objects by id, for a primary filter whose index has another order.
// It alternates two scans. A scan of all objects by id ends early when many match. A scan of the
// whole index ends early when few match. The scan that ends first gives the page.
func (s *search) race(ctx context.Context, from []byte) ([]hit, error) {
	nextObject, stopObjects := iter.Pull2(s.objects(ctx, from))
	defer stopObjects()
	nextIndexed, stopIndex := iter.Pull2(s.indexed(ctx, nil, false))
	defer stopIndex()
	var inOrder, least []hit
	for {
		for range raceSteps {
			h, err, ok := nextObject()
			if !ok || len(inOrder) > s.query.Count {
				return inOrder, nil
			}
			if err == nil {
				ok, err = s.matches(ctx, h)
			}
			if err != nil {
				return nil, err
			}
			if ok {
				inOrder = append(inOrder, h)
			}
		}
		for range raceSteps {
			h, err, ok := nextIndexed()
			if !ok {
				return least, nil
			}
			if err == nil {
				least, err = s.keepLeast(ctx, least, h, from)
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// keepLeast inserts a matching hit into the least hits by id, and keeps one more than a page holds.
func (s *search) keepLeast(ctx context.Context, least []hit, h hit, from []byte) ([]hit, error) {
	i, found := slices.BinarySearchFunc(least, h, func(a, b hit) int { return bytes.Compare(a.id[:], b.id[:]) })
	if found || i > s.query.Count || bytes.Compare(h.id[:], from) < 0 {
		return least, nil
	}
	if ok, err := s.matches(ctx, h); err != nil || !ok {
		return least, err
	}
	least = slices.Insert(least, i, hit{id: h.id})
	return least[:min(len(least), s.query.Count+1)], nil
}
