package replica

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// fullState returns a State that has something in each of its parts.
func fullState() *State {
	packs := []wire.Pack{{Epoch: epoch.ID{1}, ID: epoch.ID{2}, Bytes: 1 << 24, Pieces: 900, Eager: true, Since: 5, Dropped: epoch.ID{3}}}
	return &State{
		standing: standing{
			At:     epoch.Position{K: 2, Epoch: epoch.ID{1}, Number: 5, Hash: epoch.Hash{3}, Looked: 1 << 60, Renewed: epoch.ID{2}, Deleted: true},
			Bucket: seal.ID{4}, Entries: 3, Bytes: 1 << 40, EntryTime: 7, KeyIndex: 2,
		},
		Header: &checkpoint.Header{
			Base: wire.Base{Number: 7, Hash: epoch.Hash{1}}, Retention: wire.Retention{Last: 3, Within: 4},
			Runs:      []wire.Run{{Kind: wire.Packs, Age: 1, Epoch: epoch.ID{1}, ID: epoch.ID{9}, Bytes: 300, Records: 2, Hash: epoch.Hash{4}}},
			Snapshots: []wire.Snapshot{{Order: 1, To: object.Digest{2}, Diff: wire.Place{Stored: 1 << 40, Bytes: 1}, Whole: 2}},
		},
		Manifest: packs, Retention: wire.Retention{Within: -1},
		Near: map[epoch.Commit]epoch.Set{1: {2, 3}, 1 << 63: nil}, Send: epoch.Set{1, 1 << 60}, GiveUp: []commit.ID{{1}, {2}},
		Placed:  map[epoch.Commit]Placed{4: {Base: commit.ID{1}, Diff: wire.Place{Offset: 7}}},
		Pending: Pending{Packs: packs, Sent: []epoch.ID{{8}}}, Missing: map[object.Digest]bool{{1}: true, {2}: true},
		From: epoch.Set{5}, Left: epoch.Set{6}, Tombstone: []byte("tombstone"),
		Devices: map[seal.ID]Known{{1}: {Name: "phone", Last: 9}},
	}
}

// Each part of a State is read as it was written.
func TestRowValues(t *testing.T) {
	full := fullState()
	var read State
	parts := read.parts()
	for row, part := range full.parts() {
		v := reflect.ValueOf(part).Elem()
		if v.IsZero() {
			t.Errorf("%s is empty", row)
		}
		if err := parseValue(encodeValue(v), reflect.ValueOf(parts[row]).Elem()); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
	if diff := cmp.Diff(full, &read, cmpopts.IgnoreUnexported(State{})); diff != "" {
		t.Error(diff)
	}
}

// Every type in a State is one that the coder knows: it would pass over the values of another.
func TestRowValueTypes(t *testing.T) {
	var check func(where string, typ reflect.Type)
	check = func(where string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Bool, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64, reflect.String:
		case reflect.Pointer, reflect.Array, reflect.Slice:
			check(where, typ.Elem())
		case reflect.Map:
			check(where, typ.Key())
			check(where, typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if !f.IsExported() {
					t.Errorf("%s: %s of %s cannot be set", where, f.Name, typ)
				}
				check(where+"."+f.Name, f.Type)
			}
		default:
			t.Errorf("%s is a %s", where, typ)
		}
	}
	for row, part := range new(State).parts() {
		check(row, reflect.TypeOf(part).Elem())
	}
}

// A value that is cut, longer, or in another form is none.
func TestBadRowValues(t *testing.T) {
	for row, part := range fullState().parts() {
		v := reflect.ValueOf(part).Elem()
		b := encodeValue(v)
		for n := range b {
			if parseValue(b[:n], reflect.New(v.Type()).Elem()) == nil {
				t.Errorf("%s: %d of %d bytes are read", row, n, len(b))
			}
		}
		if parseValue(append(slices.Clone(b), 0), reflect.New(v.Type()).Elem()) == nil {
			t.Errorf("%s: a byte behind the end is passed over", row)
		}
	}
	for _, b := range []string{"\x02\x02\x01", "\x02\x01\x01", "\x01\x81\x00", "\xff\xff\xff\xff\xff\x0f", "\x01\x80"} {
		if err := parseValue([]byte(b), reflect.ValueOf(new(epoch.Set)).Elem()); err == nil {
			t.Errorf("%x is read as a set", b)
		}
	}
	for _, b := range []string{"\x02\x02\x00\x01\x00", "\x02\x01\x00\x01\x00"} {
		if err := parseValue([]byte(b), reflect.ValueOf(new(map[epoch.Commit]epoch.Set)).Elem()); err == nil {
			t.Errorf("%x is read as a map", b)
		}
	}
}

// A row of any bytes is refused, or its value is encoded as the same bytes.
func FuzzRowValue(f *testing.F) {
	for _, part := range fullState().parts() {
		f.Add(encodeValue(reflect.ValueOf(part).Elem()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for row, part := range new(State).parts() {
			v := reflect.ValueOf(part).Elem()
			if parseValue(b, v) == nil && !bytes.Equal(encodeValue(v), b) {
				t.Errorf("%s: %x is written as %x", row, b, encodeValue(v))
			}
		}
	})
}

// Random numbers and texts are read as they were written.
func TestRowValuesOfDevices(t *testing.T) {
	check := func(m map[seal.ID]Known) bool {
		var got map[seal.ID]Known
		err := parseValue(encodeValue(reflect.ValueOf(m)), reflect.ValueOf(&got).Elem())
		return err == nil && reflect.DeepEqual(m, got)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}
