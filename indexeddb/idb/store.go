package idb

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// ObjectStore is an object store in a transaction. For its queries and those of an Index, a query
// is a KeyRange, a key as Key accepts it, or nil for all keys where a method allows that.
//
// All methods that read fail with ErrInvalidState when the object store was deleted,
// ErrTransactionInactive when the transaction has ended, ErrData for an invalid query, ErrUnknown,
// and ErrDataClone when a stored value has an unknown form.
type ObjectStore struct {
	queries
	tx      *Tx
	meta    *indexeddb.Store
	indexes []*Index
	deleted bool
	counts  bool // its counters have changed

	records, external, contents []byte // prefixes of rows

	row []byte // the row key of the last get
}

func newObjectStore(tx *Tx, meta *indexeddb.Store) *ObjectStore {
	s := &ObjectStore{tx: tx, meta: meta}
	s.queries.from = s
	row := indexeddb.Row{Database: tx.meta.ID, Store: meta.ID}
	for kind, prefix := range map[indexeddb.Kind]*[]byte{
		indexeddb.KindRecord: &s.records, indexeddb.KindExternal: &s.external, indexeddb.KindContent: &s.contents,
	} {
		row.Kind = kind
		*prefix = indexeddb.PageFamily(row)
	}
	for _, x := range meta.Indexes {
		s.indexes = append(s.indexes, newIndex(s, x))
	}
	return s
}

// contentKey returns the key of the row with the content of an external object.
func (s *ObjectStore) contentKey(part []byte, position int) []byte {
	return indexeddb.AppendPageUint(append(s.contents[:len(s.contents):len(s.contents)], part...), int64(position))
}

// Name returns the name.
func (s *ObjectStore) Name() string { return s.meta.Name }

// KeyPath returns the key path, of the type indexeddb.NoKeyPath when there is none.
func (s *ObjectStore) KeyPath() indexeddb.KeyPath {
	path := s.meta.KeyPath
	path.Paths = slices.Clone(path.Paths)
	return path
}

// AutoIncrement reports whether there is a key generator.
func (s *ObjectStore) AutoIncrement() bool { return s.meta.AutoIncrement }

// Tx returns the transaction.
func (s *ObjectStore) Tx() *Tx { return s.tx }

// IndexNames returns the names of the indexes, sorted.
func (s *ObjectStore) IndexNames() []string {
	names := []string{}
	for _, x := range s.indexes {
		if !x.deleted {
			names = append(names, x.meta.Name)
		}
	}
	sortNames(names)
	return names
}

// Index returns an index, always the same object. Errors: ErrInvalidState when the object store was
// deleted or the transaction has ended, ErrNotFound.
func (s *ObjectStore) Index(name string) (*Index, error) {
	const op = "get an index"
	if s.deleted || s.tx.state != active {
		return nil, newError(ErrInvalidState, op, "the object store was deleted, or the transaction is over")
	}
	if x := s.indexNamed(name); x != nil {
		return x, nil
	}
	return nil, newError(ErrNotFound, op, "there is no index %.100q", name)
}

func (s *ObjectStore) indexNamed(name string) *Index {
	for _, x := range s.indexes {
		if !x.deleted && x.meta.Name == name {
			return x
		}
	}
	return nil
}

// enter begins a request.
func (s *ObjectStore) enter(op string) error {
	if s.deleted {
		return newError(ErrInvalidState, op, "the object store was deleted")
	}
	return s.tx.enter(op)
}

func (s *ObjectStore) of() *ObjectStore { return s }

// get returns the record with a primary key. The part in r is valid until the next get.
func (s *ObjectStore) get(ctx context.Context, k indexeddb.Key) (r stored, found bool, err error) {
	s.row = k.AppendPagePart(append(s.row[:0], s.records...))
	return s.getRow(ctx, s.row, k)
}

// getRow returns the record in a row. k may be zero when it is not known.
func (s *ObjectStore) getRow(ctx context.Context, row []byte, k indexeddb.Key) (r stored, found bool, err error) {
	pageValue, err := s.tx.r.Get(ctx, row)
	if errors.Is(err, base.ErrNotFound) {
		return stored{}, false, nil
	}
	if err == nil {
		r, err = s.decodeStored(row[len(s.records):], k, pageValue)
	}
	return r, err == nil, err
}

// value decodes the value of a record.
func (s *ObjectStore) value(ctx context.Context, op string, r *stored) (value.Value, error) {
	v, _, err := s.decode(ctx, r)
	return v, s.tx.failRead(op, err)
}

// record decodes a record. k is the key of the match.
func (s *ObjectStore) record(ctx context.Context, op string, r *stored, k indexeddb.Key) (*Record, error) {
	v, objects, err := s.decode(ctx, r)
	if err == nil {
		_, err = r.primaryKey()
	}
	if err != nil {
		return nil, s.tx.fail(op, err, false)
	}
	return &Record{Key: k, PrimaryKey: r.primary, Value: v, Objects: objects, store: s, part: bytes.Clone(r.part)}, nil
}

// bounds returns the row range for the keys of a family in rg. isExact is false when the range may
// contain rows with other keys.
func bounds(family indexeddb.Row, rg KeyRange) (r ordered.Range, isExact bool) {
	prefix := indexeddb.PageFamily(family)
	r, isExact = ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix)}, true
	if !rg.Lower.IsZero() {
		var ok bool
		if r.Start, ok = indexeddb.PageBound(family, rg.Lower, rg.LowerOpen); !ok {
			r.Start, _ = indexeddb.PageBound(family, rg.Lower, false)
			isExact = false
		}
	}
	if !rg.Upper.IsZero() {
		var ok bool
		if r.End, ok = indexeddb.PageBound(family, rg.Upper, !rg.UpperOpen); !ok {
			r.End, _ = indexeddb.PageBound(family, rg.Upper, true)
			isExact = false
		}
	}
	return r, isExact
}
