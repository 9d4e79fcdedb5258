package metabase

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Put stores an object, whose payload is cut off, and on a file where its payload is when storageID
// is not empty. A part with the header of its parent makes the parent known, too. An object that is
// stored already stays as it is, but for its storage id. Neither slice is retained. Errors, in an
// *ObjectError: ErrAlreadyRemoved and ErrExpired, of the object or its parent; base.ErrTooLarge,
// base.ErrInvalid; base.ErrCorrupt for bytes that are no object.
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

// canPut verifies an object, and the one that it is a part of.
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
		parent.Split.ParentHeader = nil // what is a part of a part is not followed
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

// contribution is what a stored object counts.
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

// Reset removes everything from a file and remembers the epoch in which that was done. The caller
// puts the objects again from where they are stored. On a page it removes the catalogue.
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
