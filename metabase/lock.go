package metabase

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ledgerd/ledger/ordered"
)

// IsLocked reports whether an object has a lock.
func (v *View) IsLocked(ctx context.Context, a Address) (bool, error) {
	return v.has(ctx, lockedIn(a.Container), a.Object[:])
}

// Lock records that the object locker locks objects of its container. Neither locker nor the
// objects need be stored. Errors, in an *ObjectError: ErrLockNonRegular; then nothing is locked.
func (t *Tx) Lock(ctx context.Context, locker Address, objects ...ID) error {
	for _, id := range objects {
		a := Address{locker.Container, id}
		b, k, err := t.raw(ctx, a)
		if err == nil && b != nil && k != kindRegular {
			err = ErrLockNonRegular
		}
		if err != nil {
			return objectError("lock", a, err)
		}
	}
	for _, id := range objects {
		err := t.changeList(ctx, lockedIn(locker.Container), id[:], func(list [][]byte) [][]byte {
			return addToList(list, locker.Object[:])
		})
		if err != nil {
			return objectError("lock", Address{locker.Container, id}, err)
		}
	}
	return nil
}

// FreeLockedBy removes the locks that lockers hold. It returns the objects that thereby lost their
// last lock. It reads all locks of the lockers' containers.
func (t *Tx) FreeLockedBy(ctx context.Context, lockers ...Address) ([]Address, error) {
	var freed []Address
	for _, locker := range lockers {
		p := lockedIn(locker.Container)
		type change struct {
			object []byte
			list   [][]byte
		}
		var changes []change
		for row, err := range t.tree.rows(ctx, p, span{}) {
			if err != nil {
				return nil, fmt.Errorf("free what %s locks: %w", locker, err)
			}
			list, err := decodeList(row.Value)
			if err != nil {
				return nil, corrupt(p, row.Key, "a list", "%d bytes", len(row.Value))
			}
			if before := len(list); len(removeFromList(list, locker.Object[:])) < before {
				value := bytes.Clone(row.Value)
				list, _ = decodeList(value) // decoding succeeded above
				changes = append(changes, change{bytes.Clone(row.Key), removeFromList(list, locker.Object[:])})
			}
		}
		for _, c := range changes {
			if len(c.list) > 0 {
				if err := t.tree.put(ctx, p, c.object, appendList(nil, c.list)); err != nil {
					return nil, err
				}
				continue
			}
			if err := t.tree.delete(ctx, p, c.object); err != nil {
				return nil, err
			}
			id, ok := idOf(c.object)
			if !ok {
				return nil, corrupt(p, c.object, "an id", "%d bytes", len(c.object))
			}
			freed = append(freed, Address{locker.Container, id})
		}
	}
	return freed, nil
}

// ToMove marks an object for a move to another store.
func (t *Tx) ToMove(ctx context.Context, a Address) error {
	return objectError("mark", a, t.tree.put(ctx, in(kindToMove), a.bytes(), dummy))
}

// DoNotMove removes the mark that ToMove has set.
func (t *Tx) DoNotMove(ctx context.Context, a Address) error {
	return objectError("unmark", a, t.tree.delete(ctx, in(kindToMove), a.bytes()))
}

// Movable returns the objects that ToMove has marked.
func (v *View) Movable(ctx context.Context) ([]Address, error) {
	return addresses(in(kindToMove), v.tree.rows(ctx, in(kindToMove), span{keysOnly: true}))
}

// States returns the states of an address under the names that a node prints: LOCKED; AVAILABLE for
// a regular object that is stored or has parts; IN GRAVEYARD; GC MARKED.
func (v *View) States(ctx context.Context, a Address) (states []string, err error) {
	locked, err := v.IsLocked(ctx, a)
	if err != nil {
		return nil, err
	}
	if locked {
		states = append(states, "LOCKED")
	}
	stored, err := v.has(ctx, of(kindRegular, a.Container), a.Object[:])
	if err == nil && !stored {
		stored, err = v.has(ctx, of(kindParent, a.Container), a.Object[:])
	}
	if err != nil {
		return nil, err
	}
	if stored {
		states = append(states, Available.String())
	}
	marked, err := v.marked(ctx, a)
	if err == nil && marked != Available {
		states = append(states, marked.String())
	}
	return states, err
}

// addresses decodes the keys of rows as addresses.
func addresses(p place, rows func(func(ordered.Row, error) bool)) (all []Address, err error) {
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		a, ok := addressOf(row.Key)
		if !ok {
			return nil, corrupt(p, row.Key, "an address", "%d bytes", len(row.Key))
		}
		all = append(all, a)
	}
	return all, nil
}

// collect copies the names that a sequence yields.
func collect(names func(func([]byte, error) bool)) (all [][]byte, err error) {
	for name, err := range names {
		if err != nil {
			return nil, err
		}
		all = append(all, bytes.Clone(name))
	}
	return all, nil
}
