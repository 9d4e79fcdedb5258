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
	to    indexeddb.Key
	mover Side // the side that has moved it
}

// leaveNote says under the old number of a record that it has a new one now.
func (m *Merge) leaveNote(ctx context.Context, s *store, from indexeddb.Key, to int64, row []byte) error {
	r := indexeddb.Row{Kind: indexeddb.KindMoved, Database: s.database, Store: s.store, Primary: from, Sequence: to}
	key, _ := indexeddb.PageKey(nil, r)
	sum := sha256.Sum256(row)
	return m.v.Result.Put(ctx, key, sum[:])
}

// notes keeps the rows about new numbers of both sides, but not one in whose place a side has
// another one.
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

// noted reports whether rows about new numbers have changed.
func (w *group) noted() bool {
	return slices.ContainsFunc(w.changes, func(c changed) bool { return c.row.Kind == indexeddb.KindMoved })
}

// again says that a record has a number which the other side had given to one that is deleted: the
// row has the number itself as the new one. A device that has not seen that may go on to change the
// deleted one.
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

// movedAway returns the side that has given another number to the record that the base has here,
// which the other side has changed since. Finish does there what the other side has done here. Of
// several bases that do not agree, no record is known: it is enough then that one side alone has
// given a number away, for that what the other one has here is not lost.
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

// move is what a row about a new number says, when not all versions do.
type move struct {
	from, to indexeddb.Key
	sum      string
	inBase   bool
	in       [2]bool
}

// moves reports whether the record has another number: see again.
func (x *move) moves() bool { return x.from != x.to }

// moves are those of an object store, by their numbers.
type moves struct{ from, to map[indexeddb.Key][]*move }

func numberOf(r indexeddb.Row) indexeddb.Key {
	k, _ := indexeddb.NumberKey(float64(r.Sequence)) // it fails for NaN alone
	return k
}

// movesOf returns the moves of an object store that has its number in all versions.
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
				continue // Check names it
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

// movedElse is movedAway for a record that came here from another number, in a merge in whose place
// a side has another merge: the record is elsewhere there. A side that has nothing but merges of
// its own gives way to one that has more, so that it is so although the merge is in its history.
// apart tells that what the sides have here are two records all the same.
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

// shared reports whether a side has had a merge above the base in which records shared the number.
// What the sides have here now need not be one record. Two that were one are better than one that
// is lost.
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
			return nil // it was changed, too, or is deleted there as well
		}
		_, err := m.remove(ctx, s, now, toPart)
		return err
	}
	if !same && now != nil { // a side that has changed nothing, of bases that do not agree
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
