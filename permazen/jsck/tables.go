package jsck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// tablesPart checks all rows before those of objects. If the tables are uncertain, it reports every
// issue as lasting and sets result.Stopped.
func (c *checker) tablesPart(ctx context.Context) error {
	t := tableCheck{checker: c, schemas: map[uint32]*layout.Schema{}, numbers: map[uint32]string{}, broken: map[uint32][]byte{}, ids: map[string]uint32{}}
	for _, step := range []func(context.Context) error{t.format, t.readTables, t.duplicates, t.match, t.lost} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !t.stop {
		tables, err := layout.New(t.schemas, t.ids)
		if err != nil {
			return err
		}
		c.tables = tables
	}
	for _, i := range t.issues {
		i.Lasting = i.Lasting || t.stop
		if err := c.tell(ctx, i); err != nil {
			return err
		}
	}
	c.result.Stopped = t.stop
	return nil
}

// tableCheck collects the issues of the tables, so that repairs begin after the complete check.
type tableCheck struct {
	*checker
	issues  []Issue
	stop    bool
	schemas map[uint32]*layout.Schema
	numbers map[uint32]string // SchemaIds by storage id
	broken  map[uint32][]byte // values, by storage id, that are no SchemaId
	ids     map[string]uint32
}

func (t *tableCheck) add(i Issue) { t.issues = append(t.issues, i) }

// fatal adds an issue that prevents the decoding of objects.
func (t *tableCheck) fatal(i Issue) {
	i.Lasting, t.stop = true, true
	t.add(i)
}

// collect adds an issue for each row of a range.
func (t *tableCheck) collect(ctx context.Context, rg ordered.Range, text string) error {
	return t.scan(ctx, rg, func(key, value []byte) error {
		t.add(invalidKey(key, value, text))
		return nil
	})
}

func (t *tableCheck) format(ctx context.Context) error {
	key := layout.FormatKey()
	value, err := t.r.Get(ctx, key)
	switch {
	case errors.Is(err, base.ErrNotFound):
		if empty, err := t.empty(ctx); empty || err != nil {
			return errors.Join(err, layout.ErrUninitialized)
		}
		t.add(Issue{Kind: MissingKey, Key: key, New: layout.FormatValue(), Text: "the format version is missing"})
	case err != nil:
		return err
	default:
		v, n, err := encoding.Uint(value)
		switch {
		case err == nil && n == len(value) && v != layout.FormatVersion && v != 0:
			return fmt.Errorf("format version is %d, want %d: %w", v, layout.FormatVersion, base.ErrUnsupported)
		case !bytes.Equal(value, layout.FormatValue()):
			t.add(invalidValue(key, value, layout.FormatValue(), "the format version is no number above 0"))
		}
	}
	schemas, storage, objects := layout.SchemaTable[:], layout.StorageTable[:], layout.ObjectsTable[:]
	return errors.Join(
		t.collect(ctx, ordered.Range{End: key}, "there are no rows before the format version"),
		t.collect(ctx, ordered.Range{Start: append(clone(key), 0), End: schemas}, "there are no rows between the format version and the schemas"),
		t.collect(ctx, ordered.Range{Start: ordered.PrefixEnd(storage), End: objects}, "there are no rows between the storage ids and the schema index"),
		t.collect(ctx, ordered.Range{Start: ordered.PrefixEnd(objects), End: layout.UserRows[:]}, "there are no rows between the schema index and the rows of the app"),
	)
}

// empty reports whether the tables have no rows.
func (t *tableCheck) empty(ctx context.Context) (bool, error) {
	key, err := t.first(ctx, ordered.Range{Start: layout.SchemaTable[:], End: ordered.PrefixEnd(layout.StorageTable[:])})
	return key == nil, err
}

func (t *tableCheck) readTables(ctx context.Context) error {
	err := t.scan(ctx, ordered.Prefix(layout.SchemaTable[:]), func(key, value []byte) error {
		n, err := layout.ParseNumber(key[2:])
		if err != nil {
			t.add(invalidKey(key, value, err.Error()))
			return nil
		}
		m, err := layout.ParseSchema(value)
		if err != nil {
			t.fatal(invalidValue(key, value, nil, err.Error()))
			return nil
		}
		t.schemas[n] = &layout.Schema{Index: n, Model: m, Stored: clone(value)}
		return nil
	})
	if err != nil {
		return err
	}
	return t.scan(ctx, ordered.Prefix(layout.StorageTable[:]), func(key, value []byte) error {
		n, err := layout.ParseNumber(key[2:])
		if err != nil {
			t.add(invalidKey(key, value, err.Error()))
			return nil
		}
		if t.numbers[n], err = layout.ParseSchemaID(value); err != nil {
			delete(t.numbers, n)
			t.broken[n] = clone(value)
		}
		return nil
	})
}

// rowsWith reports whether any key has a prefix.
func (t *tableCheck) rowsWith(ctx context.Context, prefix []byte) (bool, error) {
	key, err := t.first(ctx, ordered.Prefix(prefix))
	return key != nil, err
}

