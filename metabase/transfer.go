package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// primaryKinds are the buckets whose rows do not follow from others, in an order in which rows can
// be put.
var primaryKinds = []kind{
	kindRegular, kindLock, kindStorageGroup, kindTombstone, kindLink, kindLocked, kindGraves, kindGarbage, kindGarbageContainers, kindToMove,
}

// primary is a row that does not follow from other rows.
type primary struct {
	place      place
	key, value []byte
}

// primaries yields the rows that Import copies. Rows are borrowed. The loop must not write to v.
func (v *View) primaries(ctx context.Context) iter.Seq2[primary, error] {
	return func(yield func(primary, error) bool) {
		for _, k := range primaryKinds {
			err := v.eachPlace(ctx, k, func(p place) error {
				for row, err := range v.tree.rows(ctx, p, span{}) {
					if err != nil {
						return err
					}
					if !yield(primary{p, row.Key, row.Value}, nil) {
						return errStop
					}
				}
				return nil
			})
			if err != nil {
				if !errors.Is(err, errStop) {
					yield(primary{}, err)
				}
				return
			}
		}
	}
}

// eachPlace calls fn for each bucket of a primary kind.
func (v *View) eachPlace(ctx context.Context, k kind, fn func(place) error) error {
	switch {
	case slices.Contains(objectKinds, k):
		return v.eachBucket(ctx, []kind{k}, nil, func(p place, _ ID) error { return fn(p) })
	case k == kindLocked:
		containers, err := collect(v.tree.names(ctx, in(k).bucket, nil))
		for _, name := range containers {
			if err == nil {
				err = fn(in(k).at(name))
			}
		}
		return err
	}
	return fn(in(k))
}

// Import adds the objects, locks, graves and marks of another metabase of any version. It derives
// all other rows. It does not copy local data: counters, storage ids, the shard id. Rows that t
// already has stay; lists of locks are united. Errors: base.ErrCorrupt, which names the row;
// *ObjectError for objects that Put would refuse. After an error the caller rolls the transaction
// back.
func (t *Tx) Import(ctx context.Context, from *View) error {
	for row, err := range from.primaries(ctx) {
		if err == nil {
			err = t.importRow(ctx, from, row)
		}
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	if !t.local {
		return nil
	}
	return t.SyncCounters(ctx)
}

// importBatch is how many rows a transaction of File.Import writes.
const importBatch = 1000

// Import is Tx.Import in several transactions, for metabases of any size. After a failure the file
// has some of the rows, and its counters are wrong until Import or Tx.SyncCounters is called again.
func (f *File) Import(ctx context.Context, from *View) error {
	var batch []primary
	flush := func() error {
		defer func() { batch = batch[:0] }()
		return f.Update(ctx, func(t *Tx) error {
			for _, row := range batch {
				if err := t.importRow(ctx, from, row); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for row, err := range from.primaries(ctx) {
		if err == nil {
			row.key, row.value = bytes.Clone(row.key), bytes.Clone(row.value)
			if batch = append(batch, row); len(batch) == importBatch {
				err = flush()
			}
		}
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	if err := flush(); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return f.Update(ctx, func(t *Tx) error { return t.SyncCounters(ctx) })
}

func (t *Tx) importRow(ctx context.Context, from *View, row primary) error {
	p, key, value := row.place, bytes.Clone(row.key), bytes.Clone(row.value)
	has, err := t.has(ctx, p, key)
	if err != nil {
		return err
	}
	if k := p.kind(); slices.Contains(objectKinds, k) {
		return t.importObject(ctx, from, row, has)
	} else if k == kindLocked {
		return t.importLocks(ctx, p, key, value)
	} else if k == kindGraves {
		g, ok := decodeGrave(value)
		if _, known := addressOf(key); !ok || !known {
			return corrupt(p, key, "a grave", "%d bytes for %d", len(value), len(key))
		}
		if len(value) == 64 {
			g.expiration = from.epoch + graveLifetime
		}
		value = g.bytes()
	} else if want := 64; len(key) != want && (k != kindGarbageContainers || len(key) != 32) {
		return corrupt(p, key, "an address or a container", "%d bytes", len(key))
	}
	if has {
		return nil
	}
	return t.tree.put(ctx, p, key, value)
}

func (t *Tx) importObject(ctx context.Context, from *View, row primary, has bool) error {
	container, _ := row.place.container()
	id, ok := idOf(row.key)
	if !ok {
		return corrupt(row.place, row.key, "an object's id", "%d bytes", len(row.key))
	}
	o, err := from.decode(bytes.Clone(row.value), Address{container, id}, row.place.kind())
	if err != nil || has {
		return err
	}
	if err := o.check(); err != nil {
		return objectError("import", o.address(), err)
	}
	if parent, err := o.parent(); err != nil || parent != nil && parent.check() != nil {
		return objectError("import", o.address(), fmt.Errorf("header of its parent: %w", base.ErrCorrupt))
	}
	return t.add(ctx, o, bytes.Clone(row.value))
}

func (t *Tx) importLocks(ctx context.Context, p place, key, value []byte) error {
	items, err := decodeList(value)
	if err != nil || len(p.nested) != 32 || len(key) != 32 {
		return corrupt(p, key, "a list of locks", "%d bytes", len(value))
	}
	return t.changeList(ctx, p, key, func(list [][]byte) [][]byte {
		for _, item := range items {
			list = addToList(list, item)
		}
		return list
	})
}
