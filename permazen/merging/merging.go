package merging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// Versions are the inputs and the output of a merge.
type Versions struct {
	Base, Left, Right ordered.Reader
	// Result contains the rows of Base and receives the rows of the merge.
	Result ordered.Writer
	// LeftNewer reports whether the left side wrote an object last. It is called only for objects
	// that both sides have.
	LeftNewer func(id encoding.ObjID) bool
	// Report is called for each row in which one side's change is lost. It may be nil.
	Report func(ctx context.Context, key []byte, tookLeft bool) error
}

// Merge is a running merge. It is for one goroutine.
type Merge struct {
	v                 Versions
	base, left, right *converter
	united            *layout.Tables
	lost              []lost

	touched    map[encoding.ObjID]bool // by id in the result
	tables     bool                    // rows of tables have changed
	renumbered bool                    // the result gives other numbers to items of a side
}

// lost is a row in which one side's change is lost.
type lost struct {
	key  []byte
	left bool // the left side's row is kept
}

// New begins a merge. Errors: base.ErrCorrupt, base.ErrUnsupported, those of the readers and of
// ctx.
func New(ctx context.Context, v Versions) (*Merge, error) {
	m := &Merge{v: v, touched: map[encoding.ObjID]bool{}}
	left, err := load(ctx, v.Left)
	if err != nil {
		return nil, fmt.Errorf("read the tables of the left side: %w", err)
	}
	right, err := load(ctx, v.Right)
	if err != nil {
		return nil, fmt.Errorf("read the tables of the right side: %w", err)
	}
	// A virtual base lacks rows about which its commits differ.
	old, err := load(ctx, v.Base)
	if errors.Is(err, base.ErrCorrupt) {
		old, err = left, nil
	}
	if err == nil {
		m.united, err = uniteUsed(ctx, v, old, left, right)
	}
	if err != nil {
		return nil, fmt.Errorf("bring the tables together: %w", err)
	}
	m.base, m.left, m.right = newConverter(old, m.united), newConverter(left, m.united), newConverter(right, m.united)
	return m, nil
}

// uniteUsed returns the united tables. It frees the number of a schema that one side has removed
// and the other side does not use.
func uniteUsed(ctx context.Context, v Versions, base, left, right *layout.Tables) (*layout.Tables, error) {
	l, err := used(ctx, v.Left, left, base, right)
	if err != nil {
		return nil, err
	}
	r, err := used(ctx, v.Right, right, base, left)
	if err != nil {
		return nil, err
	}
	return unite(base, l, r)
}

// used returns the tables of a side without the schemas that the other side has removed and that no
// object of this side has.
func used(ctx context.Context, r ordered.Reader, own, base, other *layout.Tables) (*layout.Tables, error) {
	unused := map[uint32]bool{}
	for index, s := range own.Schemas {
		if base.Find(s.ID) == nil || other.Find(s.ID) != nil {
			continue
		}
		has, err := own.HasObjects(ctx, r, index)
		if err != nil {
			return nil, err
		}
		unused[index] = !has
	}
	return own.Without(func(s *layout.Schema) bool { return unused[s.Index] })
}

// load reads tables. Absent tables are empty.
func load(ctx context.Context, r ordered.Reader) (*layout.Tables, error) {
	t, err := layout.Load(ctx, r)
	if errors.Is(err, layout.ErrUninitialized) {
		return layout.New(nil, map[string]uint32{})
	}
	return t, err
}

// IsObject reports whether a changed key may belong to an object's row, and returns the object's
// id.
func (m *Merge) IsObject(key []byte) (id encoding.ObjID, ok bool) {
	id, err := encoding.ReadObjID(key)
	return id, err == nil && (m.left.from.IsType(id.Type()) || m.right.from.IsType(id.Type()))
}

// Changed processes a key that a side has changed. which reports whether base, left and right have
// the row. Keys of the app's rows are not allowed. Errors: those of Result and of ctx.
func (m *Merge) Changed(ctx context.Context, key []byte, which [3]bool) error {
	isObject := false
	for i, c := range []*converter{m.base, m.left, m.right} {
		if !which[i] {
			continue
		}
		id, object, ok := c.owner(key)
		if ok {
			m.touched[c.id(id)] = true
		}
		isObject = isObject || object && i == 0
	}
	if len(key) > 1 && key[0] == 0 && !bytes.HasPrefix(key, layout.ObjectsTable[:]) {
		m.tables = true
	}
	if isObject || !which[0] {
		return nil
	}
	if err := m.v.Result.Delete(ctx, key); err != nil {
		return fmt.Errorf("remove a derived row: %w", err)
	}
	return nil
}

