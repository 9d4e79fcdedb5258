package metabase

import (
	"bytes"
	"context"
	"slices"
	"strconv"
)

// derivedRows verifies that each derived row follows from an object.
func (w *verifier) derivedRows(ctx context.Context) error {
	var kinds []kind
	for _, k := range containerKinds {
		if !slices.Contains(objectKinds, k) {
			kinds = append(kinds, k)
		}
	}
	return w.eachBucket(ctx, kinds, nil, func(p place, container ID) error {
		if p.kind() != kindOwner && p.kind() != kindAttribute {
			return w.bucket(ctx, p, container)
		}
		values, err := collect(w.tree.names(ctx, p.bucket, nil))
		if err != nil {
			return err
		}
		for _, value := range values {
			if err := w.bucket(ctx, p.at(value), container); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *verifier) bucket(ctx context.Context, p place, container ID) error {
	for row, err := range w.tree.rows(ctx, p, span{keysOnly: !p.kind().lists()}) {
		if err != nil {
			return err
		}
		if p.kind().lists() {
			err = w.listRow(ctx, p, container, bytes.Clone(row.Key), row.Value)
		} else {
			err = w.row(ctx, p, container, bytes.Clone(row.Key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// row verifies a row that belongs to one object.
func (w *verifier) row(ctx context.Context, p place, container ID, key []byte) error {
	drop := func(ctx context.Context, t *Tx) error { return t.tree.delete(ctx, p, key) }
	id, ok := ownerOf(p.kind(), key)
	if !ok {
		return w.report(p, key, drop, "row of no object")
	}
	owned, err := w.ownedBy(ctx, Address{container, id})
	if err != nil {
		return err
	}
	if _, ok := owned[rowKey(p, key, nil)]; owned == nil || ok {
		return nil
	}
	return w.report(p, key, drop, "row does not follow from object %s", id)
}

// ownerOf returns the object to which a row belongs.
func ownerOf(k kind, key []byte) (ID, bool) {
	switch {
	case k != kindMetadata:
		return idOf(key)
	case len(key) < 33:
		return ID{}, false
	case key[0] == metaObject:
		return idOf(key[1:])
	case key[0] == metaOwn:
		return idOf(key[1:33])
	}
	return idOf(key[len(key)-32:])
}

// listRow verifies that a list is readable, has no duplicates, and has only items that follow from
// objects.
func (w *verifier) listRow(ctx context.Context, p place, container ID, key, value []byte) error {
	items, err := decodeList(value)
	if err != nil {
		return w.report(p, key, func(ctx context.Context, t *Tx) error { return t.tree.delete(ctx, p, key) }, "no list")
	}
	var good [][]byte
	for _, item := range items {
		id, ok := idOf(item)
		if ok {
			owned, err := w.ownedBy(ctx, Address{container, id})
			if err != nil {
				return err
			}
			_, ok = owned[rowKey(p, key, item)]
			ok = ok || owned == nil
		}
		if ok {
			good = addToList(good, bytes.Clone(item))
		}
	}
	if len(good) == len(items) && len(items) > 0 {
		return nil
	}
	return w.report(p, key, func(ctx context.Context, t *Tx) error {
		return t.mendList(ctx, p, key, func([][]byte) [][]byte { return good })
	}, "%d of %d items of the list do not follow from objects", len(items)-len(good), len(items))
}

func rowKey(p place, key, item []byte) string {
	return string(appendList(nil, [][]byte{p.bucket, p.nested, key, item}))
}

// ownedBy returns the rows that follow from an object, with their values. It returns nil when
// damage of the object's bytes makes the rows unknown.
func (w *verifier) ownedBy(ctx context.Context, a Address) (map[string][]byte, error) {
	if owned, ok := w.owned[a]; ok {
		return owned, nil
	}
	owned := map[string][]byte{}
	b, k, err := w.raw(ctx, a)
	if err != nil {
		return nil, err
	}
	o := (*Object)(nil)
	if b != nil {
		if o, err = w.decode(b, a, k); err != nil {
			owned = nil
		}
		if owned != nil {
			owned[rowKey(of(kindStorageID, a.Container), a.Object[:], nil)] = nil
		}
	}
	if b == nil {
		var info SplitInfo
		o, info, err = w.virtual(ctx, a)
		if err != nil {
			owned, o = nil, nil // a part is damaged
		}
		if o != nil {
			owned[rowKey(of(kindRoot, a.Container), a.Object[:], nil)] = info.Marshal()
		}
	}
	if o != nil && owned != nil {
		for d := range w.expected(o, b != nil) {
			if d.how == inList {
				owned[rowKey(d.place, d.key, d.value)] = nil
			} else {
				owned[rowKey(d.place, d.key, nil)] = d.value
			}
		}
	}
	if len(w.owned) >= maxOwned {
		clear(w.owned)
	}
	w.owned[a] = owned
	return owned, nil
}

// counters verifies the counters and volumes of a file.
func (w *verifier) counters(ctx context.Context) error {
	if !w.local {
		return nil
	}
	var sum counted
	err := w.eachBucket(ctx, objectKinds, nil, func(p place, container ID) error {
		before := sum.volume
		if err := w.countBucket(ctx, p, container, &sum); err != nil || p.kind() != kindRegular {
			return err
		}
		return w.counter(ctx, in(kindVolume), container[:], sum.volume-before)
	})
	if err == nil {
		err = w.counter(ctx, in(kindInfo), []byte(infoPhysical), sum.physical)
	}
	if err == nil {
		err = w.counter(ctx, in(kindInfo), []byte(infoLogical), sum.logical)
	}
	return err
}

func printNumber(n uint64) string { return strconv.FormatUint(n, 10) }

func (w *verifier) counter(ctx context.Context, p place, key []byte, want uint64) error {
	b, _, err := w.tree.get(ctx, p, key)
	if err != nil {
		return err
	}
	if bytes.Equal(b, uint64Bytes(want)) {
		return nil
	}
	got := "has " + rowName(b)
	if n, _, err := w.number(ctx, p, key); err == nil {
		got = "is " + printNumber(n)
	}
	return w.report(p, key, func(ctx context.Context, t *Tx) error { return t.tree.put(ctx, p, key, uint64Bytes(want)) },
		"counter %s, the objects are %d", got, want)
}
