package flatbuffers_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// drawItems draws the entries and children of a node at level 1 whose keys are distinct.
func drawItems(t *rapid.T) (entries []fb.Entry, children []fb.Child) {
	keys := rapid.SliceOfNDistinct(rapid.StringN(0, 6, 12), 1, 12, rapid.ID[string]).Draw(t, "keys")
	slices.Sort(keys)
	for _, k := range keys {
		value := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")
		entries = append(entries, fb.Entry{Key: []byte(k), Inline: true, Value: value, Size: uint64(len(value))})
	}
	for gap := range len(keys) + 1 {
		if rapid.Bool().Draw(t, "child") {
			children = append(children, fb.Child{Gap: gap, Digest: object.Sum(object.Node, []byte{byte(gap)})})
		}
	}
	return entries, children
}

// TestNextDifference compares it with looking at one item after another, between nodes that differ
// in some bytes.
func TestNextDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, children := drawItems(t)
		a, err := buildNode(1, entries, children)
		if err != nil {
			t.Fatal(err)
		}
		differ := map[int]bool{}
		entries, children = slices.Clone(entries), slices.Clone(children)
		for i := range entries {
			if v := entries[i].Value; len(v) > 0 && rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				entries[i].Value = bytes.Clone(v)
				entries[i].Value[rapid.IntRange(0, len(v)-1).Draw(t, "at")] ^= 1
				differ[2*i+1] = true
			}
		}
		for i := range children {
			if rapid.IntRange(0, 3).Draw(t, "change child") == 0 {
				children[i].Digest = object.Sum(object.Node, []byte{byte(i), 1})
				differ[2*children[i].Gap] = true
			}
		}
		b, err := buildNode(1, entries, children)
		if err != nil {
			t.Fatal(err)
		}
		end := 2*a.Len() + 1
		for item := range end + 1 {
			want := item
			for want < end && !differ[want] {
				want++
			}
			if got, ok := a.NextDifference(b, item); !ok || got != want {
				t.Fatalf("from item %d: %d, %v, want %d", item, got, ok, want)
			}
		}
		// A key that is another one, of the same length.
		last := &entries[len(entries)-1]
		if len(last.Key) == 0 || last.Key[len(last.Key)-1] == 0xff {
			return
		}
		last.Key = bytes.Clone(last.Key)
		last.Key[len(last.Key)-1]++
		c, err := buildNode(1, entries, children)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := a.NextDifference(c, 0); ok {
			t.Fatal("nodes with different keys are said to have the same")
		}
	})
}
