package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger"
)

// isOlder reports whether an older version of the app wrote a row.
func (c *Collection[T]) isOlder(row []byte) bool {
	version, n := binary.Uvarint(row)
	return n > 0 && version < uint64(c.o.Version)
}

// Record is a record that a query has found. It belongs to the caller.
type Record[T any] struct {
	ID    string
	Value *T
	// Key is the index key by which the record was found, nil without an index.
	Key []byte
}

// Query selects records. The zero value selects all, by id. Keys are made by Key for an index;
// otherwise they are ids. A record is selected if it meets all conditions: for an index with the
// keys Key(tag, time), Prefix Key("a") and From Key("a", t) select a tag and the times since t.
type Query struct {
	// Index is the index by which records are found and sorted; empty means by id.
	Index string
	// Equal selects the records with exactly this key, Prefix those whose key begins with these
	// parts. From is the least key, and To the exclusive upper limit. Nil selects all.
	Equal, Prefix, From, To []byte
	// Reverse gives the greatest key first.
	Reverse bool
	// Limit is the greatest number of yielded records; 0 means no limit. A record that several of
	// its keys select counts once for each of them.
	Limit int
}

// bounds returns the range of the selected rows after base. escape encodes a key for rows, and end
// is the end mark of a key; nil says that a key is the rest of its row.
func (q *Query) bounds(base []byte, escape func([]byte) []byte, end []byte) (from, to []byte) {
	from, to = base, behind(base)
	set := func(f, t []byte) {
		if f != nil && bytes.Compare(f, from) > 0 {
			from = f
		}
		if t != nil && bytes.Compare(t, to) < 0 {
			to = t
		}
	}
	row := func(key, end []byte) []byte { return slices.Concat(base, escape(key), end) }
	if q.Equal != nil {
		after := row(q.Equal, []byte{0})
		if end != nil {
			after = behind(row(q.Equal, end))
		}
		set(row(q.Equal, end), after)
	}
	if q.Prefix != nil {
		set(row(q.Prefix, nil), behind(row(q.Prefix, nil)))
	}
	if q.From != nil {
		set(row(q.From, end), nil)
	}
	if q.To != nil {
		set(nil, row(q.To, end))
	}
	return from, to
}

// behind returns the least key greater than all keys with the prefix, which must have a byte other
// than 0xff.
func behind(prefix []byte) []byte {
	out := bytes.Clone(prefix)
	for len(out) > 0 && out[len(out)-1] == 0xff {
		out = out[:len(out)-1]
	}
	out[len(out)-1]++
	return out
}

// escaped is appendText without the end mark.
func escaped(key []byte) []byte {
	b := appendText(nil, key)
	return b[:len(b)-2]
}

// holds reports whether the query selects a key.
func (q *Query) holds(key []byte) bool {
	return (q.Equal == nil || bytes.Equal(key, q.Equal)) && bytes.HasPrefix(key, q.Prefix) &&
		(q.From == nil || bytes.Compare(key, q.From) >= 0) && (q.To == nil || bytes.Compare(key, q.To) < 0)
}

// Query yields the records that q selects in the present state, ordered by key and then by id. A
// record is yielded once for each of its selected keys. An error ends the sequence:
// ledger.ErrInvalid for an index that is not declared; ErrNewer; those of the codec and of
// Page.View. One record is in memory at a time.
func (c *Collection[T]) Query(ctx context.Context, q Query) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		s, err := c.page.Snapshot(ctx)
		if err != nil {
			yield(Record[T]{}, fmt.Errorf("query collection %q: %w", c.name, err))
			return
		}
		defer s.Close()
		c.At(s).Query(ctx, q)(yield)
	}
}

// Scan is Query with all records.
func (c *Collection[T]) Scan(ctx context.Context) iter.Seq2[Record[T], error] {
	return c.Query(ctx, Query{})
}

// Query is Collection.Query on the state of the view.
func (v *View[T]) Query(ctx context.Context, q Query) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		if err := v.query(ctx, q, yield); err != nil {
			yield(Record[T]{}, fmt.Errorf("query collection %q: %w", v.c.name, err))
		}
	}
}

