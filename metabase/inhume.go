package metabase

import (
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
)

// Inhume gives each object a grave and a garbage mark. The grave holds the tombstone and the last
// epoch of the grave. Objects may belong to any container and need not be stored. An object that is
// the tombstone of another grave is skipped. The result is the number of objects that were stored
// without grave and mark. Errors, in an *ObjectError, before any change: ErrObjectLocked,
// ErrLockRemoval.
func (t *Tx) Inhume(ctx context.Context, tombstone Address, expiration uint64, objects ...Address) (int, error) {
	if err := t.removable(ctx, objects); err != nil {
		return 0, err
	}
	available := 0
	for _, a := range objects {
		used, err := t.isTombstone(ctx, a)
		if err != nil {
			return available, objectError("remove", a, err)
		}
		if used {
			continue
		}
		was, err := t.changeMarks(ctx, a, func() error {
			if err := t.tree.put(ctx, in(kindGraves), a.bytes(), grave{tombstone, expiration}.bytes()); err != nil {
				return err
			}
			return t.tree.put(ctx, in(kindGarbage), a.bytes(), dummy)
		})
		if err != nil {
			return available, objectError("remove", a, err)
		}
		available += was
	}
	return available, objectError("unearth", tombstone, t.tree.delete(ctx, in(kindGraves), tombstone.bytes()))
}

// removable verifies that no object is locked or locks others.
func (t *Tx) removable(ctx context.Context, objects []Address) error {
	for _, a := range objects {
		locked, err := t.IsLocked(ctx, a)
		if err == nil && locked {
			err = ErrObjectLocked
		}
		if err == nil {
			if locks, hasErr := t.has(ctx, of(kindLock, a.Container), a.Object[:]); hasErr != nil || locks {
				if err = hasErr; err == nil {
					err = ErrLockRemoval
				}
			}
		}
		if err != nil {
			return objectError("remove", a, err)
		}
	}
	return nil
}

// isTombstone reports whether a grave names a. It reads the graves only when a is a stored
// tombstone or is not stored.
func (t *Tx) isTombstone(ctx context.Context, a Address) (bool, error) {
	b, k, err := t.raw(ctx, a)
	if err != nil || b != nil && k != kindTombstone {
		return false, err
	}
	for g, err := range t.Graveyard(ctx, nil) {
		if err != nil || g.Tombstone == a {
			return err == nil, err
		}
	}
	return false, nil
}

// changeMarks calls change, which adds or removes marks of an object, and updates the counters. It
// returns 1 when the object was stored without grave and mark.
func (t *Tx) changeMarks(ctx context.Context, a Address, change func() error) (int, error) {
	o, _, err := t.stored(ctx, a)
	if err != nil {
		return 0, err
	}
	before, err := t.marked(ctx, a)
	if err != nil {
		return 0, err
	}
	if err := change(); err != nil || o == nil {
		return 0, err
	}
	after, err := t.marked(ctx, a)
	if err != nil {
		return 0, err
	}
	if err := t.count(ctx, a.Container, contribution(o, before), false); err != nil {
		return 0, err
	}
	if before == Available {
		return 1, t.count(ctx, a.Container, contribution(o, after), true)
	}
	return 0, t.count(ctx, a.Container, contribution(o, after), true)
}

// MarkGarbage marks objects for collection, without graves. With force it ignores locks. It returns
// how many objects were stored without grave and mark, and which objects lock others. The caller
// must free the locks of these lockers. Errors: as Inhume.
func (t *Tx) MarkGarbage(ctx context.Context, force bool, objects ...Address) (available int, lockers []Address, err error) {
	if !force {
		if err := t.removable(ctx, objects); err != nil {
			return 0, nil, err
		}
	}
	for _, a := range objects {
		was, err := t.changeMarks(ctx, a, func() error { return t.tree.put(ctx, in(kindGarbage), a.bytes(), dummy) })
		if err != nil {
			return available, lockers, objectError("mark", a, err)
		}
		available += was
		locks, err := t.has(ctx, of(kindLock, a.Container), a.Object[:])
		if err != nil {
			return available, lockers, objectError("mark", a, err)
		}
		if locks {
			lockers = append(lockers, a)
		}
	}
	return available, lockers, nil
}

