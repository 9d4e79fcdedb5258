package merging

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// A merge that gives a record another number leaves a row under the old number: the new one, and
// the SHA-256 of the row that the record had. A device that has not seen that merge goes on to
// change the record under the old number, where another record now stands. The row tells a later
// merge, whose base still has the record there, to do the change under the new number.

// place is a primary key in an object store on a side.
type place struct {
	storeID
	side Side
	key  indexeddb.Key
}

// follower is a record that one side has moved and the other one has changed, or deleted, where it
// was.
type follower struct {
	s     *store
	from  indexeddb.Key
	to    int64
	mover Side // the side that has moved it
}

// leaveNote says under the old number of a record that it has a new one now.
func (m *Merge) leaveNote(ctx context.Context, s *store, from indexeddb.Key, to int64, row []byte) error {
	r := indexeddb.Row{Kind: indexeddb.KindMoved, Database: s.database, Store: s.store, Primary: from, Sequence: to}
	key, _ := indexeddb.PageKey(nil, r)
	sum := sha256.Sum256(row)
	return m.v.Result.Put(ctx, key, sum[:])
}

// notes keeps the rows about new numbers of both sides.
func (w *group) notes(ctx context.Context) error {
	for _, c := range w.changes {
		if c.row.Kind != indexeddb.KindMoved || c.InBase {
			continue
		}
		var sum []byte
		for side, in := range c.In {
			if !in {
				continue
			}
			got, err := w.m.sides[side].Get(ctx, c.Key)
			if err != nil {
				return err
			}
			if sum == nil || bytes.Compare(got, sum) < 0 {
				sum = got
			}
		}
		if err := w.m.v.Result.Put(ctx, c.Key, sum); err != nil {
			return err
		}
	}
	return nil
}

// movedAway returns the side that has given another number to the record that the base has here,
// which the other side has changed since. Finish does there what the other side has done here. Of
// several bases that do not agree, no record is known: it is enough then that one side alone has
// given a number away, for that what the other one has here is not lost.
func (w *group) movedAway(ctx context.Context, unknown bool) (side Side, is bool, err error) {
	var sum [sha256.Size]byte
	if !unknown {
		row, err := w.m.v.Base.Get(ctx, w.name)
		if err != nil {
			return Left, false, err
		}
		sum = sha256.Sum256(row)
	}
	var by [2]bool
	var to int64
	for _, c := range w.changes {
		if c.row.Kind != indexeddb.KindMoved || c.InBase || c.In[Left] == c.In[Right] {
			continue
		}
		at := Left
		if c.In[Right] {
			at = Right
		}
		got, err := w.m.sides[at].Get(ctx, c.Key)
		if err != nil {
			return Left, false, err
		}
		if unknown || bytes.Equal(got, sum[:]) {
			side, by[at], to = at, true, c.row.Sequence
		}
	}
	if by[Left] == by[Right] {
		return Left, false, nil
	}
	w.m.followers = append(w.m.followers, follower{w.s, w.record.Primary, to, side})
	return side, true, nil
}

// shared reports whether both sides have had merges, which the other one does not know of, in which
// records shared the number. What they have here now need not be one record. Two that were one are
// better than one that is lost.
func (w *group) shared() bool {
	var by [2]bool
	for _, c := range w.changes {
		for side, in := range c.In {
			by[side] = by[side] || in && c.row.Kind == indexeddb.KindMoved && !c.InBase
		}
	}
	return by[Left] && by[Right]
}

// follow does under new numbers what a side has done under the old ones.
func (m *Merge) follow(ctx context.Context) error {
	m.filled = true
	for _, f := range m.followers {
		if err := m.followOne(ctx, &f); err != nil && !errors.Is(err, base.ErrCorrupt) { // Check names what is damaged
			return err
		}
	}
	return nil
}

func (m *Merge) followOne(ctx context.Context, f *follower) error {
	s, other, part := f.s, 1-f.mover, f.from.AppendPagePart(nil)
	to, err := indexeddb.NumberKey(float64(f.to))
	if err != nil {
		return err
	}
	if again, ok := m.moved[place{s.storeID, f.mover, to}]; ok {
		to = again
	}
	was, err := read(ctx, m.v.Base, s.storeID, part)
	if err != nil {
		return err
	}
	changed, err := read(ctx, m.sides[other], s.at[other], part)
	if err != nil {
		return err
	}
	toPart := to.AppendPagePart(nil)
	now, err := read(ctx, m.v.Result, s.storeID, toPart)
	if err != nil {
		return err
	}
	same := now != nil && was != nil
	if same {
		if same, err = was.renumber(ctx, m.v.Base, s.storeID, part, s.meta, to); err != nil {
			return err
		}
		same = same && was.equal(now)
	}
	if changed == nil {
		if !same {
			return nil // it was changed, too, or is deleted there as well
		}
		_, err := m.remove(ctx, s, now, toPart)
		return err
	}
	removed := false
	if same {
		if removed, err = m.remove(ctx, s, now, toPart); err != nil {
			return err
		}
	}
	if removed {
		moved, err := m.moveTo(ctx, s, f.from, other, to)
		if err != nil || moved {
			return err
		}
	}
	// Both have changed it, or one has deleted it: what was changed here gets a number of its own.
	_, err = m.move(ctx, s, f.from, other)
	return err
}

// equal tells whether two records have the same value, and the same external objects.
func (rec *record) equal(other *record) bool {
	return bytes.Equal(rec.script, other.script) &&
		bytes.Equal(indexeddb.AppendExternalObjects(nil, rec.objects), indexeddb.AppendExternalObjects(nil, other.objects))
}

// remove removes a record of the result with all its rows. It does not when its index rows cannot
// be told.
func (m *Merge) remove(ctx context.Context, s *store, rec *record, part []byte) (bool, error) {
	if err := rec.decode(ctx, m.v.Result, s.storeID, part, s.meta); err != nil || rec.value == nil && len(s.indexes) > 0 {
		return false, err
	}
	keys := [][]byte{s.key(indexeddb.KindRecord, part), s.key(indexeddb.KindExternal, part)}
	for i := range rec.objects {
		keys = append(keys, s.contentKey(part, i))
	}
	for _, x := range s.indexes {
		for _, k := range x.meta.Keys(rec.value, rec.objects) {
			key, _ := indexeddb.PageKey(nil, indexeddb.Row{
				Kind: indexeddb.KindIndexRow, Database: s.database, Store: s.store, Index: x.meta.ID, Key: k, Primary: rec.row.Primary,
			})
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		if err := m.v.Result.Delete(ctx, key); err != nil {
			return false, err
		}
	}
	return true, nil
}

// renumber gives a record of a version another key, in its value too when it is there. It does not
// when the value cannot be changed.
func (rec *record) renumber(ctx context.Context, r ordered.Reader, id storeID, part []byte, s *indexeddb.Store, to indexeddb.Key) (bool, error) {
	if s.Injects() {
		if err := rec.decode(ctx, r, id, part, s); err != nil {
			return false, err
		}
		if rec.own {
			if plain, err := value.Decode(rec.script); err != nil {
				return false, nil
			} else if _, wrapped := plain.(*value.Wrapped); wrapped || !indexeddb.Inject(rec.value, s.KeyPath.Paths[0], to) {
				return false, nil
			}
			var err error
			if rec.script, err = value.EncodeFor(rec.value, len(rec.objects)); err != nil {
				return false, nil
			}
		}
	}
	rec.row.Primary = to
	return true, nil
}
