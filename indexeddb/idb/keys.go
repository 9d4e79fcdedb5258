package idb

import (
	"errors"
	"time"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// Key converts v to a key. v is an indexeddb.Key, a Go number, string, []byte or time.Time, a []any
// of keys, or a value of package value that is a key. A time counts in whole milliseconds. Errors:
// ErrData.
func Key(v any) (indexeddb.Key, error) {
	k, ok := toKey(v, 0)
	if !ok {
		return indexeddb.Key{}, newError(ErrData, "make a key", "a value of the type %T that is no key", v)
	}
	return k, nil
}

// exact is the greatest integer below which a script number represents all integers exactly.
const exact = 1 << 53

func toKey(v any, depth int) (k indexeddb.Key, ok bool) {
	var err error
	switch v := v.(type) {
	case nil:
		return k, false
	case indexeddb.Key:
		return v, !v.IsZero()
	case string:
		return indexeddb.StringKey(v), true
	case float64:
		k, err = indexeddb.NumberKey(v)
	case int:
		return integerKey(int64(v))
	case int64:
		return integerKey(v)
	case int32:
		return integerKey(int64(v))
	case uint32:
		return integerKey(int64(v))
	case []byte:
		return indexeddb.BinaryKey(v), true
	case time.Time:
		k, err = indexeddb.DateKey(float64(v.UnixMilli()))
	case []any:
		if depth > indexeddb.MaxDepth {
			return k, false
		}
		elements := make([]indexeddb.Key, len(v))
		for i, e := range v {
			if elements[i], ok = toKey(e, depth+1); !ok {
				return indexeddb.Key{}, false
			}
		}
		k, err = indexeddb.ArrayKey(elements...)
	default:
		return indexeddb.KeyOf(value.Value(v))
	}
	return k, err == nil
}

func integerKey(n int64) (k indexeddb.Key, ok bool) {
	if n < -exact || n > exact {
		return k, false
	}
	k, err := indexeddb.NumberKey(float64(n))
	return k, err == nil
}

// KeyRange is a range of keys. The zero KeyRange contains all keys.
type KeyRange struct {
	// Lower and Upper are the bounds; zero means no bound. An open bound is outside of the range.
	Lower, Upper         indexeddb.Key
	LowerOpen, UpperOpen bool

	err error
}

// Only returns the range of one key. The bounds of all ranges have the types that Key accepts. With
// an invalid bound, Err and all uses of the range fail with ErrData.
func Only(key any) KeyRange { return Bound(key, key, false, false) }

// LowerBound returns the range of all keys from lower on.
func LowerBound(lower any, open bool) (r KeyRange) {
	r.Lower, r.err = Key(lower)
	r.LowerOpen = open
	return r
}

// UpperBound returns the range of all keys up to upper.
func UpperBound(upper any, open bool) (r KeyRange) {
	r.Upper, r.err = Key(upper)
	r.UpperOpen = open
	return r
}

// Bound returns the range of the keys from lower to upper. It is invalid when no key can be in it.
func Bound(lower, upper any, lowerOpen, upperOpen bool) KeyRange {
	r, up := LowerBound(lower, lowerOpen), UpperBound(upper, upperOpen)
	r.Upper, r.UpperOpen, r.err = up.Upper, up.UpperOpen, errors.Join(r.err, up.err)
	return r
}

// Err returns the reason why the range is invalid, or nil. Errors: ErrData.
func (r KeyRange) Err() error {
	if r.err != nil {
		return newError(ErrData, "make a key range", "%w", r.err)
	}
	if r.Lower.IsZero() || r.Upper.IsZero() {
		return nil
	}
	if c := r.Lower.Compare(r.Upper); c > 0 || c == 0 && (r.LowerOpen || r.UpperOpen) {
		return newError(ErrData, "make a key range", "its lower bound is behind the upper one, or a bound of one key is open")
	}
	return nil
}

// Includes reports whether k is in the range.
func (r KeyRange) Includes(k indexeddb.Key) bool {
	if !r.Lower.IsZero() {
		if c := k.Compare(r.Lower); c < 0 || c == 0 && r.LowerOpen {
			return false
		}
	}
	if !r.Upper.IsZero() {
		if c := k.Compare(r.Upper); c > 0 || c == 0 && r.UpperOpen {
			return false
		}
	}
	return true
}

// only returns the key of a range that contains exactly one.
func (r KeyRange) only() (indexeddb.Key, bool) {
	return r.Lower, !r.Lower.IsZero() && r.Lower == r.Upper && !r.LowerOpen && !r.UpperOpen
}

// toRange converts a query to a range. The query is a KeyRange, a key, or nil for all keys.
func toRange(query any, op string) (KeyRange, error) {
	switch q := query.(type) {
	case nil:
		return KeyRange{}, nil
	case KeyRange:
		if err := q.Err(); err != nil {
			return q, newError(ErrData, op, "%w", err.(*Error).Err)
		}
		return q, nil
	}
	k, ok := toKey(query, 0)
	if !ok {
		return KeyRange{}, newError(ErrData, op, "a value of the type %T that is no key", query)
	}
	return KeyRange{Lower: k, Upper: k}, nil
}

// needRange is toRange for requests that require a query.
func needRange(query any, op string) (KeyRange, error) {
	if query == nil {
		return KeyRange{}, newError(ErrData, op, "without a key or key range")
	}
	return toRange(query, op)
}

// Path returns a key path with one path: property names joined by dots, or "" for the value itself.
func Path(path string) indexeddb.KeyPath {
	return indexeddb.KeyPath{Type: indexeddb.StringKeyPath, Paths: []string{path}}
}

// Paths returns a key path with several paths; the key is an array.
func Paths(paths ...string) indexeddb.KeyPath {
	return indexeddb.KeyPath{Type: indexeddb.ArrayKeyPath, Paths: paths}
}
