package outgoing

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "rewrite golden files")

var compareRows = cmp.AllowUnexported(pending{}, pendingPack{}, pendingDiff{}, diffKey{})

func someRow() pending {
	return pending{
		packs: []pendingPack{
			{format.PackRef{ID: format.ID{1}, Bytes: 16 << 20, Pieces: 900, Eager: true}, object.Digest{1, 2, 3}},
			{format.PackRef{ID: format.ID{2}, Bytes: 1, Pieces: 1}, object.Digest{0, 9}},
		},
		diffs: []pendingDiff{
			{diffKey{commit: commit.ID{5}, base: format.Base{Commit: commit.ID{6}}}, format.ID{3}, 1 << 30},
			{diffKey{explanation: true, commit: commit.ID{5}, base: format.Base{Empty: true}}, format.ID{4}, 77},
		},
	}
}

func TestRowGolden(t *testing.T) {
	row := someRow()
	const name = "testdata/packs.golden"
	if *update {
		if err := os.WriteFile(name, row.encode(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(row.encode(), want) {
		t.Errorf("the row has changed: %x, want %x", row.encode(), want)
	}
	got, err := parsePending(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(row, got, compareRows); diff != "" {
		t.Error(diff)
	}
}

func TestRowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pending
		id := rapid.Custom(func(t *rapid.T) (id format.ID) {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
			return id
		})
		for range rapid.IntRange(0, 4).Draw(t, "packs") {
			p.packs = append(p.packs, pendingPack{
				format.PackRef{ID: id.Draw(t, "pack"), Bytes: rapid.Uint64Max(format.MaxPackObjectBytes).Draw(t, "bytes"), Pieces: rapid.Uint32Max(format.MaxPackPieces).Draw(t, "pieces"), Eager: rapid.Bool().Draw(t, "eager")},
				object.Digest{byte(rapid.IntRange(0, 3).Draw(t, "sample"))},
			})
		}
		for range rapid.IntRange(0, 4).Draw(t, "diffs") {
			d := pendingDiff{key: diffKey{explanation: rapid.Bool().Draw(t, "explanation"), commit: commit.ID{1}, base: format.Base{Empty: true}}, id: id.Draw(t, "diff"), bytes: rapid.Uint64Max(format.MaxDiffBytes).Draw(t, "bytes")}
			if rapid.Bool().Draw(t, "based") {
				d.key.base = format.Base{Commit: commit.ID{7}}
			}
			p.diffs = append(p.diffs, d)
		}
		got, err := parsePending(p.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got, compareRows); diff != "" {
			t.Fatal(diff)
		}
		refs, err := parseRefs(encodeRefs(p.refs()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p.refs(), refs); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestRowWithoutMeasure refuses packs and diffs that are longer than there can be: no body could
// announce them, and the page would try for ever.
func TestRowWithoutMeasure(t *testing.T) {
	for name, change := range map[string]func(p *pending){
		"bytes of a pack":  func(p *pending) { p.packs[0].ref.Bytes = format.MaxPackObjectBytes + 1 },
		"pieces of a pack": func(p *pending) { p.packs[1].ref.Pieces = format.MaxPackPieces + 1 },
		"bytes of a diff":  func(p *pending) { p.diffs[0].bytes = 1 << 63 },
	} {
		row := someRow()
		change(&row)
		if _, err := parsePending(row.encode()); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRows(f *testing.F) {
	row := someRow()
	f.Add(row.encode())
	f.Add(encodeRefs(row.refs()))
	f.Add([]byte{2})
	f.Add([]byte{1, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePending(b)
		checkRow(t, b, err, p.encode())
		refs, err := parseRefs(b)
		checkRow(t, b, err, encodeRefs(refs))
	})
}

func checkRow(t *testing.T, b []byte, err error, again []byte) {
	t.Helper()
	switch {
	case err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported):
		t.Fatalf("error %v", err)
	case err == nil && len(b) > 0 && !bytes.Equal(again, b):
		t.Fatalf("%x was read, and is written as %x", b, again)
	}
}
