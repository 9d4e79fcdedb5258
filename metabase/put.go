package metabase

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Put stores an object without its payload. On a file it also records a non-empty storageID, the
// place of the payload. A part that carries its parent's header makes the parent visible. For an
// object that is already stored only the storage id changes. Put does not retain the slices.
// Errors, in an *ObjectError: ErrAlreadyRemoved and ErrExpired, of the object or its parent;
// base.ErrTooLarge, base.ErrInvalid; base.ErrCorrupt for bytes that are no object.
func (t *Tx) Put(ctx context.Context, object, storageID []byte) (Address, error) {
	object, err := withoutPayload(object)
	if err != nil {
		return Address{}, fmt.Errorf("put object: %w", err)
	}
	o, err := DecodeObject(object)
	if err != nil {
		return Address{}, fmt.Errorf("put: %w", err)
	}
	return o.address(), objectError("put", o.address(), t.put(ctx, o, object, storageID))
}

func (t *Tx) put(ctx context.Context, o *Object, b, storageID []byte) error {
	if err := t.canPut(ctx, o); err != nil {
		return err
	}
	a := o.address()
	have, _, err := t.raw(ctx, a)
	if err != nil {
		return err
	}
	if have == nil {
		if err := t.addCounted(ctx, o, b); err != nil {
			return err
		}
	}
	if len(storageID) == 0 {
		return nil
	}
	return t.UpdateStorageID(ctx, a, storageID)
}

// canPut verifies an object and its parent.
func (t *Tx) canPut(ctx context.Context, o *Object) error {
	if err := o.check(); err != nil {
		return err
	}
	if status, err := t.Status(ctx, o.address()); err != nil || status == Removed || status == Expired {
		if err == nil {
			err = status.err()
		}
		return err
	}
	parent, err := o.parent()
	if err != nil || parent == nil {
		return err
	}
	if parent.Container != o.Container || parent.ID == o.ID {
		return fmt.Errorf("parent %s is in another container or the object itself: %w", parent.address(), base.ErrInvalid)
	}
	if parent.Split != nil {
		parent.Split.ParentHeader = nil // the parent of a parent is ignored
	}
	if err := t.canPut(ctx, parent); err != nil {
		return fmt.Errorf("parent %s: %w", parent.ID, err)
	}
	return nil
}

func (t *Tx) addCounted(ctx context.Context, o *Object, b []byte) error {
	if err := t.add(ctx, o, b); err != nil {
		return err
	}
	if !t.local {
		return nil
	}
	status, err := t.marked(ctx, o.address())
	if err != nil {
		return err
	}
	return t.count(ctx, o.Container, contribution(o, status), true)
}

// contribution is the amount that one stored object adds to the counters.
func contribution(o *Object, marked Status) counted {
	c := counted{physical: 1}
	if marked == Available {
		c.logical = 1
		if o.Type == Regular {
			c.volume = o.PayloadBytes
		}
	}
	return c
}

// Reset removes all rows of a file and records the present epoch as the epoch of the resync. The
// caller then puts the objects again. On a page Reset removes the catalogue.
func (t *Tx) Reset(ctx context.Context) error {
	all, err := collect(t.tree.names(ctx, nil, nil))
	for _, name := range all {
		if err == nil {
			err = t.tree.drop(ctx, place{bucket: name})
		}
	}
	if err == nil && t.local {
		err = t.setInfo(ctx, infoResync, t.epoch)
	}
	if err == nil {
		err = t.setInfo(ctx, infoVersion, newestVersion)
	}
	if err == nil && t.local {
		err = t.setCounters(ctx, counted{})
	}
	if err != nil {
		return fmt.Errorf("reset metabase: %w", err)
	}
	t.version = newestVersion
	return nil
}