// owner returns the object to which a row belongs, and whether it is a row of the object itself.
func (c *converter) owner(key []byte) (id encoding.ObjID, object, ok bool) {
	if bytes.HasPrefix(key, layout.ObjectsTable[:]) {
		_, id, err := layout.ParseObjectsRow(key)
		return id, false, err == nil
	}
	if id, err := encoding.ReadObjID(key); err == nil && c.from.IsType(id.Type()) {
		return id, true, true
	}
	row, err := c.from.ParseIndexRow(key)
	return row.ID, false, err == nil
}

// Finish writes the result. The caller calls it after Changed for all changed keys. Errors:
// base.ErrCorrupt when a side has wrong rows, those of the readers, of Result, of ctx and of
// Versions.Report.
func (m *Merge) Finish(ctx context.Context) error {
	if m.tables {
		if err := m.united.Write(ctx, m.v.Result, nil); err != nil {
			return fmt.Errorf("merge schemas: %w", err)
		}
	}
	if err := m.renumber(ctx); err != nil {
		return fmt.Errorf("give storage ids and schemas other numbers: %w", err)
	}
	dead := map[encoding.ObjID]bool{}
	for _, id := range sorted(m.touched) {
		died, err := m.object(ctx, id)
		if err != nil {
			return fmt.Errorf("merge object %s: %w", id, err)
		}
		if died {
			dead[id] = true
		}
	}
	if err := m.references(ctx, dead); err != nil {
		return fmt.Errorf("merge references: %w", err)
	}
	if err := m.removeSchemas(ctx); err != nil {
		return fmt.Errorf("merge schemas: %w", err)
	}
	if m.v.Report == nil {
		return nil
	}
	slices.SortFunc(m.lost, func(a, b lost) int { return bytes.Compare(a.key, b.key) })
	for _, l := range m.lost {
		if err := m.v.Report(ctx, l.key, l.left); err != nil {
			return err
		}
	}
	return nil
}

func sorted(ids map[encoding.ObjID]bool) []encoding.ObjID {
	return slices.SortedFunc(maps.Keys(ids), func(a, b encoding.ObjID) int { return bytes.Compare(a[:], b[:]) })
}

// read returns an object of a version, before and after conversion.
func (c *converter) read(ctx context.Context, r ordered.Reader, id encoding.ObjID) (raw, o *layout.Object, err error) {
	raw, err = c.from.ReadObject(ctx, r, c.own(id))
	if err == nil {
		o, err = c.object(raw)
	}
	return raw, o, err
}

// renumber removes the rows of affected objects from the result when a side's numbers differ there,
// because the meaning of a row may have changed. Such an object is merged even without a changed
// row: equal bytes on both sides may mean different things.
func (m *Merge) renumber(ctx context.Context) error {
	for _, s := range m.sides() {
		if !s.c.renames() {
			continue
		}
		m.renumbered = true
		if err := s.c.renamed(ctx, s.r, func(id encoding.ObjID) { m.touched[s.c.id(id)] = true }); err != nil {
			return err
		}
	}
	if !m.renumbered {
		return nil
	}
	gone := map[string][]byte{}
	for _, id := range sorted(m.touched) {
		clear(gone)
		for _, s := range append(m.sides(), side{m.base, m.v.Base}) {
			raw, err := s.c.from.ReadObject(ctx, s.r, s.c.own(id))
			if errors.Is(err, base.ErrCorrupt) && s.c == m.base {
				raw, err = nil, nil
			}
			if err != nil {
				return fmt.Errorf("object %s: %w", id, err)
			}
			collect(gone, raw)
		}
		for _, key := range slices.Sorted(maps.Keys(gone)) {
			if err := m.v.Result.Delete(ctx, []byte(key)); err != nil {
				return fmt.Errorf("object %s: %w", id, err)
			}
		}
	}
	return nil
}

// side is the left or the right version.
type side struct {
	c *converter
	r ordered.Reader
}

