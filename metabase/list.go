package metabase

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/ledgerd/ledger/internal/base"
)

// Listed is an object in a listing.
type Listed struct {
	Address Address
	Type    Type
}

// listedKinds are the buckets that ListWithCursor lists: all objects but links.
var listedKinds = []kind{kindRegular, kindLock, kindStorageGroup, kindTombstone}

// errListed ends a walk when the page is full.
var errListed = errors.New("listed")

// ListWithCursor returns up to count stored objects by type and address, and a cursor for the next
// page. The cursor "" begins. Links and objects with graves or marks are left out. A cursor stays
// valid when objects are put or removed. Errors: ErrEndOfListing, ErrInvalidCursor,
// base.ErrInvalid, base.ErrCorrupt.
func (v *View) ListWithCursor(ctx context.Context, count int, cursor string) ([]Listed, string, error) {
	if count < 1 {
		return nil, "", fmt.Errorf("list %d objects: %w", count, base.ErrInvalid)
	}
	var bucket, last []byte
	if cursor != "" {
		b, err := base64.StdEncoding.DecodeString(cursor)
		if err != nil || len(b) != 65 || !slices.Contains(listedKinds, kind(b[0])) {
			return nil, "", fmt.Errorf("list objects: %w", ErrInvalidCursor)
		}
		bucket, last = b[:33], b[33:]
	}
	var page []Listed
	err := v.eachBucket(ctx, listedKinds, bucket, func(p place, container ID) error {
		s := span{keysOnly: true}
		if bytes.Equal(p.bucket, bucket) {
			s.from = behind(last)
		}
		return v.listBucket(ctx, p, container, s, count, &page)
	})
	if err != nil && !errors.Is(err, errListed) {
		return nil, "", fmt.Errorf("list objects: %w", err)
	}
	if len(page) == 0 {
		return nil, "", ErrEndOfListing
	}
	at := page[len(page)-1]
	return page, base64.StdEncoding.EncodeToString(append(of(kindOf(at.Type), at.Address.Container).bucket, at.Address.Object[:]...)), nil
}

func (v *View) listBucket(ctx context.Context, p place, container ID, s span, count int, page *[]Listed) error {
	for row, err := range v.tree.rows(ctx, p, s) {
		if err != nil {
			return err
		}
		id, ok := idOf(row.Key)
		if !ok {
			return corrupt(p, row.Key, "an id", "%d bytes", len(row.Key))
		}
		a := Address{container, id}
		status, err := v.marked(ctx, a)
		if err != nil {
			return err
		}
		if status != Available {
			continue
		}
		if *page = append(*page, Listed{a, typeOf(p.kind())}); len(*page) == count {
			return errListed
		}
	}
	return nil
}

// eachBucket calls fn, in order, for the buckets of the given kinds whose names contain a
// container. from is the least name.
func (v *View) eachBucket(ctx context.Context, kinds []kind, from []byte, fn func(p place, container ID) error) error {
	for _, k := range slices.Sorted(slices.Values(kinds)) {
		first := []byte{byte(k)}
		if bytes.Compare(from, first) > 0 {
			first = from
		}
		var buckets [][]byte
		for name, err := range v.tree.names(ctx, nil, first) {
			if err != nil {
				return err
			}
			if name[0] != byte(k) {
				break
			}
			buckets = append(buckets, bytes.Clone(name))
		}
		for _, name := range buckets {
			p := place{bucket: name}
			container, ok := p.container()
			if !ok {
				return corrupt(place{}, name, "the name of a container's bucket", "%d bytes", len(name))
			}
			if err := fn(p, container); err != nil {
				return err
			}
		}
	}
	return nil
}

// Container is a container and the payload bytes of its available regular objects.
type Container struct {
	ID   ID
	Size uint64
}

