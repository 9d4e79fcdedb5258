package records

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/rules"
)

// Rule is the rule name of decisions about collections in Page.Conflicts.
const Rule = "records"

// strategy is the rules.GroupStrategy of a collection. A group is a record with its index rows;
// each mark is a group of its own.
type strategy[T any] struct{ c *Collection[T] }

// Name implements rules.GroupStrategy.
func (s *strategy[T]) Name() string { return Rule }

// Group implements rules.GroupStrategy.
func (s *strategy[T]) Group(key []byte) []byte {
	rest := key[len(s.c.prefix):]
	switch {
	case len(rest) > 0 && rest[0] == rowRecord:
		return rest
	case len(rest) > 0 && rest[0] == rowIndex:
		if _, id, err := cutIndexRow(rest[1:]); err == nil {
			return append([]byte{rowRecord}, id...)
		}
	}
	return rest
}

// cutIndexRow splits the part of an index row after 'i': the name of the index, and the id.
func cutIndexRow(b []byte) (index, id []byte, err error) {
	index, rest, err := cutText(b)
	if err == nil {
		_, id, err = cutText(rest)
	}
	return index, id, err
}

// MergeGroup implements rules.GroupStrategy.
func (s *strategy[T]) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	if len(g.Name) < 2 || g.Name[0] != rowRecord {
		return take(ctx, g)
	}
	id := string(g.Name[1:])
	if err := s.record(ctx, m, g, id); err != nil {
		return s.c.explain("merge", id, err)
	}
	return nil
}

// take takes the side that wrote a group last.
func take(ctx context.Context, g *rules.Group) error {
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}

// version is a record on a side, or in the base.
type version[T any] struct {
	row   []byte // nil: absent
	value *T     // nil: absent or unreadable
}

func (s *strategy[T]) version(ctx context.Context, r ledger.Reader, id string) (v version[T], err error) {
	v.row, err = r.Get(ctx, s.c.PageKey(id))
	if errors.Is(err, ledger.ErrNotFound) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	if value, err := s.c.decode(v.row); err == nil {
		v.value = value
	}
	return v, nil
}

// record merges a record and makes its index rows. When it is called, m.Result has the base version
// of all rows of the record that a side has changed; the other rows are equal on all sides.
func (s *strategy[T]) record(ctx context.Context, m *rules.Merge, g *rules.Group, id string) error {
	var of [3]version[T]
	for i, r := range []ledger.Reader{m.Base.Reader, m.Left.Reader, m.Right.Reader} {
		var err error
		if of[i], err = s.version(ctx, r, id); err != nil {
			return err
		}
	}
	result, lost, err := s.merged(ctx, g, id, of[0], of[1], of[2])
	if err != nil {
		return err
	}
	key := s.c.PageKey(id)
	if result.row == nil {
		err = m.Result.Delete(ctx, key)
	} else {
		err = m.Result.Put(ctx, key, result.row)
	}
	if err == nil && lost {
		side := rules.SideBase // a value that neither side had
		switch {
		case equal(result.row, of[1].row):
			side = rules.SideLeft
		case equal(result.row, of[2].row):
			side = rules.SideRight
		}
		err = m.Report(ctx, key, Rule, side)
	}
	if err != nil {
		return err
	}
	return s.index(ctx, m, g, id, of[0].value, result.value)
}

// merged returns the merged record, with a nil row when it is deleted, and whether a change of one
// side is lost.
func (s *strategy[T]) merged(ctx context.Context, g *rules.Group, id string, base, left, right version[T]) (result version[T], lost bool, err error) {
	switch {
	case equal(base.row, right.row):
		return left, false, nil
	case equal(base.row, left.row):
		return right, false, nil
	}
	side, err := g.Newest(ctx)
	if err != nil {
		return result, false, err
	}
	winner := right
	if side == rules.SideLeft {
		winner = left
	}
	known, err := s.baseKnown(ctx, g, id)
	if err != nil {
		return result, false, err
	}
	if left.value == nil || right.value == nil || base.row != nil && base.value == nil {
		return winner, !equal(left.row, right.row), nil
	}
	var from reflect.Value
	switch {
	case base.value != nil:
		from = reflect.ValueOf(base.value).Elem()
	case known:
		from = reflect.ValueOf(new(T)).Elem()
	}
	v, lost := mergeOne(s.c.merge, from, reflect.ValueOf(left.value).Elem(), reflect.ValueOf(right.value).Elem(), side == rules.SideLeft)
	result.value = new(T)
	reflect.ValueOf(result.value).Elem().Set(v)
	if result.row, err = s.c.encode(result.value); err == nil {
		_, err = s.c.indexed(id, result.value)
	}
	if err != nil { // each side's value is within the limits, the merged one is not
		return winner, !equal(left.row, right.row), nil
	}
	return result, lost, nil
}

// baseKnown reports whether the common ancestors have the same version of a record, or all none.
func (s *strategy[T]) baseKnown(ctx context.Context, g *rules.Group, id string) (bool, error) {
	row := s.c.PageKey(id)
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return false, err
		}
		if bytes.Equal(c.Key, row) {
			return !c.BaseUnknown, nil
		}
	}
	return true, nil
}

func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// index makes the index rows of a record match the merged value; base is its value in the base. It
// removes the changed rows of the group, which have the base version now, and unchanged rows of the
// base that no longer apply.
func (s *strategy[T]) index(ctx context.Context, m *rules.Merge, g *rules.Group, id string, base, value *T) error {
	now, _ := s.c.indexed(id, value)
	var there [][]byte
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		if c.Key[len(s.c.prefix)] == rowIndex && c.Base != nil {
			there = append(there, c.Key)
		}
	}
	rows, _ := s.c.indexed(id, base)
	there = append(there, rows...)
	for _, row := range there { // all go, except those of the merged record
		if !contains(now, row) {
			if err := m.Result.Delete(ctx, row); err != nil {
				return err
			}
		}
	}
	return s.c.moveRows(ctx, m.Result, nil, now)
}

// Finish implements rules.GroupStrategy. When both sides changed records, it makes one mark from
// both. When the index rows of a side were made by other functions than this program's, it rebuilds
// all rows. A newer program detects that, and makes its own rows again.
func (s *strategy[T]) Finish(ctx context.Context, m *rules.Merge) error {
	var seed []string // equal on all devices, and unique to this merge
	own, indexed := true, len(s.c.o.Indexes) > 0
	for _, side := range []*ledger.Snapshot{m.Left, m.Right} {
		found, err := s.c.readMarks(ctx, side.Reader)
		if err != nil {
			return err
		}
		own, indexed = own && found.own, indexed || found.indexed
		seed = append(seed, side.Commit().ID.String())
	}
	slices.Sort(seed)
	nonce := sha256.Sum256([]byte(strings.Join(seed, " ")))
	now, err := s.c.readMarks(ctx, m.Result.Reader)
	switch {
	case err != nil || own && now.own || !own && !indexed:
	case own:
		err = s.c.setMark(ctx, m.Result, now, nonce[:12])
	default:
		err = s.c.reindex(ctx, m.Result, nonce[:12])
	}
	if err != nil {
		return fmt.Errorf("make the index rows of collection %q right: %w", s.c.name, err)
	}
	return nil
}
