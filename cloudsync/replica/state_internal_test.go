package replica

import (
	"bytes"
	"encoding/gob"
	"reflect"
	"testing"

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
	packs := []wire.Pack{{Epoch: epoch.ID{1}, ID: epoch.ID{2}, Bytes: 1 << 24, Pieces: 900, Eager: true, Since: 5}}
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
		Manifest: packs, Announced: packs, Retention: wire.Retention{Within: -1},
		Near: map[epoch.Commit]epoch.Set{1: {2, 3}, 1 << 63: nil}, Gone: epoch.Set{1, 2, 1 << 60}, Send: epoch.Set{1, 1 << 60}, GiveUp: []commit.ID{{1}, {2}},
		Placed:  map[epoch.Commit]Placed{4: {Base: commit.ID{1}, Diff: wire.Place{Offset: 7}}},
		Pending: Pending{Packs: packs, Sent: []epoch.ID{{8}}}, Missing: map[object.Digest]bool{{1}: true, {2}: true},
		From: epoch.Set{5}, Left: epoch.Set{6},
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
		if err := gob.NewDecoder(bytes.NewReader(encode(v)[1:])).Decode(parts[row]); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
	if diff := cmp.Diff(full, &read, cmpopts.IgnoreUnexported(State{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for row, part := range new(State).parts() {
		if b := encode(reflect.ValueOf(part).Elem()); b != nil {
			t.Errorf("%s: %x for nothing", row, b)
		}
	}
}
