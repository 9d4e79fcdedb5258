package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

var update = flag.Bool("update", false, "rewrite golden files")

// sampleRecords returns a record of every kind, in order.
func sampleRecords(t testing.TB) []segment.Record {
	t.Helper()
	node, leaf := object.Sum(object.Node, []byte("node")), object.Sum(0, []byte("piece"))
	index := object.Sum(object.Index, []byte("index"))
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: node, Parents: []*commit.Commit{commit.First()}})
	if err != nil {
		t.Fatal(err)
	}
	merge := c.ID
	ops := []op{
		{kind: recPiece, digest: leaf, content: []byte("piece")},
		{kind: recNode, digest: node, content: []byte("node")},
		{kind: recDelta, digest: node, base: &node, depth: 2, content: []byte("script")},
		{kind: recCommit, content: c.Encode()},
		{kind: recTag, tag: &TagChange{Name: "name", Commit: merge}},
		{kind: recTag, tag: &TagChange{Name: "gone", Removed: true}},
		{kind: recExplain, merge: &merge, digest: node},
		{kind: recCommit, origin: originBucket, content: c.Encode()},
		{kind: recCommit, origin: originTreeless, content: c.Encode()},
		{kind: recCommit, origin: originAhead, content: c.Encode()},
		{kind: recPlaces, sync: &syncOp{places: []PlacedPiece{
			{leaf, CloudPlace{Pack: [16]byte{1, 2}, Block: 300, Offset: 1 << 40, StoredBytes: 70000, At: 5, Bytes: 1 << 16, KeyIndex: 2}},
			{index, CloudPlace{Pack: [16]byte{1, 2}, KeyIndex: 2}},
		}}},
		{kind: recPlaces, sync: &syncOp{places: []PlacedPiece{{leaf, CloudPlace{Entry: 1 << 63, Block: 1, At: 7, Bytes: 9}}}}},
		{kind: recUnplaced, sync: &syncOp{digests: []object.Digest{leaf, index}}},
		{kind: recDropped, sync: &syncOp{digests: []object.Digest{leaf}}},
		{kind: recStatus, sync: &syncOp{status: statusSynced, ids: []commit.ID{merge, {}}}},
		{kind: recStatus, sync: &syncOp{status: statusUnsynced, ids: []commit.ID{merge}}},
		{kind: recStatus, sync: &syncOp{status: statusTree, ids: []commit.ID{merge}}},
		{kind: recTagReceived, tag: &TagChange{Name: "name", Commit: merge}},
		{kind: recTagReceived, tag: &TagChange{Name: "gone", Removed: true}},
		{kind: recTagSynced, tag: &TagChange{Name: "name", Commit: merge}},
		{kind: recTagSynced, tag: &TagChange{Name: "gone", Removed: true}},
		{kind: recMetadata, sync: &syncOp{meta: Metadata{"position", []byte("value")}}},
		{kind: recMetadata, sync: &syncOp{meta: Metadata{"empty", []byte{}}}},
		{kind: recMetadata, sync: &syncOp{meta: Metadata{Type: "gone"}}},
		{kind: recDeleted, sync: &syncOp{digests: []object.Digest{leaf, node}}},
		{kind: recPruned, sync: &syncOp{ids: []commit.ID{merge}}},
		{kind: recPruned, sync: &syncOp{ids: []commit.ID{merge, {1}}, children: []commit.ID{{2}}}},
		{kind: recStatus, sync: &syncOp{status: statusInner, ids: []commit.ID{merge, {}}}},
		{kind: recRows, content: append([]byte{7, 1, 't', 3}, "row"...)},
		{kind: recRows, content: append([]byte{10, object.DigestSize}, append(leaf[:], 0)...)},
		{kind: recComplete, sync: &syncOp{checkpoint: checkpoint{upTo: 1000, first: 1001}}},
	}
	out := make([]segment.Record, len(ops))
	for i, o := range ops {
		out[i] = segment.Record{Kind: o.kind, Payload: append(o.appendHeader(nil), o.content...)}
	}
	return out
}

// encoded returns what a parsed record is written as.
func encoded(o *op) []byte {
	content := o.content
	if o.kind == recCommit {
		content = o.commit.Encode()
	}
	return append(o.appendHeader(nil), content...)
}

// TestRecordGolden compares the bytes of records with those of the format, and reads them.
func TestRecordGolden(t *testing.T) {
	var b strings.Builder
	for _, r := range sampleRecords(t) {
		fmt.Fprintf(&b, "%d %s\n", r.Kind, hex.EncodeToString(r.Payload))
		o, err := parseRecord(r)
		if err != nil || !bytes.Equal(encoded(&o), r.Payload) {
			t.Errorf("record of kind %d: %x, %v", r.Kind, encoded(&o), err)
		}
	}
	path := filepath.Join("testdata", "records.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("records are\n%swant\n%s", b.String(), want)
	}
}

// TestExplanationRecordIsStrict refuses records of kind 9 that are not what is written.
func TestExplanationRecordIsStrict(t *testing.T) {
	node := object.Sum(object.Node, []byte("node"))
	good := func(d object.Digest) []byte { return append(make([]byte, len(commit.ID{})), d[:]...) }
	reserved := node
	reserved[0] |= 0x80
	for name, p := range map[string][]byte{
		"empty":        nil,
		"short":        good(node)[:64],
		"long":         append(good(node), 0),
		"piece":        good(object.Sum(0, []byte("x"))),
		"index":        good(object.Sum(object.Index, []byte("x"))),
		"reserved bit": good(reserved),
		"empty tree":   good(btree.EmptyRoot),
	} {
		if _, err := parseRecord(segment.Record{Kind: recExplain, Payload: p}); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

// FuzzParseRecord reads records of any bytes: what is read is written as the same bytes.
func FuzzParseRecord(f *testing.F) {
	for _, r := range sampleRecords(f) {
		f.Add(r.Kind, r.Payload)
	}
	f.Add(byte(recComplete+1), []byte("a kind of a newer format"))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		o, err := parseRecord(segment.Record{Kind: kind, Payload: payload})
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatalf("an error that does not say what is wrong: %v", err)
			}
			return
		}
		if got := encoded(&o); !bytes.Equal(got, payload) {
			t.Fatalf("record of kind %d is written as %x, was read from %x", kind, got, payload)
		}
	})
}

