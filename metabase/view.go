package metabase

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// View reads a metabase at one moment and in one epoch.
type View struct {
	tree    tree
	epoch   uint64
	version uint64
	local   bool // the rows belong to one node: counters and storage ids are stored
	mends   bool // an unreadable list counts as empty
}

// Tx is a View that can also change the metabase. Invariant M3 says what an error leaves.
type Tx struct{ View }

// Read returns a view, in the given epoch, of the catalogue below Namespace in the rows of r. An
// absent catalogue is empty. Errors: *VersionError, base.ErrCorrupt, those of r.
func Read(ctx context.Context, r ordered.Reader, epoch uint64) (*View, error) {
	v := &View{tree: flat{r: r}, epoch: epoch}
	return v, v.readVersion(ctx)
}

// Write returns a transaction on the catalogue in the rows of w, and creates an absent catalogue.
// The rows have no counters and no storage ids, because these would not merge; Counters and Volume
// count on each call. Errors: as Read.
func Write(ctx context.Context, w ordered.Writer, epoch uint64) (*Tx, error) {
	t := &Tx{View{tree: flat{r: w, w: w}, epoch: epoch}}
	if err := t.readVersion(ctx); err != nil {
		return nil, err
	}
	if has, err := t.sameBytes(ctx, in(kindInfo), []byte(infoVersion), uint64Bytes(newestVersion)); err != nil || has {
		return t, err
	}
	return t, t.setInfo(ctx, infoVersion, newestVersion)
}

// readVersion reads the version of the layout. A metabase without rows has the newest version.
func (v *View) readVersion(ctx context.Context) error {
	n, ok, err := v.info(ctx, infoVersion)
	if err != nil {
		return err
	}
	if !ok {
		n = newestVersion
	}
	if n < oldestVersion || n > newestVersion || !v.local && n != newestVersion {
		return &VersionError{Found: n, Oldest: oldestVersion, Newest: newestVersion}
	}
	v.version = n
	return nil
}

// Epoch returns the epoch in which the view sees objects.
func (v *View) Epoch() uint64 { return v.epoch }

// Version returns the version of the layout, 2 to 4.
func (v *View) Version() uint64 { return v.version }

// info returns a number from the bucket kindInfo.
func (v *View) info(ctx context.Context, key string) (uint64, bool, error) {
	return v.number(ctx, in(kindInfo), []byte(key))
}

// number returns a value that is a little-endian integer of 8 bytes.
func (v *View) number(ctx context.Context, p place, key []byte) (uint64, bool, error) {
	b, ok, err := v.tree.get(ctx, p, key)
	if err != nil || !ok {
		return 0, false, err
	}
	if len(b) != 8 {
		return 0, false, corrupt(p, key, "8 bytes", "%d", len(b))
	}
	return binary.LittleEndian.Uint64(b), true, nil
}

func (t *Tx) setInfo(ctx context.Context, key string, n uint64) error {
	return t.tree.put(ctx, in(kindInfo), []byte(key), uint64Bytes(n))
}

