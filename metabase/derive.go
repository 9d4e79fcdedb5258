package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/ledgerd/ledger/internal/base"
)

// derivation is the way in which a row refers to an object.
type derivation uint8

const (
	asRow  derivation = iota // the row belongs to the object alone
	inList                   // the object is an item of the list in the value
)

// derived is a row that follows from an object: M1.
type derived struct {
	place place
	key   []byte
	value []byte
	how   derivation
}

// The names of system attributes in searches.
const (
	attrVersion       = "$Object:version"
	attrObjectID      = "$Object:objectID"
	attrContainerID   = "$Object:containerID"
	attrOwner         = "$Object:ownerID"
	attrType          = "$Object:objectType"
	attrEpoch         = "$Object:creationEpoch"
	attrPayloadLength = "$Object:payloadLength"
	attrPayloadHash   = "$Object:payloadHash"
	attrHomomorphic   = "$Object:homomorphicHash"
	attrSplitID       = "$Object:split.splitID"
	attrFirst         = "$Object:split.first"
	attrParent        = "$Object:split.parent"
	attrRoot          = "$Object:ROOT"
	attrPhysical      = "$Object:PHY"
	systemPrefix      = "$Object:"
)

// The first bytes of keys in kindMetadata:
//
//	0 | object
//	1 | attribute | 00 | integer | object
//	2 | attribute | 00 | value | 00 | object
//	3 | object | attribute | 00 | value
const (
	metaObject  = 0
	metaInteger = 1
	metaValue   = 2
	metaOwn     = 3
)

// isRoot reports whether users see the object: it is regular and not a part of another.
func (o *Object) isRoot() bool { return o.Type == Regular && o.Split == nil }

// properties yields the attributes of an object under their names in searches, with values in
// stored form. physical means that the object itself is stored, and not only its parts.
func (o *Object) properties(physical bool) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		system := []struct {
			key   string
			value []byte
			has   bool
		}{
			{attrVersion, fmt.Appendf(nil, "v%d.%d", o.Major, o.Minor), true},
			{attrOwner, o.Owner, true},
			{attrType, []byte(o.Type.String()), true},
			{attrEpoch, strconv.AppendUint(nil, o.CreationEpoch, 10), true},
			{attrPayloadLength, strconv.AppendUint(nil, o.PayloadBytes, 10), true},
			{attrPayloadHash, o.PayloadHash, o.hasPayloadHash},
			{attrHomomorphic, o.Homomorphic, len(o.Homomorphic) > 0},
			{attrRoot, []byte("1"), o.isRoot()},
			{attrPhysical, []byte("1"), physical},
		}
		for _, s := range system {
			if s.has && !yield(s.key, s.value) {
				return
			}
		}
		if s := o.Split; s != nil {
			if len(s.SplitID) > 0 && !yield(attrSplitID, s.SplitID) ||
				!s.First.IsZero() && !yield(attrFirst, s.First[:]) || !s.Parent.IsZero() && !yield(attrParent, s.Parent[:]) {
				return
			}
		}
		for _, a := range o.Attributes {
			if !yield(a.Key, []byte(a.Value)) {
				return
			}
		}
	}
}

// isText reports whether values of an attribute are stored as text, which may be an integer.
func isText(attr string) bool {
	switch attr {
	case attrOwner, attrPayloadHash, attrHomomorphic, attrSplitID, attrFirst, attrParent:
		return false
	}
	return true
}

// metadataRows yields the keys of an object's rows in kindMetadata.
func (o *Object) metadataRows(physical bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(metaKey(metaObject, o.ID[:])) {
			return
		}
		for attr, value := range o.properties(physical) {
			if n, ok := parseInteger(string(value)); ok && isText(attr) && inRange(n) &&
				!yield(metaKey(metaInteger, []byte(attr), separator, integerKey(n), o.ID[:])) {
				return
			}
			if !yield(metaKey(metaValue, []byte(attr), separator, value, separator, o.ID[:])) ||
				!yield(metaKey(metaOwn, o.ID[:], []byte(attr), separator, value)) {
				return
			}
		}
	}
}

var separator = []byte{0}

