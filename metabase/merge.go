package metabase

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/ordered"
)

// The first bytes of group names. Groups are merged in this order.
const (
	groupParts     = 'P' // the lists of parts, from which the rows of virtual objects follow
	groupAddress   = 'a' // then container and object: the object, its grave, marks and locks
	groupContainer = 'c' // then the container: its garbage mark
	groupDerived   = 'd' // all rows that follow from other rows
	groupInfo      = 'i' // then the key
	groupUnknown   = 'u'
)

// GroupOf returns the name of the group in which a row is merged. It depends on the row's key
// alone. Groups are merged in bytewise order of their names.
func GroupOf(key []byte) []byte {
	p, k, err := placeOf(key)
	if err != nil {
		return []byte{groupUnknown}
	}
	container, ofContainer := p.container()
	switch kind := p.kind(); {
	case (slices.Contains(objectKinds, kind) || kind == kindLocked) && ofContainer && len(k) == 32:
		return append(append([]byte{groupAddress}, container[:]...), k...)
	case (kind == kindGraves || kind == kindGarbage || kind == kindToMove) && len(k) == 64:
		return append([]byte{groupAddress}, k...)
	case kind == kindGarbageContainers && len(k) == 32:
		return append([]byte{groupContainer}, k...)
	case kind == kindInfo && len(k) < 32:
		return append([]byte{groupInfo}, k...)
	case kind == kindParent && ofContainer:
		return []byte{groupParts}
	case ofContainer && kind != kindLocked:
		return []byte{groupDerived}
	}
	return []byte{groupUnknown}
}

// Change is a row of a group that a side of a merge has changed. A value is nil where the row is
// absent.
type Change struct {
	Key, Base, Left, Right []byte
	// BaseUnknown reports that several bases disagree about the row. Base is then nil.
	BaseUnknown bool
}

// The rules that a merge reports.
const (
	// RuleCorrupt decides between two contents of one object, which only damage can cause.
	RuleCorrupt = "metabase: two contents of one object"
	// RuleLockWins reports that a lock keeps an object available that the other side has removed.
	RuleLockWins = "metabase: locked and removed"
)

// GroupMerge is the merge of one group of changes.
type GroupMerge struct {
	// Name is the result of GroupOf.
	Name []byte
	// SeveralBases reports that the merge has several bases, so changes may have BaseUnknown.
	SeveralBases bool
	Changes      iter.Seq2[Change, error]
	// Report is called with the key of each row for which a rule made a decision.
	Report func(key []byte, rule string)
}

// Merge merges the group into w, where each changed row has the base's value until its group is
// merged. Objects, marks and locks merge as sets: additions and removals of both sides apply. Rows
// that follow from objects are derived. known is false for groups outside of a catalogue; Merge
// then does nothing. The result does not depend on which side is left.
func (g *GroupMerge) Merge(ctx context.Context, w ordered.Writer) (known bool, err error) {
	m := &merge{Tx: Tx{View{tree: flat{r: w, w: w}, version: newestVersion, mends: true}}, report: g.Report}
	row := m.row
	switch g.Name[0] {
	case groupUnknown:
		return false, nil
	case groupParts:
		row = m.parts
	case groupDerived:
		m.verifier = &verifier{View: &m.View, owned: map[Address]map[string][]byte{}}
		row = m.derived
	}
	if (g.Name[0] == groupParts || g.Name[0] == groupDerived) && !g.SeveralBases {
		return true, nil
	}
	for c, err := range g.Changes {
		if err == nil {
			err = row(ctx, c)
		}
		if err != nil {
			return true, fmt.Errorf("merge catalogue: %w", err)
		}
	}
	if m.graveKey != nil && m.lockKey != nil {
		return true, m.both(ctx)
	}
	return true, nil
}

// merge is a running merge of one group.
type merge struct {
	Tx
	report            func(key []byte, rule string)
	graveKey, lockKey []byte // of rows that a side has changed
	verifier          *verifier
}