func uint64Bytes(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// has reports whether a row exists.
func (v *View) has(ctx context.Context, p place, key []byte) (bool, error) {
	_, ok, err := v.tree.get(ctx, p, key)
	return ok, err
}

// Status is the reason for which an object is not available.
type Status uint8

// The states of an object.
const (
	Available Status = iota
	GCMarked         // the object or its container is marked for collection
	Removed          // the object has a grave
	Expired          // the object was available up to the previous epoch
)

var statusNames = [...]string{"AVAILABLE", "GC MARKED", "IN GRAVEYARD", "EXPIRED"}

// String returns a name for display.
func (s Status) String() string { return statusNames[s] }

// err returns the error of an operation on an object in this state.
func (s Status) err() error {
	switch s {
	case GCMarked:
		return base.ErrNotFound
	case Removed:
		return ErrAlreadyRemoved
	case Expired:
		return ErrExpired
	}
	return nil
}

// Status returns the state of an address, with or without a stored object. A locked object is
// available.
func (v *View) Status(ctx context.Context, a Address) (Status, error) {
	if locked, err := v.IsLocked(ctx, a); err != nil || locked {
		return Available, err
	}
	if v.epoch > 0 {
		p := attributeIn(a.Container, AttributeExpiration, strconv.FormatUint(v.epoch-1, 10))
		if expired, err := v.has(ctx, p, a.Object[:]); err != nil || expired {
			return Expired, err
		}
	}
	return v.marked(ctx, a)
}

// marked returns the state that follows from graves and marks alone.
func (v *View) marked(ctx context.Context, a Address) (Status, error) {
	key := a.bytes()
	if ok, err := v.has(ctx, in(kindGraves), key); err != nil || ok {
		return Removed, err
	}
	if ok, err := v.has(ctx, in(kindGarbageContainers), a.Container[:]); err != nil || ok {
		return GCMarked, err
	}
	if ok, err := v.has(ctx, in(kindGarbage), key); err != nil || ok {
		return GCMarked, err
	}
	return Available, nil
}

// raw returns the bytes of a stored object, or nil when none is stored.
func (v *View) raw(ctx context.Context, a Address) ([]byte, kind, error) {
	for _, k := range objectKinds {
		b, ok, err := v.tree.get(ctx, of(k, a.Container), a.Object[:])
		if err != nil || ok {
			return b, k, err
		}
	}
	return nil, 0, nil
}

// Stored returns the bytes of a stored object in any state, or nil when none is stored.
func (v *View) Stored(ctx context.Context, a Address) ([]byte, error) {
	b, _, err := v.raw(ctx, a)
	return bytes.Clone(b), objectError("get", a, err)
}

// stored returns a decoded stored object, or nil when none is stored.
func (v *View) stored(ctx context.Context, a Address) (*Object, kind, error) {
	b, k, err := v.raw(ctx, a)
	if b == nil || err != nil {
		return nil, k, err
	}
	o, err := v.decode(b, a, k)
	return o, k, err
}

// decode decodes the row of an object and checks that the object belongs at this address and kind.
func (v *View) decode(b []byte, a Address, k kind) (*Object, error) {
	p := of(k, a.Container)
	o, err := DecodeObject(b)
	if err != nil {
		return nil, &base.CorruptError{Where: "metabase " + p.String(), Key: a.Object.String(), Err: err}
	}
	if o.address() != a || int(o.Type) >= len(typeNames) || kindOf(o.Type) != k {
		return nil, corrupt(p, a.Object[:], typeOf(k).String()+" object "+a.String(), "%s object %s", o.Type, o.address())
	}
	return o, nil
}

// Get returns the bytes of an object without its payload. For a virtual object it returns the
// header that a part carries, or with raw a *SplitInfoError. Errors, in an *ObjectError:
// base.ErrNotFound, ErrAlreadyRemoved, ErrExpired, *SplitInfoError; base.ErrCorrupt.
func (v *View) Get(ctx context.Context, a Address, raw bool) ([]byte, error) {
	status, err := v.Status(ctx, a)
	if err == nil {
		err = status.err()
	}
	if err != nil {
		return nil, objectError("get", a, err)
	}
	b, k, err := v.raw(ctx, a)
	if err == nil && b != nil {
		if _, err = v.decode(b, a, k); err == nil {
			return bytes.Clone(b), nil
		}
	}
	if err == nil {
		b, err = v.getVirtual(ctx, a, raw)
	}
	return b, objectError("get", a, err)
}

func (v *View) getVirtual(ctx context.Context, a Address, raw bool) ([]byte, error) {
	if raw {
		b, ok, err := v.tree.get(ctx, of(kindRoot, a.Container), a.Object[:])
		if err != nil {
			return nil, err
		}
		if !ok || len(b) == 0 {
			return nil, base.ErrNotFound
		}
		return nil, v.splitInfoError(b, a)
	}
	parts, err := v.children(ctx, a)
	if err != nil {
		return nil, err
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].Split != nil && parts[i].Split.ParentHeader != nil {
			return parts[i].parentBytes(), nil
		}
	}
	return nil, base.ErrNotFound
}

func (v *View) splitInfoError(b []byte, a Address) error {
	info, err := DecodeSplitInfo(append([]byte{}, b...))
	if err != nil {
		return &base.CorruptError{Where: "metabase " + of(kindRoot, a.Container).String(), Key: a.Object.String(), Err: err}
	}
	return &SplitInfoError{info}
}

// Exists reports whether an object is stored and available. With ignoreExpiration, expired objects
// count. A virtual object gives a *SplitInfoError. Errors: as Get, and ErrLackSplitInfo.
func (v *View) Exists(ctx context.Context, a Address, ignoreExpiration bool) (bool, error) {
	var status Status
	var err error
	if ignoreExpiration {
		at := *v
		at.epoch = 0
		status, err = at.Status(ctx, a)
	} else {
		status, err = v.Status(ctx, a)
	}
	if err == nil {
		err = status.err()
	}
	if err != nil {
		return false, objectError("look for", a, err)
	}
	b, _, err := v.raw(ctx, a)
	if err != nil || b != nil {
		return b != nil, objectError("look for", a, err)
	}
	parts, err := v.list(ctx, of(kindParent, a.Container), a.Object[:])
	if err != nil || len(parts) == 0 {
		return false, objectError("look for", a, err)
	}
	root, ok, err := v.tree.get(ctx, of(kindRoot, a.Container), a.Object[:])
	if err == nil {
		if err = ErrLackSplitInfo; ok && len(root) > 0 {
			err = v.splitInfoError(root, a)
		}
	}
	return false, objectError("look for", a, err)
}

// StorageID returns the place of an object's payload, as the node that stores it recorded the
// place. It returns nil when none is recorded.
func (v *View) StorageID(ctx context.Context, a Address) ([]byte, error) {
	b, _, err := v.tree.get(ctx, of(kindStorageID, a.Container), a.Object[:])
	if err != nil || b == nil {
		return nil, err
	}
	return append([]byte{}, b...), nil
}

// UpdateStorageID records the place of an object's payload. Errors: base.ErrNotFound;
// base.ErrUnsupported on a page.
func (t *Tx) UpdateStorageID(ctx context.Context, a Address, id []byte) error {
	b, _, err := t.raw(ctx, a)
	switch {
	case err != nil:
	case !t.local:
		err = fmt.Errorf("storage ids are of one device and do not merge: %w", base.ErrUnsupported)
	case b == nil:
		err = base.ErrNotFound
	default:
		err = t.tree.put(ctx, of(kindStorageID, a.Container), a.Object[:], id)
	}
	return objectError("set storage id of", a, err)
}