func metaKey(first byte, parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	b := append(make([]byte, 0, n), first)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// rows yields all rows that follow from an object, without the row of the object itself. A virtual
// object's row in kindRoot follows from its parts and is left out. Versions before 4 have no rows
// in kindMetadata.
func (o *Object) rows(physical bool) iter.Seq[derived] {
	return func(yield func(derived) bool) {
		id, c := o.ID[:], o.Container
		if physical && o.isRoot() && !yield(derived{of(kindRoot, c), id, nil, asRow}) {
			return
		}
		if len(o.PayloadHash) > 0 && !yield(derived{of(kindPayloadHash, c), o.PayloadHash, id, inList}) {
			return
		}
		if s := o.Split; s != nil {
			if !s.Parent.IsZero() && !yield(derived{of(kindParent, c), s.Parent[:], id, inList}) ||
				len(s.SplitID) > 0 && !yield(derived{of(kindSplitID, c), s.SplitID, id, inList}) ||
				!s.First.IsZero() && !yield(derived{of(kindFirst, c), s.First[:], id, inList}) {
				return
			}
		}
		if !yield(derived{of(kindOwner, c).at([]byte(base58(o.Owner))), id, dummy, asRow}) {
			return
		}
		for _, a := range o.Attributes {
			if !yield(derived{attributeIn(c, a.Key, a.Value), id, dummy, asRow}) {
				return
			}
		}
		meta := of(kindMetadata, c)
		for key := range o.metadataRows(physical) {
			if !yield(derived{meta, key, nil, asRow}) {
				return
			}
		}
	}
}

// index writes the rows that follow from an object.
func (t *Tx) index(ctx context.Context, o *Object, physical bool) error {
	for d := range o.rows(physical) {
		if d.how == asRow {
			if err := t.tree.put(ctx, d.place, d.key, d.value); err != nil {
				return err
			}
			continue
		}
		if err := t.changeList(ctx, d.place, d.key, func(list [][]byte) [][]byte { return addToList(list, d.value) }); err != nil {
			return err
		}
	}
	return nil
}

// unindex removes the rows that index writes.
func (t *Tx) unindex(ctx context.Context, o *Object, physical bool) error {
	for d := range o.rows(physical) {
		if d.how == asRow {
			if err := t.tree.delete(ctx, d.place, d.key); err != nil {
				return err
			}
			continue
		}
		if err := t.changeList(ctx, d.place, d.key, func(list [][]byte) [][]byte { return removeFromList(list, d.value) }); err != nil {
			return err
		}
	}
	return nil
}

// list returns the items of a list, or none when the row is absent.
func (v *View) list(ctx context.Context, p place, key []byte) ([][]byte, error) {
	b, _, err := v.tree.get(ctx, p, key)
	if err != nil {
		return nil, err
	}
	items, err := decodeList(b)
	if err != nil && !v.mends {
		return nil, corrupt(p, key, "a list", "%d bytes", len(b))
	}
	return items, nil
}

// changeList changes a list and removes an empty one. In a file new items are last. On a page lists
// are sorted, so that they follow from the objects in whichever order these were added.
func (t *Tx) changeList(ctx context.Context, p place, key []byte, change func([][]byte) [][]byte) error {
	items, err := t.list(ctx, p, key)
	if err != nil {
		return err
	}
	before := len(items)
	if items = change(items); len(items) == before {
		return nil
	}
	if len(items) == 0 {
		return t.tree.delete(ctx, p, key)
	}
	return t.putList(ctx, p, key, items)
}

func (t *Tx) putList(ctx context.Context, p place, key []byte, items [][]byte) error {
	if !t.local {
		slices.SortFunc(items, bytes.Compare)
	}
	return t.tree.put(ctx, p, key, appendList(nil, items))
}

// children returns the stored parts of a parent in the order of the list. It skips parts that
// cannot be decoded.
func (v *View) children(ctx context.Context, parent Address) ([]*Object, error) {
	p := of(kindParent, parent.Container)
	items, err := v.list(ctx, p, parent.Object[:])
	if err != nil {
		return nil, err
	}
	var parts []*Object
	for _, item := range items {
		id, _ := idOf(item)
		part, _, err := v.stored(ctx, Address{parent.Container, id})
		if err != nil && !errors.Is(err, base.ErrCorrupt) {
			return nil, err
		}
		if err == nil && part != nil {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// virtual returns a virtual object as decoded from the first part with the parent's header, and the
// split information that all such parts give together. It returns nil when no part has the header.
func (v *View) virtual(ctx context.Context, a Address) (*Object, SplitInfo, error) {
	var found *Object
	var info SplitInfo
	parts, err := v.children(ctx, a)
	if err != nil {
		return nil, info, err
	}
	for _, part := range parts {
		o, err := part.parent()
		if err != nil || o == nil || o.Container != a.Container {
			continue
		}
		if found == nil {
			found = o
		}
		info.merge(part.splitInfo())
	}
	return found, info, nil
}

// reindexParent rewrites the rows of a virtual object after a change of its parts. before is the
// result of virtual before the change.
func (t *Tx) reindexParent(ctx context.Context, a Address, before *Object) error {
	after, info, err := t.virtual(ctx, a)
	if err != nil {
		return err
	}
	if before != nil {
		if err := t.unindex(ctx, before, false); err != nil {
			return err
		}
	}
	root := of(kindRoot, a.Container)
	if after == nil {
		if before == nil {
			return nil
		}
		return t.tree.delete(ctx, root, a.Object[:])
	}
	if err := t.index(ctx, after, false); err != nil {
		return err
	}
	return t.tree.put(ctx, root, a.Object[:], info.Marshal())
}

// add writes an object that is not stored, and all rows that follow from it; remove does the
// opposite. Neither changes counters.
func (t *Tx) add(ctx context.Context, o *Object, b []byte) error {
	return t.aroundParent(ctx, o, func() error {
		if err := t.tree.put(ctx, of(kindOf(o.Type), o.Container), o.ID[:], b); err != nil {
			return err
		}
		return t.index(ctx, o, true)
	})
}

func (t *Tx) remove(ctx context.Context, o *Object, k kind) error {
	return t.aroundParent(ctx, o, func() error {
		if err := t.tree.delete(ctx, of(k, o.Container), o.ID[:]); err != nil {
			return err
		}
		if err := t.tree.delete(ctx, of(kindStorageID, o.Container), o.ID[:]); err != nil {
			return err
		}
		return t.unindex(ctx, o, true)
	})
}

// aroundParent calls change, which adds or removes a part, and updates the rows of the parent.
func (t *Tx) aroundParent(ctx context.Context, o *Object, change func() error) error {
	if o.Split == nil || o.Split.Parent.IsZero() {
		return change()
	}
	parent := Address{o.Container, o.Split.Parent}
	before, _, err := t.virtual(ctx, parent)
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	stored, _, err := t.stored(ctx, parent)
	if err != nil || stored != nil {
		return err // the parent is also stored whole, and its rows follow from that
	}
	return t.reindexParent(ctx, parent, before)
}

// sameBytes reports whether the value of a row is b.
func (v *View) sameBytes(ctx context.Context, p place, key, b []byte) (bool, error) {
	have, ok, err := v.tree.get(ctx, p, key)
	return ok && bytes.Equal(have, b), err
}
