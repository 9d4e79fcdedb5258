package metabase

import (
	"bytes"
	"context"
	"fmt"
)

// graveLifetime is how many epochs a grave of version 2 is kept after its migration.
const graveLifetime = 5

// migrateBatch is how many rows a transaction of a migration reads.
const migrateBatch = 1000

// migration is a step from one version to the next, run in several transactions. step reads rows
// from a position on and returns the next position, or nil at the end.
type migration struct {
	from uint64
	step func(ctx context.Context, t *Tx, at *position) (*position, error)
}

// position is where a migration continues: at the first row of bucket whose key is at least key.
type position struct{ bucket, key []byte }

var migrations = []migration{
	{2, migrateGraves},
	{3, migrateMetadata},
}

// migrate migrates a file to the newest version. A step writes only missing rows and writes its
// version last, so an interrupted migration can begin again without loss: M4.
func (f *File) migrate(ctx context.Context) error {
	for _, m := range migrations {
		at := &position{}
		for at != nil {
			err := f.update(ctx, func(t *Tx) (err error) {
				if t.version != m.from {
					at = nil
					return nil
				}
				if at, err = m.step(ctx, t, at); err == nil && at == nil {
					err = t.setInfo(ctx, infoVersion, m.from+1)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("migrate metabase from version %d to %d: %w", m.from, m.from+1, err)
			}
		}
	}
	return nil
}

// migrateGraves adds an expiration to each grave without one.
func migrateGraves(ctx context.Context, t *Tx, at *position) (*position, error) {
	p := in(kindGraves)
	var old [][2][]byte
	read := 0
	var next *position
	for row, err := range t.tree.rows(ctx, p, span{from: at.key}) {
		if err != nil {
			return nil, err
		}
		if read++; read > migrateBatch {
			next = &position{key: bytes.Clone(row.Key)}
			break
		}
		if len(row.Value) == 64 {
			old = append(old, [2][]byte{bytes.Clone(row.Key), bytes.Clone(row.Value)})
		}
	}
	for _, row := range old {
		g, _ := decodeGrave(row[1])
		g.expiration = t.epoch + graveLifetime
		if err := t.tree.put(ctx, p, row[0], g.bytes()); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// migrateMetadata writes the kindMetadata rows of objects, stored whole or in parts. It skips
// objects that cannot be decoded or that Put would refuse.
func migrateMetadata(ctx context.Context, t *Tx, at *position) (*position, error) {
	var batch []*Object
	read := 0
	var next *position
	err := t.eachBucket(ctx, objectKinds, at.bucket, func(p place, container ID) error {
		s := span{}
		if bytes.Equal(p.bucket, at.bucket) {
			s.from = at.key
		}
		for row, err := range t.tree.rows(ctx, p, s) {
			if err != nil || next != nil {
				return err
			}
			if read++; read > migrateBatch {
				next = &position{bytes.Clone(p.bucket), bytes.Clone(row.Key)}
				return errStop
			}
			id, ok := idOf(row.Key)
			if !ok {
				continue
			}
			if o, err := t.decode(bytes.Clone(row.Value), Address{container, id}, p.kind()); err == nil {
				batch = append(batch, o)
			}
		}
		return nil
	})
	if err != nil && next == nil {
		return nil, err
	}
	for _, o := range batch {
		if err := t.addMetadata(ctx, o, true); err != nil {
			return nil, err
		}
		parent, err := o.parent()
		if err != nil || parent == nil || parent.Container != o.Container {
			continue
		}
		if stored, _, err := t.raw(ctx, parent.address()); err != nil || stored != nil {
			if err != nil {
				return nil, err
			}
			continue // the parent has its own turn as a stored object
		}
		if err := t.addMetadata(ctx, parent, false); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (t *Tx) addMetadata(ctx context.Context, o *Object, physical bool) error {
	if o.check() != nil {
		return nil
	}
	p := of(kindMetadata, o.Container)
	if has, err := t.has(ctx, p, metaKey(metaObject, o.ID[:])); err != nil || has {
		return err
	}
	for key := range o.metadataRows(physical) {
		if err := t.tree.put(ctx, p, key, nil); err != nil {
			return err
		}
	}
	return nil
}
