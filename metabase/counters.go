package metabase

import (
	"context"
	"fmt"
)

// counted are the counters of a set of objects.
type counted struct {
	physical, logical uint64
	volume            uint64
}

// Counters are the numbers of all stored objects, and of those without grave and mark.
type Counters struct{ Physical, Logical uint64 }

// Counters returns the numbers of objects. On a page it reads all objects.
func (v *View) Counters(ctx context.Context) (Counters, error) {
	if v.local {
		physical, _, err := v.info(ctx, infoPhysical)
		if err != nil {
			return Counters{}, err
		}
		logical, _, err := v.info(ctx, infoLogical)
		return Counters{physical, logical}, err
	}
	var sum counted
	err := v.eachBucket(ctx, objectKinds, nil, func(p place, container ID) error { return v.countBucket(ctx, p, container, &sum) })
	return Counters{sum.physical, sum.logical}, err
}

// Volume returns the payload bytes of the available regular objects of a container. On a page it
// reads these objects.
func (v *View) Volume(ctx context.Context, container ID) (uint64, error) {
	if v.local {
		n, _, err := v.number(ctx, in(kindVolume), container[:])
		return n, err
	}
	var sum counted
	err := v.countBucket(ctx, of(kindRegular, container), container, &sum)
	return sum.volume, err
}

// countContainer counts the objects of a container.
func (v *View) countContainer(ctx context.Context, container ID) (counted, error) {
	var sum counted
	for _, k := range objectKinds {
		if err := v.countBucket(ctx, of(k, container), container, &sum); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// countBucket adds the objects of a bucket to sum. An object that cannot be decoded counts as
// stored without payload.
func (v *View) countBucket(ctx context.Context, p place, container ID, sum *counted) error {
	for row, err := range v.tree.rows(ctx, p, span{}) {
		if err != nil {
			return fmt.Errorf("count objects: %w", err)
		}
		id, ok := idOf(row.Key)
		if !ok {
			return corrupt(p, row.Key, "an id", "%d bytes", len(row.Key))
		}
		status, err := v.marked(ctx, Address{container, id})
		if err != nil {
			return err
		}
		o, err := v.decode(row.Value, Address{container, id}, p.kind())
		if err != nil {
			o = &Object{Type: StorageGroup}
		}
		c := contribution(o, status)
		sum.physical += c.physical
		sum.logical += c.logical
		sum.volume += c.volume
	}
	return nil
}

// count adds c to the counters of a file or subtracts it. Counters do not fall below 0, because
// those that a node wrote may be too low.
func (t *Tx) count(ctx context.Context, container ID, c counted, add bool) error {
	if !t.local {
		return nil
	}
	for _, n := range []struct {
		place place
		key   []byte
		by    uint64
	}{
		{in(kindInfo), []byte(infoPhysical), c.physical},
		{in(kindInfo), []byte(infoLogical), c.logical},
		{in(kindVolume), container[:], c.volume},
	} {
		now, ok, err := t.number(ctx, n.place, n.key)
		if err != nil {
			return err
		}
		if n.by == 0 && (ok || !add) {
			continue
		}
		if add {
			now += n.by
		} else {
			now -= min(now, n.by)
		}
		if err := t.tree.put(ctx, n.place, n.key, uint64Bytes(now)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) setCounters(ctx context.Context, c counted) error {
	if err := t.setInfo(ctx, infoPhysical, c.physical); err != nil {
		return err
	}
	return t.setInfo(ctx, infoLogical, c.logical)
}

// SyncCounters counts the objects of a file again and corrects its counters and volumes.
func (t *Tx) SyncCounters(ctx context.Context) error {
	if !t.local {
		return nil
	}
	var sum counted
	volumes := map[ID]uint64{}
	err := t.eachBucket(ctx, objectKinds, nil, func(p place, container ID) error {
		before := sum.volume
		err := t.countBucket(ctx, p, container, &sum)
		volumes[container] += sum.volume - before
		return err
	})
	if err == nil {
		err = t.setCounters(ctx, sum)
	}
	for id, n := range volumes {
		if err == nil {
			err = t.tree.put(ctx, in(kindVolume), id[:], uint64Bytes(n))
		}
	}
	if err != nil {
		return fmt.Errorf("sync counters: %w", err)
	}
	return nil
}
