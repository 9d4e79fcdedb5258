package merging

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// A merge that gives a record another number leaves a row (a note) under the old number. It
// contains the new number and the SHA-256 of the row that the record had. A device without that
// merge may still change the record under the old number, where another record is now. A later
// merge, whose base has the record there, finds the note and makes the change under the new number.

// place is a primary key in an object store on a side.
type place struct {
	storeID
	side Side
	key  indexeddb.Key
}

// follower is a record that one side (the mover) has moved, while the other side has changed or
// deleted it under the old number.
type follower struct {
	s     *store
	from  indexeddb.Key
	to    indexeddb.Key
	mover Side // the side that has moved it
}

// leaveNote writes the note with the new number under the old number of a record.
func (m *Merge) leaveNote(ctx context.Context, s *store, from indexeddb.Key, to int64, row []byte) error {
	r := indexeddb.Row{Kind: indexeddb.KindMoved, Database: s.database, Store: s.store, Primary: from, Sequence: to}
	key, _ := indexeddb.PageKey(nil, r)
	sum := sha256.Sum256(row)
	return m.v.Result.Put(ctx, key, sum[:])
}

// notes keeps the notes of both sides, except a note that a side has replaced by another one.
func (w *group) notes(ctx context.Context) error {
	if !w.noted() {
		return nil
	}
	all, err := w.m.movesOf(ctx, w.s.storeID)
	if err != nil {
		return err
	}
	var added [2]bool
	for _, x := range all.from[w.record.Primary] {
		for side, in := range x.in {
			added[side] = added[side] || in && !x.inBase && x.moves()
		}
	}
	for _, c := range w.changes {
		if c.row.Kind != indexeddb.KindMoved {
			continue
		}
		sum, gone := "", false
		for _, x := range all.from[w.record.Primary] {
			switch {
			case x.to != numberOf(c.row):
			case x.inBase:
				gone = !x.in[Left] && added[Left] || !x.in[Right] && added[Right]
			case sum == "" || x.sum < sum:
				sum = x.sum
			}
		}
		switch {
		case sum != "":
			err = w.m.v.Result.Put(ctx, c.Key, []byte(sum))
		case gone:
			err = w.m.v.Result.Delete(ctx, c.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noted reports whether notes have changed.
func (w *group) noted() bool {
	return slices.ContainsFunc(w.changes, func(c changed) bool { return c.row.Kind == indexeddb.KindMoved })
}

// again leaves a note that a record shared its number with a record that the other side has
// deleted. The new number in this note is the number itself. A device that has not seen the
// deletion may still change the deleted record.
func (w *group) again(ctx context.Context) error {
	side := Left
	if !w.from[Left] {
		side = Right
	}
	row, err := w.m.sides[side].Get(ctx, w.name)
	if err != nil {
		return err
	}
	return w.m.leaveNote(ctx, w.s, w.record.Primary, int64(w.record.Primary.Number()), row)
}

// movedAway returns the side that has moved the record of the base to another number, while the
// other side has changed it here. Finish then repeats that change under the new number. When
// several bases differ, the record of the base is unknown. Then a move by exactly one side is
// enough, so that the change of the other side is not lost.
func (w *group) movedAway(ctx context.Context, unknown bool) (side Side, is bool, err error) {
	if !w.noted() {
		return Left, false, nil
	}
	var sum [sha256.Size]byte
	if !unknown {
		row, err := w.m.v.Base.Get(ctx, w.name)
		if err != nil {
			return Left, false, err
		}
		sum = sha256.Sum256(row)
	}
	all, err := w.m.movesOf(ctx, w.s.storeID)
	if err != nil {
		return Left, false, err
	}
	var by [2]bool
	var to indexeddb.Key
	for _, x := range all.from[w.record.Primary] {
		if !x.moves() || x.inBase || x.in[Left] == x.in[Right] || !unknown && x.sum != string(sum[:]) {
			continue
		}
		side = Left
		if x.in[Right] {
			side = Right
		}
		by[side], to = true, x.to
	}
	if by[Left] == by[Right] {
		return Left, false, nil
	}
	w.m.followers = append(w.m.followers, follower{w.s, w.record.Primary, to, side})
	return side, true, nil
}

// move is a note that not all versions have.
type move struct {
	from, to indexeddb.Key
	sum      string
	inBase   bool
	in       [2]bool
}

// moves reports whether the note has another number; see again.
func (x *move) moves() bool { return x.from != x.to }

// moves holds the notes of an object store by old and by new number.
type moves struct{ from, to map[indexeddb.Key][]*move }

func numberOf(r indexeddb.Row) indexeddb.Key {
	k, _ := indexeddb.NumberKey(float64(r.Sequence)) // fails only for NaN
	return k
}

// movesOf returns the moves of an object store with the same number in all versions.
func (m *Merge) movesOf(ctx context.Context, id storeID) (*moves, error) {
	if all, ok := m.moves[id]; ok {
		return all, nil
	}
	known := map[string]*move{}
	prefix := ordered.Prefix(id.family(indexeddb.KindMoved))
	for i, r := range []ordered.Reader{m.v.Base, m.v.Left, m.v.Right} {
		for row, err := range ordered.Rows(ctx, r, prefix) {
			if err != nil {
				return nil, err
			}
			r, err := indexeddb.DecodePageKey(row.Key)
			if err != nil || r.Primary.IsZero() {
				continue // Check reports it
			}
			name := string(row.Key) + string(row.Value)
			x := known[name]
			if x == nil {
				x = &move{from: r.Primary, to: numberOf(r), sum: string(row.Value)}
				known[name] = x
			}
			if i == 0 {
				x.inBase = true
			} else {
				x.in[i-1] = true
			}
		}
	}
	all := &moves{map[indexeddb.Key][]*move{}, map[indexeddb.Key][]*move{}}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if x := known[name]; !x.inBase || !x.in[Left] || !x.in[Right] {
			all.from[x.from], all.to[x.to] = append(all.from[x.from], x), append(all.to[x.to], x)
		}
	}
	m.moves[id] = all
	return all, nil
}

// movedElse is movedAway for a record that an earlier merge moved here from another number, while a
// side has another merge in its place that moved the record elsewhere. The earlier merge may be in
// the history of that side: a side with only merges of its own yields to one with more. apart is
// set when the records of the sides here are nevertheless two.
func (w *group) movedElse(ctx context.Context, unknown bool) (side Side, is, apart bool, err error) {
	if !w.s.meta.AutoIncrement || w.record.Primary.IsZero() || w.record.Primary.Type() != indexeddb.KeyNumber {
		return Left, false, false, nil
	}
	all, err := w.m.movesOf(ctx, w.s.storeID)
	if err != nil {
		return Left, false, false, err
	}
	var found [2]bool
	var to indexeddb.Key
	for _, x := range all.to[w.record.Primary] {
		if !x.moves() || x.inBase == unknown || x.in[Left] == x.in[Right] {
			continue
		}
		mover := Left
		if x.in[Left] {
			mover = Right
		}
		apart = unknown
		for _, y := range all.from[x.from] {
			if !y.moves() || !y.in[mover] || y.in[1-mover] || y.inBase {
				continue
			}
			if !found[mover] {
				side, to = mover, x.from
			}
			found[mover] = true
			if x.sum == y.sum {
				to = y.to
			}
		}
	}
	if found[Left] == found[Right] {
		return Left, false, apart || found[Left], nil
	}
	w.m.followers = append(w.m.followers, follower{w.s, w.record.Primary, to, side})
	return side, true, false, nil
}

// shared reports whether a merge on a side, after the base, found records that share the number.
// Then the records of the sides may be different ones. Two copies of one record are better than a
// lost one.
func (w *group) shared(ctx context.Context) (bool, error) {
	if !w.noted() {
		return false, nil
	}
	all, err := w.m.movesOf(ctx, w.s.storeID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.from[w.record.Primary], func(x *move) bool { return !x.inBase }), nil
}

// follow repeats under new numbers the changes that a side made under old numbers.
func (m *Merge) follow(ctx context.Context) error {
	m.filled = true
	for _, f := range m.followers {
		if err := m.followOne(ctx, &f); err != nil && !errors.Is(err, base.ErrCorrupt) { // Check reports the damage
			return err
		}
	}
	return nil
}

func (m *Merge) followOne(ctx context.Context, f *follower) error {
	s, other, part := f.s, 1-f.mover, f.from.AppendPagePart(nil)
	to := f.to
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
			return nil // also changed, or deleted, under the new number
		}
		_, err := m.remove(ctx, s, now, toPart)
		return err
	}
	if !same && now != nil { // with several bases, the other side may be unchanged
		again := *changed
		if same, err := again.renumber(ctx, m.sides[other], s.at[other], part, s.meta, to); err != nil || same && again.equal(now) {
			return err
		}
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
	// Both sides have changed it, or one has deleted it: the change here gets a new number.
	_, err = m.move(ctx, s, f.from, other)
	return err
}

// equal reports whether two records have the same value and the same external objects.
func (rec *record) equal(other *record) bool {
	return bytes.Equal(rec.script, other.script) &&
		bytes.Equal(indexeddb.AppendExternalObjects(nil, rec.objects), indexeddb.AppendExternalObjects(nil, other.objects))
}

// remove removes a record of the result with all its rows. It returns false when the value cannot
// be decoded and there are indexes.
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

// renumber changes the key of a record, also in its value if it contains the key. It returns false
// when the value cannot be changed.
func (rec *record) renumber(ctx context.Context, r ordered.Reader, id storeID, part []byte, s *indexeddb.Store, to indexeddb.Key) (bool, error) {
	if s.Injects() {
		if err := rec.decode(ctx, r, id, part, s); err != nil {
			return false, err
		}
		if rec.own {
			w, err := value.Unwrap(rec.script)
			if err != nil || w != nil || !indexeddb.Injectable(rec.value, s.KeyPath.Paths[0]) {
				return false, nil
			}
			v, _ := indexeddb.Inject(rec.value, s.KeyPath.Paths[0], to)
			if rec.script, err = value.EncodeFor(v, len(rec.objects)); err != nil {
				return false, nil
			}
		}
	}
	rec.row.Primary = to
	return true, nil
}