func (m *Merge) sides() []side { return []side{{m.left, m.v.Left}, {m.right, m.v.Right}} }

// object merges and writes an object. died reports that a side had it and the result does not.
func (m *Merge) object(ctx context.Context, id encoding.ObjID) (died bool, err error) {
	old, v, err := m.versions(ctx, id)
	if err != nil {
		return false, err
	}
	merged, err := m.merge(ctx, v)
	if err != nil {
		return false, err
	}
	err = m.write(ctx, id, old, merged, v.left, v.right)
	if errors.Is(err, base.ErrTooLarge) && v.left != nil && v.right != nil {
		// An index row with values of both sides is too long.
		newer := m.newer(id, v)
		err = m.write(ctx, id, nil, newer, old, merged, v.left, v.right)
	}
	return merged == nil && (v.left != nil || v.right != nil), err
}

// newer returns the version of the side that wrote an object last, and records that the changes of
// the other side are lost.
func (m *Merge) newer(id encoding.ObjID, v three) *layout.Object {
	left := m.v.LeftNewer(id)
	m.lost = append(m.lost, lost{bytes.Clone(id[:]), left})
	if left {
		return v.left
	}
	return v.right
}

// write writes an object to the result, which has the rows of old, and removes the rows of old and
// of others that it lacks: a virtual base lacks rows that both sides have.
func (m *Merge) write(ctx context.Context, id encoding.ObjID, old, merged *layout.Object, others ...*layout.Object) error {
	rows, was := map[string][]byte{}, map[string][]byte{}
	if !m.renumbered {
		collect(was, old)
	}
	collect(rows, merged)
	gone := maps.Clone(was)
	for _, o := range others {
		collect(gone, o)
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		if _, ok := rows[key]; ok {
			continue
		}
		if err := m.v.Result.Delete(ctx, []byte(key)); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if v, ok := was[key]; ok && bytes.Equal(v, rows[key]) && len(key) >= layout.IDBytes && bytes.HasPrefix([]byte(key), id[:]) {
			continue // Changed may have removed index rows, so only rows of the object are skipped
		}
		if err := m.v.Result.Put(ctx, []byte(key), rows[key]); err != nil {
			return err
		}
	}
	return nil
}

func collect(to map[string][]byte, o *layout.Object) {
	o.Each(func(key, value []byte) { to[string(key)] = bytes.Clone(value) })
}

// versions reads the versions of an object. raw is the base version before conversion. If the base
// has no valid object, its rows are removed from the result.
func (m *Merge) versions(ctx context.Context, id encoding.ObjID) (raw *layout.Object, v three, err error) {
	raw, v.base, err = m.base.read(ctx, m.v.Base, id)
	if errors.Is(err, base.ErrCorrupt) {
		raw, v.base, err = nil, nil, nil
	}
	if err == nil && raw == nil {
		own := m.base.own(id)
		err = m.v.Result.DeleteRange(ctx, own[:], ordered.PrefixEnd(own[:]))
	}
	if err == nil {
		_, v.left, err = m.left.read(ctx, m.v.Left, id)
	}
	if err == nil {
		_, v.right, err = m.right.read(ctx, m.v.Right, id)
	}
	return raw, v, err
}

// inEither reports whether a side has an object.
func (m *Merge) inEither(ctx context.Context, id encoding.ObjID) (bool, error) {
	for _, s := range m.sides() {
		if t, err := s.c.from.ReadMeta(ctx, s.r, s.c.own(id)); t != nil || err != nil {
			return t != nil, err
		}
	}
	return false, nil
}

// removeSchemas removes schemas that a side has removed and that no object of the result has.
func (m *Merge) removeSchemas(ctx context.Context) error {
	if !m.tables {
		return nil
	}
	unused := map[uint32]bool{}
	for index, s := range m.united.Schemas {
		if m.left.from.Find(s.ID) != nil && m.right.from.Find(s.ID) != nil || m.base.from.Find(s.ID) == nil {
			continue
		}
		has, err := m.united.HasObjects(ctx, m.v.Result, index)
		if err != nil {
			return err
		}
		unused[index] = !has
	}
	tables, err := m.united.Without(func(s *layout.Schema) bool { return unused[s.Index] })
	if err != nil {
		return err
	}
	return tables.Write(ctx, m.v.Result, m.united)
}
