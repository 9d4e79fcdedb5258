package metabasetest

import (
	"crypto/sha256"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledger/metabase"
)

// Container returns a container id derived from n.
func Container(n byte) metabase.ID { return sha256.Sum256([]byte{'c', n}) }

// Object returns an object that claims a payload of size bytes; there is no payload. pairs are keys
// and values of attributes.
func Object(tb testing.TB, container metabase.ID, typ metabase.Type, size uint64, pairs ...string) (metabase.Address, []byte) {
	tb.Helper()
	return object(tb, container, typ, size, nil, pairs)
}

// Parts returns the address of an object and the bytes of its stored parts: two parts of 100 bytes,
// of which the last has the header of the whole, and a link object.
func Parts(tb testing.TB, container metabase.ID, name string) (metabase.Address, [][]byte) {
	tb.Helper()
	whole, b := Object(tb, container, metabase.Regular, 200, "FileName", name)
	header := field(tb, b, 3)
	first, firstBytes := object(tb, container, metabase.Regular, 100, split(nil, metabase.ID{}, metabase.ID{}), []string{"Part", name})
	_, last := object(tb, container, metabase.Regular, 100, split(header, whole.Object, first.Object), nil)
	_, link := object(tb, container, metabase.Link, 0, split(header, whole.Object, first.Object), nil)
	return whole, [][]byte{firstBytes, last, link}
}

// split encodes the split field of a part.
func split(header []byte, parent, first metabase.ID) []byte {
	var s []byte
	if parent != (metabase.ID{}) {
		s = appendField(s, 1, appendField(nil, 1, parent[:]))
	}
	if header != nil {
		s = appendField(s, 4, header)
	}
	if first != (metabase.ID{}) {
		s = appendField(s, 7, appendField(nil, 1, first[:]))
	}
	if s == nil {
		s = appendField(nil, 4, nil) // a first part, made before the id of the whole is known
	}
	return s
}

func object(tb testing.TB, container metabase.ID, typ metabase.Type, size uint64, split []byte, pairs []string) (metabase.Address, []byte) {
	tb.Helper()
	hash := sha256.Sum256([]byte{byte(size)})
	owner := metabase.NewOwner([20]byte{1})
	o := &metabase.Object{Container: container, Owner: owner[:], Major: 2, Minor: 17, Type: typ, PayloadBytes: size, PayloadHash: hash[:]}
	for i := 0; i < len(pairs); i += 2 {
		o.Attributes = append(o.Attributes, metabase.Attribute{Key: pairs[i], Value: pairs[i+1]})
	}
	b, err := metabase.NewObject(o)
	if err != nil {
		tb.Fatal(err)
	}
	if split == nil {
		return metabase.Address{Container: container, Object: o.ID}, b
	}
	header := appendField(field(tb, b, 3), 11, split)
	id := sha256.Sum256(header)
	return metabase.Address{Container: container, Object: id}, appendField(appendField(nil, 1, appendField(nil, 1, id[:])), 3, header)
}

func appendField(b []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
}

// field returns a copy of a bytes field.
func field(tb testing.TB, b []byte, number protowire.Number) []byte {
	tb.Helper()
	for len(b) > 0 {
		n, _, tag := protowire.ConsumeTag(b)
		value, size := protowire.ConsumeBytes(b[max(tag, 0):])
		if tag < 0 || size < 0 {
			break
		}
		if n == number {
			return append([]byte{}, value...)
		}
		b = b[tag+size:]
	}
	tb.Fatalf("no field %d", number)
	return nil
}
