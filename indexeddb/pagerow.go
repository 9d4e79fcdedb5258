package indexeddb

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledger/keyspace"
)

// namespace is the prefix of all page rows.
var namespace, _ = keyspace.Escaped{}.Prefix([][]byte{[]byte("indexeddb")})

// PagePrefix returns the common prefix of all page keys that hold rows of IndexedDB.
func PagePrefix() []byte { return bytes.Clone(namespace) }

// PageKey appends the key of row r on a page. short is set when a key or name in it was shortened
// (X4). r must not be of KindScope or KindExists, which pages omit, and an index row must have its
// primary key.
func PageKey(dst []byte, r Row) (key []byte, short bool) {
	start := len(dst)
	dst = pagePrefix(dst, r)
	part := func(k Key) {
		at := len(dst)
		dst = k.AppendPagePart(dst)
		short = short || ShortPagePart(dst[at:])
	}
	switch r.Kind {
	case KindRecord, KindExternal:
		part(r.Primary)
	case KindContent, KindMoved:
		part(r.Primary)
		dst = AppendPageUint(dst, r.Sequence)
	case KindIndexRow:
		part(r.Key)
		part(r.Primary)
	case KindScope, KindExists:
		return dst[:start], false
	default:
		dst = r.appendMetadata(dst, AppendPageUint, func(to []byte, name string) []byte {
			dst = to
			part(StringKey(name))
			return dst
		})
	}
	return dst, short
}

// PageFamily returns the common prefix of the page keys of all rows in the family of r; see
// AppendPrefix.
func PageFamily(r Row) []byte { return pagePrefix(nil, r) }

func pagePrefix(dst []byte, r Row) []byte {
	database, store, index := r.prefix()
	return AppendPageUint(AppendPageUint(AppendPageUint(append(dst, namespace...), database), store), index)
}

// PageRow returns the key and value of r on a page. value is the value in Chromium's LevelDB. Index
// rows have no value. The caller stores the content of a KindContent under PageKey itself.
func PageRow(r Row, value []byte) (key, pageValue []byte) {
	key, short := PageKey(nil, r)
	if r.Kind == KindIndexRow {
		value = nil
	}
	if !short {
		return key, value
	}
	row := r.Append(nil)
	pageValue = append(AppendVarInt(make([]byte, 0, len(row)+len(value)+9), int64(len(row))), row...)
	return key, append(pageValue, value...)
}

// DecodePageRow is the inverse of PageRow. The returned value shares memory with pageValue, and is
// empty for index rows. A KindContent row whose primary key was shortened gets no primary key.
// Errors: base.ErrCorrupt.
func DecodePageRow(key, pageValue []byte) (Row, []byte, error) {
	r, short, err := decodePageKey(key)
	if err != nil {
		return Row{}, nil, fmt.Errorf("row of a page: %w", err)
	}
	value := pageValue
	if short && r.Kind != KindContent {
		row, rest, ok := binaryWithLength(pageValue)
		if !ok {
			return Row{}, nil, malformed("row of a page", "its value does not have its key")
		}
		if r, err = DecodeRow(row); err != nil {
			return Row{}, nil, fmt.Errorf("row of a page: %w", err)
		}
		value = rest
	}
	if r.Kind == KindIndexRow && (len(value) > 0 || r.Primary.IsZero() || r.Sequence != 0) {
		return Row{}, nil, malformed("row of a page", "an index row with a value, or of an old form")
	}
	if again, _ := PageKey(nil, r); r.Kind != KindContent && !bytes.Equal(again, key) {
		return Row{}, nil, malformed("row of a page", "it stands under the key of another row")
	}
	return r, value, nil
}

// DecodePageKey decodes a page key without its value. Keys and names that were shortened (X4) are
// zero in the Row. Errors: base.ErrCorrupt.
func DecodePageKey(key []byte) (Row, error) {
	r, _, err := decodePageKey(key)
	return r, err
}

// decodePageKey decodes a page key. Shortened keys and names are zero in r.
func decodePageKey(key []byte) (r Row, short bool, err error) {
	b, ok := bytes.CutPrefix(key, namespace)
	if !ok {
		return r, false, malformed("row of a page", "it is in another namespace")
	}
	d := rowDecoder{b: b, page: true}
	database, store, index := d.uint(), d.uint(), d.uint()
	r.Database, r.Store = database, store
	switch {
	case d.err != nil:
	case store != 0 && index == indexRecord:
		r.Kind, r.Primary = KindRecord, d.key()
	case store != 0 && index == indexExternal:
		r.Kind, r.Primary = KindExternal, d.key()
	case store != 0 && index == indexContent:
		r.Kind, r.Primary, r.Sequence = KindContent, d.key(), d.uint()
	case store != 0 && index == indexMoved:
		r.Kind, r.Primary, r.Sequence = KindMoved, d.key(), d.uint()
	case store != 0 && index >= MinIndexID:
		r.Kind, r.Index, r.Key, r.Primary = KindIndexRow, index, d.key(), d.key()
	case store == 0 && index == 0:
		d.metadata(&r)
	default:
		d.fail("no family has the ids %d/%d/%d", database, store, index)
	}
	if len(d.b) > 0 {
		d.fail("%d bytes behind it", len(d.b))
	}
	return r, d.short, d.err
}

// RowGroup returns the name of the group of a page key. All rows of one record have the same name;
// for any other row the name is its key. No value is needed for this. Errors: base.ErrCorrupt.
func RowGroup(key []byte) ([]byte, error) {
	b, ok := bytes.CutPrefix(key, namespace)
	d := rowDecoder{b: b, page: true}
	database, store, index := d.uint(), d.uint(), d.uint()
	if !ok || d.err != nil {
		return nil, malformed("row of a page", "its ids are missing")
	}
	if store == 0 {
		return bytes.Clone(key), nil
	}
	rest := d.b
	if index >= MinIndexID {
		var err error
		if _, rest, _, err = CutPagePart(rest); err != nil {
			return nil, err
		}
	}
	primary, _, _, err := CutPagePart(rest)
	if err != nil {
		return nil, err
	}
	return append(AppendPageUint(PageStore(database, store), indexRecord), primary...), nil
}
