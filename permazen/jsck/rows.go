package jsck

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// buckets is the number of parts into which index rows are divided. wantBytes is about how many
// bytes of keys the row-by-row comparison keeps in memory.
const (
	buckets   = 1 << 12
	wantBytes = 64 << 20
)

// sums are, for each bucket, the hashes of expected index rows less the hashes of existing ones.
type sums struct {
	seed  maphash.Seed
	diff  [buckets]uint64
	bytes [buckets]int64 // of expected keys
}

func (s *sums) hash(key []byte) (bucket int, h uint64) {
	h = maphash.Bytes(s.seed, key)
	return int(h >> 52), h
}

// wrong returns the buckets with nonzero sums, in groups that each fit into memory.
func (s *sums) wrong() (groups []map[int]bool) {
	size := int64(0)
	for b, d := range s.diff {
		if d == 0 {
			continue
		}
		if len(groups) == 0 || size+s.bytes[b] > wantBytes {
			groups, size = append(groups, map[int]bool{}), 0
		}
		groups[len(groups)-1][b] = true
		size += s.bytes[b]
	}
	return groups
}

// rowsPart checks objects and index rows.
func (c *checker) rowsPart(ctx context.Context) error {
	c.sums.seed = maphash.MakeSeed()
	expect := func(key []byte) {
		b, h := c.sums.hash(key)
		c.sums.diff[b] += h
		c.sums.bytes[b] += int64(len(key))
	}
	w := &walk{checker: c, expect: expect, tell: c.tell}
	index := func(key, value []byte) {
		c.result.Rows++
		if len(value) == 0 { // lookInto handles rows with a value
			b, h := c.sums.hash(key)
			c.sums.diff[b] -= h
		} else {
			b, _ := c.sums.hash(key)
			c.sums.diff[b] += 1 << 32 // makes the sum nonzero, so lookInto reads the bucket
		}
	}
	err := c.scan(ctx, ordered.Prefix(layout.ObjectsTable[:]), func(key, value []byte) error {
		index(key, value)
		return nil
	})
	if err != nil {
		return err
	}
	err = c.scan(ctx, ordered.Range{Start: []byte{1}}, func(key, value []byte) error {
		id, _, err := encoding.StrictUint(key)
		switch {
		case err == nil && c.tables.Index(id) != nil:
			index(key, value)
			return nil
		case err == nil && c.tables.IsType(id):
			return w.row(ctx, key, value)
		}
		return c.tell(ctx, invalidKey(key, value, "no type and no index has such keys"))
	})
	if err != nil {
		return err
	}
	w.end()
	c.result.Rows += w.rows
	c.result.Objects = w.objects
	for _, group := range c.sums.wrong() {
		if err := c.lookInto(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// lookInto compares the index rows of some buckets row by row.
func (c *checker) lookInto(ctx context.Context, group map[int]bool) error {
	want := map[string]bool{}
	silent := func(context.Context, Issue) error { return nil }
	w := &walk{checker: c, tell: silent, expect: func(key []byte) {
		if b, _ := c.sums.hash(key); group[b] {
			want[string(key)] = true
		}
	}}
	for _, n := range c.ids(c.tables.IsType) {
		err := c.scan(ctx, ordered.Prefix(encoding.AppendUint(nil, n)), func(key, value []byte) error {
			return w.row(ctx, key, value)
		})
		if err != nil {
			return err
		}
	}
	w.end()
	check := func(key, value []byte) error {
		if b, _ := c.sums.hash(key); !group[b] {
			return nil
		}
		if !want[string(key)] {
			text, err := c.explain(ctx, key)
			if err != nil {
				return err
			}
			return c.tell(ctx, invalidKey(key, value, text))
		}
		delete(want, string(key))
		if len(value) > 0 {
			return c.tell(ctx, invalidValue(key, value, []byte{}, c.name(key)+": the value of an index row is not empty"))
		}
		return nil
	}
	prefixes := [][]byte{layout.ObjectsTable[:]}
	for _, n := range c.tables.Indexes() {
		prefixes = append(prefixes, encoding.AppendUint(nil, n))
	}
	for _, p := range prefixes {
		if err := c.scan(ctx, ordered.Prefix(p), check); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		i := Issue{Kind: MissingKey, Key: []byte(key), New: []byte{}, Text: c.name([]byte(key)) + ": the index row is missing"}
		if err := c.tell(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// ids returns, sorted, the storage ids for which is returns true.
func (c *checker) ids(is func(uint32) bool) (ids []uint32) {
	for n := range maps.Values(c.tables.IDs) {
		if is(n) {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	return ids
}

// name returns the name of a key's index for messages.
func (c *checker) name(key []byte) string {
	if bytes.HasPrefix(key, layout.ObjectsTable[:]) {
		return "schema index"
	}
	n, _, _ := encoding.StrictUint(key)
	if s := c.tables.Index(n); s != nil {
		return fmt.Sprintf("index %q", s.Name)
	}
	return "index"
}

// explain describes why an index row is superfluous.
func (c *checker) explain(ctx context.Context, key []byte) (string, error) {
	var id encoding.ObjID
	var err error
	if bytes.HasPrefix(key, layout.ObjectsTable[:]) {
		_, id, err = layout.ParseObjectsRow(key)
	} else {
		var row layout.IndexRow
		row, err = c.tables.ParseIndexRow(key)
		id = row.ID
	}
	if err != nil {
		return fmt.Sprintf("%s: the key is no row of it: %v", c.name(key), err), nil
	}
	there, err := c.exists(ctx, id)
	if err != nil {
		return "", err
	}
	if !there {
		return fmt.Sprintf("%s: object %s does not exist", c.name(key), id), nil
	}
	return fmt.Sprintf("%s: object %s has no such value", c.name(key), id), nil
}

// aliveCache records whether objects exist. It is emptied when it is full.
type aliveCache map[encoding.ObjID]bool

const aliveEntries = 1 << 16

// exists reports whether the first row of an object names a schema with the object's type.
func (c *checker) exists(ctx context.Context, id encoding.ObjID) (bool, error) {
	if there, ok := c.alive[id]; ok {
		return there, nil
	}
	value, err := c.r.Get(ctx, id[:])
	if err != nil && !isNotFound(err) {
		return false, err
	}
	there := false
	if err == nil {
		index, _, bad := layout.ParseMeta(value)
		there = bad == nil && c.tables.TypeOf(id, index) != nil
	}
	if c.alive == nil || len(c.alive) >= aliveEntries {
		c.alive = aliveCache{}
	}
	c.alive[id] = there
	return there, nil
}