// duplicates removes duplicate schemas and storage ids if at most one of each is in use.
func (t *tableCheck) duplicates(ctx context.Context) error {
	byID := map[string][]uint32{}
	for _, n := range slices.Sorted(maps.Keys(t.schemas)) {
		id := t.schemas[n].Model.ID()
		byID[id] = append(byID[id], n)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		err := t.keepOne(ctx, byID[id], layout.ObjectsPrefix, func(n uint32, kept bool) {
			i := Issue{Kind: InvalidKey, Key: layout.SchemaKey(n), Old: t.schemas[n].Stored, Text: "the schema is there twice"}
			if kept {
				t.fatal(i)
			} else {
				t.add(i)
			}
			delete(t.schemas, n)
		})
		if err != nil {
			return err
		}
	}
	numbers := map[string][]uint32{}
	for _, n := range slices.Sorted(maps.Keys(t.numbers)) {
		numbers[t.numbers[n]] = append(numbers[t.numbers[n]], n)
	}
	for _, id := range slices.Sorted(maps.Keys(numbers)) {
		prefix := func(n uint32) []byte { return encoding.AppendUint(nil, n) }
		err := t.keepOne(ctx, numbers[id], prefix, func(n uint32, kept bool) {
			i := t.storageIssue(n, nil, "the SchemaId "+id+" is there twice")
			if kept {
				t.fatal(i)
			} else {
				t.add(i)
			}
			delete(t.numbers, n)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepOne keeps the first of several numbers that has rows, or the first number. It calls drop for
// all others; kept reports that the dropped number has rows too.
func (t *tableCheck) keepOne(ctx context.Context, all []uint32, prefix func(uint32) []byte, drop func(n uint32, kept bool)) error {
	if len(all) < 2 {
		return nil
	}
	keep, used := all[0], map[uint32]bool{}
	for _, n := range slices.Backward(all) {
		var err error
		if used[n], err = t.rowsWith(ctx, prefix(n)); err != nil {
			return err
		}
		if used[n] {
			keep = n
		}
	}
	for _, n := range all {
		if n != keep {
			drop(n, used[n])
		}
	}
	return nil
}

// storageIssue returns an issue of a storage id's row.
func (t *tableCheck) storageIssue(n uint32, to []byte, text string) Issue {
	key := layout.StorageKey(n)
	old := t.broken[n]
	if id, ok := t.numbers[n]; ok {
		old = layout.SchemaIDValue(id)
	}
	if to != nil {
		return invalidValue(key, old, to, text)
	}
	return invalidKey(key, old, text)
}

// match assigns a storage id to every item of the schemas.
func (t *tableCheck) match(ctx context.Context) error {
	wanted := map[string]*layout.Schema{}
	for _, n := range slices.Sorted(maps.Keys(t.schemas)) {
		for _, id := range t.schemas[n].Model.IDs() {
			wanted[id] = t.schemas[n]
		}
	}
	var unused []uint32 // numbers without an item
	for _, n := range slices.Sorted(maps.Keys(t.numbers)) {
		if id := t.numbers[n]; wanted[id] != nil {
			t.ids[id] = n
		} else {
			unused = append(unused, n)
		}
	}
	unused = append(unused, slices.Sorted(maps.Keys(t.broken))...)
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := t.ids[id]; !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 1 && len(unused) == 1 { // the row was damaged
		t.ids[missing[0]] = unused[0]
		t.add(t.storageIssue(unused[0], layout.SchemaIDValue(missing[0]), "no schema has this SchemaId, and "+missing[0]+" has no storage id"))
		return nil
	}
	if len(missing) == 1 && len(unused) == 0 && t.holes() < 2 { // the row is missing, and only one number is possible
		wanted[missing[0]].Model.Number(t.ids)
		key := layout.StorageKey(t.ids[missing[0]])
		t.add(Issue{Kind: MissingKey, Key: key, New: layout.SchemaIDValue(missing[0]), Text: missing[0] + " has no storage id"})
		return nil
	}
	for _, id := range missing {
		t.fatal(Issue{Kind: MissingKey, Key: layout.StorageTable[:], Text: id + " has no storage id"})
	}
	for _, n := range unused {
		i := t.storageIssue(n, nil, "no schema has this SchemaId")
		used := false
		if strings.HasPrefix(t.numbers[n], "ObjectType_") || t.broken[n] != nil {
			var err error
			if used, err = t.rowsWith(ctx, encoding.AppendUint(nil, n)); err != nil {
				return err
			}
		}
		if used {
			t.fatal(i)
		} else {
			t.add(i)
		}
	}
	return nil
}

// holes returns the number of unused storage ids below the greatest one.
func (t *tableCheck) holes() int {
	greatest := uint32(0)
	for _, n := range t.ids {
		greatest = max(greatest, n)
	}
	return int(greatest) - len(t.ids)
}

// lost reports schemas that objects have but that are missing in the table.
func (t *tableCheck) lost(ctx context.Context) error {
	told := map[uint32]bool{}
	rg := ordered.Prefix(layout.ObjectsTable[:])
	for {
		key, err := t.first(ctx, rg)
		if key == nil || err != nil {
			return err
		}
		index, id, err := layout.ParseObjectsRow(key)
		if err == nil && (t.schemas[index] != nil || told[index]) {
			rg.Start = ordered.PrefixEnd(layout.ObjectsPrefix(index))
			continue
		}
		rg.Start = append(key, 0)
		if err != nil {
			continue
		}
		value, err := t.r.Get(ctx, id[:])
		if err != nil && !errors.Is(err, base.ErrNotFound) {
			return err
		}
		if has, _, bad := layout.ParseMeta(value); err == nil && bad == nil && has == index {
			told[index] = true
			t.fatal(Issue{Kind: MissingKey, Key: layout.SchemaKey(index), Text: fmt.Sprintf("objects have schema %d, which is missing", index)})
		}
	}
}

// first returns the first key of a range, or nil.
func (c *checker) first(ctx context.Context, rg ordered.Range) ([]byte, error) {
	rg.KeysOnly = true
	it := c.r.Iter(rg)
	defer it.Close()
	if !it.Next(ctx) {
		return nil, it.Err()
	}
	return clone(it.Key()), nil
}
