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
	node, leaf := object.Sum(object.NodeBit, []byte("node")), object.Sum(0, []byte("piece"))
	split := object.Sum(object.NodeBit|object.IndexBit, []byte("split"))
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: node, Parents: []*commit.Commit{commit.First()}})
	if err != nil {
		t.Fatal(err)
	}
	merge := c.ID
	ops := []op{
		{kind: recPiece, journal: 300, digest: leaf, content: []byte("piece")},
		{kind: recUse, journal: 1, digest: leaf},
		{kind: recNode, digest: node, content: []byte("node")},
		{kind: recDelta, digest: node, base: &node, depth: 2, content: []byte("script")},
		{kind: recSplitNode, digest: split},
		{kind: recCommit, content: c.Encode()},
		{kind: recJournal, journal: 7},
		{kind: recTag, tag: &tagChange{name: "name", id: merge}},
		{kind: recTag, tag: &tagChange{name: "gone", deleted: true}},
		{kind: recExplain, merge: &merge, digest: node},
		{kind: recExplain, merge: &merge, digest: split},
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
	node := object.Sum(object.NodeBit, []byte("node"))
	good := func(d object.Digest) []byte { return append(make([]byte, len(commit.ID{})), d[:]...) }
	reserved := node
	reserved[0] |= 0x80
	for name, p := range map[string][]byte{
		"empty":        nil,
		"short":        good(node)[:64],
		"long":         append(good(node), 0),
		"piece":        good(object.Sum(0, []byte("x"))),
		"index":        good(object.Sum(object.IndexBit, []byte("x"))),
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
	f.Add(byte(recExplain+1), []byte("a kind of a newer format"))
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

// FuzzParseConflictRow reads rows of explanations of any bytes: what is read is written as the same bytes.
func FuzzParseConflictRow(f *testing.F) {
	id, node := commit.ID{1}, object.Sum(object.NodeBit, []byte("node"))
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