// FuzzParseConflictRow reads rows of explanations of any bytes: what is read is written as the same
// bytes.
func FuzzParseConflictRow(f *testing.F) {
	id, node := commit.ID{1}, object.Sum(object.Node, []byte("node"))
	f.Add(id[:], conflictRow(id, &node))
	f.Add(id[:], conflictRow(commit.ID{2}, &node))
	empty := btree.EmptyRoot
	f.Add(id[:], conflictRow(id, &empty))
	f.Add(id[:31], conflictRow(id, &node))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		root, err := parseConflictRow(k, v)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if !root.Kind().IsNode() || !bytes.Equal(conflictRow(commit.ID(k), &root), v) {
			t.Fatalf("row %x of %x was read as %s", v, k, root)
		}
	})
}

// FuzzParseCloudRow reads rows of places of any bytes, with a right checksum: what is read is
// written as the same bytes.
func FuzzParseCloudRow(f *testing.F) {
	d := object.Sum(0, []byte("piece"))
	for _, p := range []CloudPlace{
		{Entry: 7, Block: 1, At: 2, Bytes: 3, KeyIndex: 4},
		{Pack: [16]byte{1}, Block: 1, Offset: 1 << 62, StoredBytes: 1 << 31, At: 2, Bytes: 1 << 16},
	} {
		v := cloudRow(&d, &p)
		f.Add(v[:len(v)-4])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, place []byte) {
		v := withSum(d[:], bytes.Clone(place))
		p, err := parseCloudRow(&d, v)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if got := cloudRow(&d, &p); !bytes.Equal(got, v) {
			t.Fatalf("row %x was read as %s", v, &p)
		}
	})
}

// TestSyncRecordsAreStrict refuses records of sync that are not what is written.
func TestSyncRecordsAreStrict(t *testing.T) {
	leaf, node := object.Sum(0, []byte("x")), object.Sum(object.Node, []byte("x"))
	pack := append([]byte{0, 1}, make([]byte, 15)...)
	spot := func(container []byte, d object.Digest, rest ...byte) []byte {
		return append(append(bytes.Clone(container), d[:]...), rest...)
	}
	inPack := append(bytes.Clone(pack), 0)
	for name, r := range map[string]segment.Record{
		"no container":       {Kind: recPlaces},
		"unknown container":  {Kind: recPlaces, Payload: spot([]byte{2, 0}, leaf, 0, 0, 0)},
		"no pack":            {Kind: recPlaces, Payload: spot(make([]byte, 18), leaf, 0, 0, 0, 0, 0)},
		"entry 0":            {Kind: recPlaces, Payload: spot([]byte{1, 0, 0}, leaf, 0, 0, 0)},
		"no places":          {Kind: recPlaces, Payload: inPack},
		"place of a node":    {Kind: recPlaces, Payload: spot(inPack, node, 0, 0, 0, 0, 0)},
		"short place":        {Kind: recPlaces, Payload: spot(inPack, leaf, 0, 0, 0, 0)},
		"long number":        {Kind: recPlaces, Payload: spot(inPack, leaf, 0x80, 0, 0, 0, 0, 0)},
		"large piece":        {Kind: recPlaces, Payload: spot(inPack, leaf, 0, 0, 0, 0, 0x81, 0x80, 4)},
		"no digests":         {Kind: recUnplaced},
		"part of a digest":   {Kind: recDropped, Payload: leaf[:32]},
		"unplaced node":      {Kind: recUnplaced, Payload: node[:]},
		"too many":           {Kind: recDropped, Payload: bytes.Repeat(leaf[:], maxRecordEntries+1)},
		"unknown status":     {Kind: recStatus, Payload: append([]byte{7}, make([]byte, 32)...)},
		"status of nothing":  {Kind: recStatus, Payload: []byte{1}},
		"part of an id":      {Kind: recStatus, Payload: append([]byte{1}, make([]byte, 33)...)},
		"no type":            {Kind: recMetadata, Payload: []byte{1, 0, 1}},
		"short type":         {Kind: recMetadata, Payload: []byte{1, 2, 'a'}},
		"removed with value": {Kind: recMetadata, Payload: []byte{0, 1, 'a', 'b'}},
		"long value":         {Kind: recMetadata, Payload: append([]byte{1, 1, 'a'}, make([]byte, maxMetadataBytes+1)...)},
		"no such kind":       {Kind: 17, Payload: nil},
		"unknown origin":     {Kind: recCommit, Payload: []byte{4}},
		"no rows":            {Kind: recRows, Payload: []byte{1}},
		"unknown family":     {Kind: recRows, Payload: []byte{byte(len(checkpointFamilies)), 0, 0}},
		"half a row":         {Kind: recRows, Payload: []byte{1, 1, 'a'}},
		"long row":           {Kind: recRows, Payload: []byte{1, 1, 'a', 2, 'b'}},
		"row of no piece":    {Kind: recRows, Payload: []byte{11, 1, 'a', 0}},
		"end of nothing":     {Kind: recComplete, Payload: []byte{1}},
		"end and more":       {Kind: recComplete, Payload: []byte{1, 2, 3, 4}},
	} {
		if _, err := parseRecord(r); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}
