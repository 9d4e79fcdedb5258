package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/keyspace"
	"github.com/ledgerd/ledger/ordered"
)

// tree is the ordered view of buckets that all operations use. Keys and names ascend bytewise.
// Slices from get and from sequences are borrowed until the next step or write. A loop over a
// sequence must not write.
type tree interface {
	// get returns the value of key. ok is false when the row is absent.
	get(ctx context.Context, p place, key []byte) (value []byte, ok bool, err error)
	// put creates the bucket when it is absent.
	put(ctx context.Context, p place, key, value []byte) error
	delete(ctx context.Context, p place, key []byte) error
	// rows yields the rows directly in p.
	rows(ctx context.Context, p place, s span) iter.Seq2[ordered.Row, error]
	// names yields the names, from the name from on, of the buckets in a bucket of the root, or in
	// the root when bucket is nil.
	names(ctx context.Context, bucket, from []byte) iter.Seq2[[]byte, error]
	// drop removes a bucket with all its contents. An absent bucket is no error.
	drop(ctx context.Context, p place) error
}

// span selects keys k with from <= k < to. nil means no limit.
type span struct {
	from, to []byte
	keysOnly bool
}

// prefixed selects the keys that begin with prefix.
func prefixed(prefix []byte) span {
	return span{from: prefix, to: ordered.PrefixEnd(prefix), keysOnly: true}
}

// behind returns the least key greater than key.
func behind(key []byte) []byte { return append(bytes.Clone(key), 0) }

// flat is a tree on sorted rows. Its buckets are namespaces below one namespace, in the encoding
// keyspace.Escaped.
type flat struct {
	r ordered.Reader
	w ordered.Writer // nil in a read-only tree
}

// Namespace is the namespace of a page that contains the buckets of a catalogue.
const Namespace = "metabase"

var namespace = []byte(Namespace)

// RowsPrefix returns the prefix of the keys of all rows of a catalogue. No other keys have it.
func RowsPrefix() []byte {
	from, _, err := keyspace.Escaped{}.Subtree([][]byte{namespace})
	if err != nil {
		panic(err) // impossible: there is a namespace
	}
	return from
}

func names(p place) [][]byte {
	switch {
	case p.bucket == nil:
		return [][]byte{namespace}
	case p.nested == nil:
		return [][]byte{namespace, p.bucket}
	}
	return [][]byte{namespace, p.bucket, p.nested}
}

func flatKey(p place, key []byte) ([]byte, error) { return keyspace.Escaped{}.Encode(names(p), key) }

// placeOf decodes the key of a row into bucket and key.
func placeOf(row []byte) (p place, key []byte, err error) {
	ns, key, err := keyspace.Escaped{}.Decode(row)
	switch {
	case err != nil:
		return p, nil, err
	case len(ns) < 2 || len(ns) > 3 || !bytes.Equal(ns[0], namespace) || len(ns[1]) == 0 || len(ns) == 3 && len(ns[2]) == 0:
		return p, nil, &base.CorruptError{Where: "metabase", Want: "a bucket of a catalogue", Got: fmt.Sprintf("%d names", len(ns))}
	case len(ns) == 3:
		p.nested = ns[2]
	}
	p.bucket = ns[1]
	return p, key, nil
}

func (t flat) get(ctx context.Context, p place, key []byte) ([]byte, bool, error) {
	k, err := flatKey(p, key)
	if err != nil {
		return nil, false, err
	}
	v, err := t.r.Get(ctx, k)
	if errors.Is(err, base.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", p, err)
	}
	return v, true, nil
}

func (t flat) put(ctx context.Context, p place, key, value []byte) error {
	k, err := flatKey(p, key)
	if err == nil {
		err = t.w.Put(ctx, k, value)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p, err)
	}
	return nil
}

func (t flat) delete(ctx context.Context, p place, key []byte) error {
	k, err := flatKey(p, key)
	if err == nil {
		err = t.w.Delete(ctx, k)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p, err)
	}
	return nil
}

func (t flat) rows(ctx context.Context, p place, s span) iter.Seq2[ordered.Row, error] {
	return func(yield func(ordered.Row, error) bool) {
		prefix, err := keyspace.Escaped{}.Prefix(names(p))
		if err != nil {
			yield(ordered.Row{}, err)
			return
		}
		rg := ordered.Prefix(prefix)
		rg.KeysOnly = s.keysOnly
		rg.Start = append(bytes.Clone(prefix), s.from...)
		if s.to != nil {
			rg.End = append(bytes.Clone(prefix), s.to...)
		}
		it := t.r.Iter(rg)
		defer it.Close()
		for it.Next(ctx) {
			row := ordered.Row{Key: it.Key()[len(prefix):]}
			if !s.keysOnly {
				if row.Value, err = it.Value(ctx); err != nil {
					yield(ordered.Row{}, fmt.Errorf("read %s: %w", p, err))
					return
				}
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := it.Err(); err != nil {
			yield(ordered.Row{}, fmt.Errorf("read %s: %w", p, err))
		}
	}
}

// names seeks to the first row of each name, so the cost is proportional to the number of names.
func (t flat) names(ctx context.Context, bucket, from []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		parent := names(place{bucket: bucket})
		next, end, err := keyspace.Escaped{}.Subtree(parent)
		if err == nil && len(from) > 0 {
			next, _, err = keyspace.Escaped{}.Subtree(append(parent, from))
		}
		if err != nil {
			yield(nil, err)
			return
		}
		end = end[:len(end)-1]
		end = append(end, 2) // rows directly in the namespace sort after those of inner namespaces
		for {
			name, ok, err := t.nameFrom(ctx, next, end, len(parent))
			if err != nil || !ok {
				if err != nil {
					yield(nil, fmt.Errorf("list buckets: %w", err))
				}
				return
			}
			if !yield(name, nil) {
				return
			}
			if _, next, err = (keyspace.Escaped{}).Subtree(append(parent[:len(parent):len(parent)], name)); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func (t flat) nameFrom(ctx context.Context, from, end []byte, depth int) ([]byte, bool, error) {
	key, err := t.r.Seek(ctx, from)
	if errors.Is(err, base.ErrNotFound) || err == nil && end != nil && bytes.Compare(key, end) >= 0 {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	ns, _, err := keyspace.Escaped{}.Decode(key)
	if err != nil {
		return nil, false, err
	}
	return ns[depth], true, nil
}

func (t flat) drop(ctx context.Context, p place) error {
	from, to, err := keyspace.Escaped{}.Subtree(names(p))
	if err == nil {
		err = t.w.DeleteRange(ctx, from, to)
	}
	if err != nil {
		return fmt.Errorf("drop %s: %w", p, err)
	}
	return nil
}