// Containers returns the containers with objects, sorted by id; in a file also those that had some.
func (v *View) Containers(ctx context.Context) ([]Container, error) {
	ids := map[ID]bool{}
	for row, err := range v.tree.rows(ctx, in(kindVolume), span{keysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		id, ok := idOf(row.Key)
		if !ok {
			return nil, corrupt(in(kindVolume), row.Key, "a container", "%d bytes", len(row.Key))
		}
		ids[id] = true
	}
	err := v.eachBucket(ctx, objectKinds, nil, func(_ place, container ID) error {
		ids[container] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var all []Container
	for id := range ids {
		size, err := v.Volume(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, Container{id, size})
	}
	slices.SortFunc(all, func(a, b Container) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all, nil
}

// Garbages returns up to limit objects that can be deleted: those in marked containers, then marked
// objects. It also returns each marked container whose objects are all among them.
func (v *View) Garbages(ctx context.Context, limit int) (objects []Address, containers []ID, err error) {
	for row, err := range v.tree.rows(ctx, in(kindGarbageContainers), span{keysOnly: true}) {
		if err != nil {
			return nil, nil, fmt.Errorf("list garbage: %w", err)
		}
		id, ok := idOf(row.Key)
		if !ok {
			return nil, nil, corrupt(in(kindGarbageContainers), row.Key, "a container", "%d bytes", len(row.Key))
		}
		for _, k := range objectKinds {
			for row, err := range v.tree.rows(ctx, of(k, id), span{keysOnly: true}) {
				if err != nil {
					return nil, nil, fmt.Errorf("list garbage: %w", err)
				}
				object, ok := idOf(row.Key)
				if !ok {
					return nil, nil, corrupt(of(k, id), row.Key, "an id", "%d bytes", len(row.Key))
				}
				if len(objects) == limit {
					return objects, containers, nil
				}
				objects = append(objects, Address{id, object})
			}
		}
		if len(objects) < limit {
			containers = append(containers, id)
		}
	}
	for a, err := range v.Garbage(ctx, nil) {
		if err != nil {
			return nil, nil, fmt.Errorf("list garbage: %w", err)
		}
		if len(objects) == limit {
			break
		}
		if garbage, err := v.has(ctx, in(kindGarbageContainers), a.Container[:]); err != nil || garbage {
			if err != nil {
				return nil, nil, err
			}
			continue // already listed with its container
		}
		objects = append(objects, a)
	}
	return objects, containers, nil
}

// ExpiredBefore yields the unlocked objects whose last available epoch is before the given one. The
// loop must not write.
func (v *View) ExpiredBefore(ctx context.Context, epoch uint64) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		containers, err := v.Containers(ctx)
		for _, c := range containers {
			bucket := attributeIn(c.ID, AttributeExpiration, "").bucket
			values, namesErr := collect(v.tree.names(ctx, bucket, nil))
			if err = namesErr; err != nil {
				break
			}
			for _, value := range values {
				last, parseErr := strconv.ParseUint(string(value), 10, 64)
				if parseErr != nil || last >= epoch {
					continue
				}
				if !v.expiredIn(ctx, c.ID, place{bucket, value}, yield) {
					return
				}
			}
		}
		if err != nil {
			yield(Listed{}, fmt.Errorf("list expired objects: %w", err))
		}
	}
}

// expiredIn yields the objects with one expiration value. It returns false to end the sequence.
func (v *View) expiredIn(ctx context.Context, container ID, p place, yield func(Listed, error) bool) bool {
	for row, err := range v.tree.rows(ctx, p, span{keysOnly: true}) {
		var l Listed
		if err == nil {
			l, err = v.listed(ctx, container, p, row.Key)
		}
		var locked bool
		if err == nil {
			locked, err = v.IsLocked(ctx, l.Address)
		}
		if err == nil && locked {
			continue
		}
		if !yield(l, err) || err != nil {
			return false
		}
	}
	return true
}

// listed returns an object and its type. An object that is not stored itself counts as regular.
func (v *View) listed(ctx context.Context, container ID, p place, key []byte) (Listed, error) {
	id, ok := idOf(key)
	if !ok {
		return Listed{}, corrupt(p, key, "an id", "%d bytes", len(key))
	}
	a := Address{container, id}
	b, k, err := v.raw(ctx, a)
	if err != nil || b == nil {
		return Listed{a, Regular}, err
	}
	return Listed{a, typeOf(k)}, nil
}