func (v *View[T]) query(ctx context.Context, q Query, yield func(Record[T], error) bool) error {
	if q.Index == "" {
		return v.byID(ctx, q, yield)
	}
	i := slices.IndexFunc(v.c.o.Indexes, func(x Index[T]) bool { return x.Name == q.Index })
	if i < 0 {
		return fmt.Errorf("index %q is not declared: %w", q.Index, ledger.ErrInvalid)
	}
	fresh, err := v.isFresh(ctx)
	if err != nil {
		return err
	}
	if !fresh {
		return v.withoutRows(ctx, q, v.c.o.Indexes[i].Keys, yield)
	}
	base := v.c.behind[i]
	from, to := q.bounds(base, escaped, []byte{0, 1})
	it := v.r.Iter(ledger.ScanOptions{Start: from, End: to, Reverse: q.Reverse, Limit: q.Limit, KeysOnly: true})
	for it.Next(ctx) {
		key, id, err := cutText(it.Key()[len(base):])
		if err != nil {
			return fmt.Errorf("index %q: %w: %w", q.Index, err, ledger.ErrCorrupt)
		}
		name := string(id)
		value, err := v.Get(ctx, name)
		if err != nil {
			return err
		}
		if !yield(Record[T]{name, value, key}, nil) {
			return nil
		}
	}
	return it.Err()
}

// byID yields records by their ids.
func (v *View[T]) byID(ctx context.Context, q Query, yield func(Record[T], error) bool) error {
	base := v.c.row(rowRecord, nil)
	o := ledger.ScanOptions{Reverse: q.Reverse, Limit: q.Limit}
	o.Start, o.End = q.bounds(base, func(b []byte) []byte { return b }, nil)
	for e, err := range v.r.Scan(ctx, o) {
		if err != nil {
			return err
		}
		id := string(e.Key[len(base):])
		row, err := e.Value(ctx)
		if err != nil {
			return v.c.explain("read", id, err)
		}
		value, err := v.c.decode(row)
		if err != nil {
			return v.c.explain("read", id, err)
		}
		if !yield(Record[T]{ID: id, Value: value}, nil) {
			return nil
		}
	}
	return nil
}

// withoutRows is query by an index, with the keys of a record, whose rows another program has left
// outdated: it reads all records and sorts the matches.
func (v *View[T]) withoutRows(ctx context.Context, q Query, keysOf func(*T) [][]byte, yield func(Record[T], error) bool) error {
	type hit struct {
		key []byte
		id  string
	}
	var hits []hit
	err := v.byID(ctx, Query{}, func(r Record[T], _ error) bool {
		keys := keysOf(r.Value)
		slices.SortFunc(keys, bytes.Compare)
		for _, k := range slices.CompactFunc(keys, bytes.Equal) {
			if mayStore(k) && q.holds(k) {
				hits = append(hits, hit{bytes.Clone(k), r.ID})
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.id, b.id)) })
	if q.Reverse {
		slices.Reverse(hits)
	}
	if q.Limit > 0 && len(hits) > q.Limit {
		hits = hits[:q.Limit]
	}
	for _, h := range hits {
		value, err := v.Get(ctx, h.id)
		if err != nil || !yield(Record[T]{h.id, value, h.key}, nil) {
			return err
		}
	}
	return nil
}

// Find returns the record with a key of an index; of several records, the one with the least id.
// Errors: ledger.ErrNotFound; as Query.
func (c *Collection[T]) Find(ctx context.Context, index string, key []byte) (r Record[T], err error) {
	for r, err := range c.Query(ctx, Query{Index: index, Equal: key, Limit: 1}) {
		return r, err
	}
	return r, fmt.Errorf("find a record of collection %q by index %q: %w", c.name, index, ledger.ErrNotFound)
}

// Duplicates yields the records that share a key of a unique index, which merges may cause; records
// with the same key follow each other. Errors: as Query.
func (c *Collection[T]) Duplicates(ctx context.Context, index string) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		var last Record[T]
		told := false
		for r, err := range c.Query(ctx, Query{Index: index}) {
			if err != nil {
				yield(r, err)
				return
			}
			same := last.Value != nil && bytes.Equal(last.Key, r.Key)
			if same && !told && !yield(last, nil) {
				return
			}
			if same && !yield(r, nil) {
				return
			}
			last, told = r, same
		}
	}
}

// Live yields the complete result of a query as a list: at once, and again after each change of the
// collection, until ctx or the loop ends. Changes during the loop body are combined. An error ends
// the sequence: as Query and Page.Watch.
func (c *Collection[T]) Live(ctx context.Context, q Query) iter.Seq2[[]Record[T], error] {
	return func(yield func([]Record[T], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changed := c.page.Watch(ctx, &ledger.WatchOptions{Prefix: c.prefix})
		next, stop := iter.Pull2(changed)
		defer stop()
		for {
			records, err := c.collect(ctx, q)
			if !yield(records, err) || err != nil {
				return
			}
			for {
				n, err, ok := next()
				if err != nil {
					yield(nil, fmt.Errorf("watch collection %q: %w", c.name, err))
					return
				}
				if !ok {
					return
				}
				if n.Last {
					break
				}
			}
		}
	}
}

func (c *Collection[T]) collect(ctx context.Context, q Query) (all []Record[T], err error) {
	for r, err := range c.Query(ctx, q) {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
