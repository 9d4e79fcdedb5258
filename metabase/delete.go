package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
)

// Deleted reports what Delete has removed.
type Deleted struct {
	// Stored counts the objects that were stored. Available counts those of them without grave and
	// mark.
	Stored, Available int
	// Sizes are the payload lengths in bytes, in the order of the arguments; 0 for objects not
	// stored.
	Sizes []uint64
}

// Delete removes objects, all rows that follow from them, and their marks. Graves and locks stay.
// Delete ignores locks. If the bytes of an object are damaged, its metadata rows tell which rows to
// remove.
func (t *Tx) Delete(ctx context.Context, objects ...Address) (Deleted, error) {
	var d Deleted
	for _, a := range objects {
		size, err := t.deleteOne(ctx, a, &d)
		if err != nil {
			return d, objectError("delete", a, err)
		}
		d.Sizes = append(d.Sizes, size)
	}
	return d, nil
}

func (t *Tx) deleteOne(ctx context.Context, a Address, d *Deleted) (uint64, error) {
	status, err := t.marked(ctx, a)
	if err != nil {
		return 0, err
	}
	for _, k := range []kind{kindGarbage, kindToMove} {
		if err := t.tree.delete(ctx, in(k), a.bytes()); err != nil {
			return 0, err
		}
	}
	o, k, err := t.stored(ctx, a)
	if errors.Is(err, base.ErrCorrupt) && k != 0 {
		o, err = t.fromMetadata(ctx, a, k)
	}
	if err != nil || o == nil {
		return 0, err
	}
	d.Stored++
	if status == Available {
		d.Available++
	}
	if err := t.remove(ctx, o, k); err != nil {
		return 0, err
	}
	return o.PayloadBytes, t.count(ctx, a.Container, contribution(o, status), false)
}

// fromMetadata rebuilds an object from its metadata rows.
func (v *View) fromMetadata(ctx context.Context, a Address, k kind) (*Object, error) {
	o := &Object{ID: a.Object, Container: a.Container, Type: typeOf(k)}
	prefix := metaKey(metaOwn, a.Object[:])
	for row, err := range v.tree.rows(ctx, of(kindMetadata, a.Container), prefixed(prefix)) {
		if err != nil {
			return nil, err
		}
		attr, value, ok := bytes.Cut(row.Key[len(prefix):], separator)
		if !ok {
			return nil, corrupt(of(kindMetadata, a.Container), row.Key, "an attribute with a value", "%d bytes", len(row.Key))
		}
		o.setProperty(string(attr), bytes.Clone(value))
	}
	return o, nil
}

// setProperty is the inverse of properties. It ignores invalid values.
func (o *Object) setProperty(attr string, value []byte) {
	split := func() *Split {
		if o.Split == nil {
			o.Split = &Split{}
		}
		return o.Split
	}
	switch attr {
	case attrVersion:
		major, minor, _ := strings.Cut(strings.TrimPrefix(string(value), "v"), ".")
		o.Major, o.Minor = uint32(number(major)), uint32(number(minor))
	case attrOwner:
		o.Owner = value
	case attrEpoch:
		o.CreationEpoch = number(string(value))
	case attrPayloadLength:
		o.PayloadBytes = number(string(value))
	case attrPayloadHash:
		o.PayloadHash, o.hasPayloadHash = value, true
	case attrHomomorphic:
		o.Homomorphic = value
	case attrSplitID:
		split().SplitID = value
	case attrFirst:
		split().First, _ = idOf(value)
	case attrParent:
		split().Parent, _ = idOf(value)
	case attrType, attrRoot, attrPhysical:
	default:
		o.Attributes = append(o.Attributes, Attribute{attr, string(value)})
	}
}

// number parses an integer and returns 0 for invalid text.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// DeleteContainer removes the objects of a container, all rows that follow from them, and the locks
// in the container. Graves and marks stay.
func (t *Tx) DeleteContainer(ctx context.Context, container ID) error {
	sum, err := t.countContainer(ctx, container)
	if err == nil {
		err = t.count(ctx, container, sum, false)
	}
	for _, k := range containerKinds {
		if err == nil && k != kindAttribute {
			err = t.tree.drop(ctx, of(k, container))
		}
	}
	if err == nil {
		var attributes [][]byte
		attributes, err = t.attributeBuckets(ctx, container)
		for _, name := range attributes {
			if err == nil {
				err = t.tree.drop(ctx, place{bucket: name})
			}
		}
	}
	if err == nil {
		err = t.tree.drop(ctx, lockedIn(container))
	}
	if err == nil && t.local {
		err = t.tree.delete(ctx, in(kindVolume), container[:])
	}
	if err != nil {
		return fmt.Errorf("delete container %s: %w", container, err)
	}
	return nil
}

// attributeBuckets returns the names of a container's attribute buckets.
func (v *View) attributeBuckets(ctx context.Context, container ID) (all [][]byte, err error) {
	prefix := of(kindAttribute, container).bucket
	for name, err := range v.tree.names(ctx, nil, prefix) {
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(name, prefix) {
			break
		}
		all = append(all, bytes.Clone(name))
	}
	return all, nil
}