// InhumeContainer marks a container for collection and returns how many available objects that
// removes.
func (t *Tx) InhumeContainer(ctx context.Context, container ID) (uint64, error) {
	sum, err := t.countContainer(ctx, container)
	if err == nil {
		err = t.tree.put(ctx, in(kindGarbageContainers), container[:], dummy)
	}
	if err == nil {
		sum.physical = 0 // the objects are still stored
		err = t.count(ctx, container, sum, false)
	}
	if err != nil {
		return 0, fmt.Errorf("remove container %s: %w", container, err)
	}
	return sum.logical, nil
}

// Revival reports what Revive has removed.
type Revival struct {
	// Tombstone is the tombstone that the grave named, nil when there was no grave.
	Tombstone *Address
}

// Revive removes the grave and the mark of an object. Errors, in an *ObjectError: base.ErrNotFound
// when it has neither, and ErrAlreadyRemoved when its container is marked for collection.
func (t *Tx) Revive(ctx context.Context, a Address) (Revival, error) {
	garbage, err := t.has(ctx, in(kindGarbageContainers), a.Container[:])
	if err == nil && garbage {
		err = ErrAlreadyRemoved
	}
	if err != nil {
		return Revival{}, objectError("revive", a, err)
	}
	var r Revival
	marked, err := t.has(ctx, in(kindGarbage), a.bytes())
	if err != nil {
		return r, objectError("revive", a, err)
	}
	b, dead, err := t.tree.get(ctx, in(kindGraves), a.bytes())
	if err == nil && !dead && !marked {
		err = fmt.Errorf("it was not removed: %w", base.ErrNotFound)
	}
	if err == nil && dead {
		g, ok := decodeGrave(b)
		if !ok {
			err = corrupt(in(kindGraves), a.bytes(), "a grave", "%d bytes", len(b))
		}
		r.Tombstone = &g.tombstone
	}
	if err == nil {
		_, err = t.changeMarks(ctx, a, func() error {
			if err := t.tree.delete(ctx, in(kindGraves), a.bytes()); err != nil {
				return err
			}
			return t.tree.delete(ctx, in(kindGarbage), a.bytes())
		})
	}
	return r, objectError("revive", a, err)
}

// Grave is the record of a removed object.
type Grave struct {
	Object, Tombstone Address
	// Expiration is the last epoch in which the grave is kept.
	Expiration uint64
}

// Graveyard yields the graves after the address offset, or all graves when offset is nil. The loop
// must not write.
func (v *View) Graveyard(ctx context.Context, offset *Address) iter.Seq2[Grave, error] {
	return func(yield func(Grave, error) bool) {
		p := in(kindGraves)
		for row, err := range v.tree.rows(ctx, p, offsetSpan(offset)) {
			var g Grave
			if err == nil {
				value, ok := decodeGrave(row.Value)
				object, known := addressOf(row.Key)
				if g = (Grave{object, value.tombstone, value.expiration}); !ok || !known {
					err = corrupt(p, row.Key, "a grave", "%d bytes for %d", len(row.Value), len(row.Key))
				}
			}
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
}

// Garbage yields the marked objects after offset, or all of them when offset is nil. The loop must
// not write.
func (v *View) Garbage(ctx context.Context, offset *Address) iter.Seq2[Address, error] {
	return func(yield func(Address, error) bool) {
		p := in(kindGarbage)
		for row, err := range v.tree.rows(ctx, p, offsetSpan(offset)) {
			var a Address
			if err == nil {
				var ok bool
				if a, ok = addressOf(row.Key); !ok {
					err = corrupt(p, row.Key, "an address", "%d bytes", len(row.Key))
				}
			}
			if !yield(a, err) || err != nil {
				return
			}
		}
	}
}

func offsetSpan(offset *Address) span {
	if offset == nil {
		return span{}
	}
	return span{from: behind(offset.bytes())}
}

// DropExpiredGraves removes the graves that expired before the given epoch and returns their
// number. The marks stay.
func (t *Tx) DropExpiredGraves(ctx context.Context, epoch uint64) (int, error) {
	var expired []Address
	for g, err := range t.Graveyard(ctx, nil) {
		if err != nil {
			return 0, fmt.Errorf("drop graves: %w", err)
		}
		if g.Expiration < epoch {
			expired = append(expired, g.Object)
		}
	}
	for _, a := range expired {
		if _, err := t.changeMarks(ctx, a, func() error { return t.tree.delete(ctx, in(kindGraves), a.bytes()) }); err != nil {
			return 0, objectError("drop the grave of", a, err)
		}
	}
	return len(expired), nil
}