// parts restores a list of parts about which several bases disagree, from the parts that all bases
// have. The merge of each disputed part then adds that part.
func (m *merge) parts(ctx context.Context, c Change) error {
	if !c.BaseUnknown {
		return nil
	}
	p, key, err := placeOf(c.Key)
	if err != nil {
		return err
	}
	container, _ := p.container()
	var list [][]byte
	for _, item := range m.items(c, nil) {
		id, _ := idOf(item)
		o, _, err := m.stored(ctx, Address{container, id})
		if err == nil && o != nil && o.Split != nil && bytes.Equal(o.Split.Parent[:], key) {
			list = append(list, item)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return m.tree.put(ctx, p, key, appendList(nil, list))
}

// items returns the sorted union of both sides' lists and of now.
func (m *merge) items(c Change, now []byte) (all [][]byte) {
	for _, b := range [][]byte{c.Left, c.Right, now} {
		items, err := decodeList(b)
		if err != nil {
			continue // the list is derived, so nothing is lost
		}
		for _, item := range items {
			all = addToList(all, item)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}

// derived derives a row about which several bases disagree. All other derived rows are correct
// already.
func (m *merge) derived(ctx context.Context, c Change) error {
	if !c.BaseUnknown {
		return nil
	}
	p, key, err := placeOf(c.Key)
	if err != nil {
		return err
	}
	container, _ := p.container()
	if p.kind().lists() {
		now, _, err := m.tree.get(ctx, p, key)
		if err != nil {
			return err
		}
		var list [][]byte
		for _, item := range m.items(c, now) {
			id, _ := idOf(item)
			owned, err := m.verifier.ownedBy(ctx, Address{container, id})
			if err != nil {
				return err
			}
			if _, ok := owned[rowKey(p, key, item)]; ok {
				list = append(list, item)
			}
		}
		if len(list) == 0 {
			return m.tree.delete(ctx, p, key)
		}
		return m.tree.put(ctx, p, key, appendList(nil, list))
	}
	id, _ := ownerOf(p.kind(), key)
	owned, err := m.verifier.ownedBy(ctx, Address{container, id})
	if err != nil {
		return err
	}
	value, ok := owned[rowKey(p, key, nil)]
	if !ok {
		return m.tree.delete(ctx, p, key)
	}
	return m.tree.put(ctx, p, key, value)
}

func (m *merge) row(ctx context.Context, c Change) error {
	p, key, err := placeOf(c.Key)
	if err != nil {
		return err
	}
	switch k := p.kind(); {
	case slices.Contains(objectKinds, k):
		return m.object(ctx, p, key, c)
	case k == kindLocked:
		m.lockKey = bytes.Clone(c.Key)
		return m.set(ctx, p, key, mergeLists(c))
	case k == kindGraves:
		m.graveKey = bytes.Clone(c.Key)
		return m.set(ctx, p, key, mergeGraves(c))
	case k == kindInfo:
		return m.set(ctx, p, key, mergeNumbers(c))
	}
	return m.set(ctx, p, key, c.member())
}

func (m *merge) set(ctx context.Context, p place, key, value []byte) error {
	if value == nil {
		return m.tree.delete(ctx, p, key)
	}
	return m.tree.put(ctx, p, key, value)
}

// member merges a row that is a member of a set. An addition or change by one side counts. A
// removal counts unless the other side has changed the row. If the two sides have different values,
// a changed value wins over the base's value; of two changed values the lesser one wins.
func (c Change) member() []byte {
	switch {
	case c.Left == nil && c.Right == nil:
		return nil
	case c.Left == nil || c.Right == nil:
		one := c.Left
		if one == nil {
			one = c.Right
		}
		if c.Base != nil && bytes.Equal(one, c.Base) {
			return nil
		}
		return one
	case bytes.Equal(c.Left, c.Right) || c.Base != nil && bytes.Equal(c.Left, c.Base):
		return c.Right
	case c.Base != nil && bytes.Equal(c.Right, c.Base), bytes.Compare(c.Left, c.Right) < 0:
		return c.Left
	}
	return c.Right
}

// object writes the merged object and the rows that follow from it.
func (m *merge) object(ctx context.Context, p place, key []byte, c Change) error {
	value := c.member()
	if c.Left != nil && c.Right != nil && !bytes.Equal(c.Left, c.Right) {
		m.report(c.Key, RuleCorrupt)
	}
	container, _ := p.container()
	a := Address{container, ID(key)}
	if c.Base != nil && !bytes.Equal(c.Base, value) {
		if o, err := m.decode(bytes.Clone(c.Base), a, p.kind()); err == nil {
			if err := m.remove(ctx, o, p.kind()); err != nil {
				return err
			}
		}
	}
	if value == nil || bytes.Equal(c.Base, value) {
		return m.set(ctx, p, key, value)
	}
	o, err := m.decode(bytes.Clone(value), a, p.kind())
	if err == nil {
		_, err = o.parent()
	}
	if err != nil || o.check() != nil {
		return m.set(ctx, p, key, value) // the derived rows are unknown; Verify reports the object
	}
	return m.add(ctx, o, value)
}

// mergeLists applies the additions and removals of both sides to a list. It merges an unreadable
// value as a whole.
func mergeLists(c Change) []byte {
	var lists [3][][]byte
	for i, b := range [][]byte{c.Base, c.Left, c.Right} {
		list, err := decodeList(b)
		if err != nil {
			return c.member()
		}
		lists[i] = list
	}
	has := func(list [][]byte, item []byte) bool {
		return slices.ContainsFunc(list, func(have []byte) bool { return bytes.Equal(have, item) })
	}
	var merged [][]byte
	for _, item := range append(slices.Clone(lists[1]), lists[2]...) {
		if !has(lists[0], item) || has(lists[1], item) && has(lists[2], item) {
			merged = addToList(merged, item)
		}
	}
	if len(merged) == 0 {
		return nil
	}
	slices.SortFunc(merged, bytes.Compare)
	return appendList(nil, merged)
}

// mergeGraves returns the grave with the later epoch, then the one with the greater tombstone.
func mergeGraves(c Change) []byte {
	left, ok := decodeGrave(c.Left)
	right, both := decodeGrave(c.Right)
	if !ok || !both {
		return c.member()
	}
	switch {
	case left.expiration != right.expiration:
		if left.expiration > right.expiration {
			return c.Left
		}
		return c.Right
	case bytes.Compare(c.Left, c.Right) > 0:
		return c.Left
	}
	return c.Right
}

// mergeNumbers returns the greater number.
func mergeNumbers(c Change) []byte {
	if len(c.Left) != 8 || len(c.Right) != 8 {
		return c.member()
	}
	if binary.LittleEndian.Uint64(c.Left) > binary.LittleEndian.Uint64(c.Right) {
		return c.Left
	}
	return c.Right
}

// both reports an object that has a lock and a grave after this merge, if a side changed either.
func (m *merge) both(ctx context.Context) error {
	for _, row := range [][]byte{m.graveKey, m.lockKey} {
		p, key, err := placeOf(row)
		if err != nil {
			return err
		}
		if has, err := m.has(ctx, p, key); err != nil || !has {
			return err
		}
	}
	m.report(m.graveKey, RuleLockWins)
	return nil
}
