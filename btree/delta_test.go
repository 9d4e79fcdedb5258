package btree_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// drawNode draws a node whose items come from small pools, so that two of them share some.
func drawNode(rt *rapid.T) *fb.Node {
	level := rapid.IntRange(1, 3).Draw(rt, "level")
	var es []fb.Entry
	var cs []fb.Child
	for i := range 12 {
		if rapid.Bool().Draw(rt, "child") {
			digest := object.Sum(object.Node, []byte{byte(rapid.IntRange(0, 12).Draw(rt, "digest"))})
			c := fb.Child{Gap: len(es), Level: rapid.IntRange(0, level-1).Draw(rt, "child level"), Digest: digest}
			if n := len(cs); n == 0 || cs[n-1].Gap < c.Gap {
				cs = append(cs, c)
			}
		}
		if rapid.Bool().Draw(rt, "entry") {
			es = append(es, drawEntry(rt, fmt.Sprintf("key%02d", i)))
		}
	}
	if len(es) == 0 {
		level, cs = 0, nil
	}
	n, err := buildNode(level, es, cs)
	if err != nil {
		rt.Fatal(err)
	}
	return n
}

func TestDeltaRoundTrip(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		a, b := drawNode(rt), drawNode(rt)
		delta := btree.AppendDelta([]byte("before"), a, b)
		got, err := btree.ApplyDelta(a, delta[len("before"):])
		if err != nil || !bytes.Equal(got, b.Bytes()) {
			rt.Fatalf("other bytes, error %v", err)
		}
	})
}

func testNode(t testing.TB, change func(i int, e *fb.Entry, c *fb.Child) (dropEntry, dropChild bool)) *fb.Node {
	t.Helper()
	var es []fb.Entry
	var cs []fb.Child
	for i := range 16 {
		e := inline(fmt.Sprintf("key %012d", i), fmt.Sprintf("%0100d", i))
		c := fb.Child{Gap: len(es), Digest: object.Sum(object.Node, []byte{byte(i)})}
		dropEntry, dropChild := false, false
		if change != nil {
			dropEntry, dropChild = change(i, &e, &c)
		}
		if !dropChild {
			cs = append(cs, c)
		}
		if !dropEntry {
			es = append(es, e)
		}
	}
	n, err := buildNode(1, es, cs)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDeltaIsSmall(t *testing.T) {
	whole := testNode(t, nil)
	for name, c := range map[string]struct {
		result *fb.Node
		most   int
	}{
		"same": {whole, 3},
		"value": {testNode(t, func(i int, e *fb.Entry, _ *fb.Child) (bool, bool) {
			if i == 7 {
				e.Value = bytes.Repeat([]byte{'x'}, 100)
			}
			return false, false
		}), 116 + 20},
		"child": {testNode(t, func(i int, _ *fb.Entry, c *fb.Child) (bool, bool) {
			if i == 7 {
				c.Digest = object.Sum(object.Node, nil)
			}
			return false, false
		}), object.DigestSize + 11},
		"child gone": {testNode(t, func(i int, _ *fb.Entry, _ *fb.Child) (bool, bool) { return false, i == 7 }), 10},
		"entry before a child gone": {testNode(t, func(i int, _ *fb.Entry, _ *fb.Child) (bool, bool) {
			return i == 7, i == 8
		}), 10},
		"first gone": {testNode(t, func(i int, _ *fb.Entry, _ *fb.Child) (bool, bool) { return i == 0, i == 0 }), 10},
		"last gone":  {testNode(t, func(i int, _ *fb.Entry, _ *fb.Child) (bool, bool) { return i == 15, i == 15 }), 10},
	} {
		if d := btree.AppendDelta(nil, whole, c.result); len(d) > c.most {
			t.Errorf("%s: %d bytes, at most %d", name, len(d), c.most)
		}
		// An item that comes back costs itself.
		if d := btree.AppendDelta(nil, c.result, whole); len(d) > 116+2*object.DigestSize+20 {
			t.Errorf("%s, the other way round: %d bytes", name, len(d))
		}
	}
}

func TestBadDeltas(t *testing.T) {
	n := testNode(t, nil)
	good := btree.AppendDelta(nil, n, n)
	for name, d := range map[string][]byte{
		"empty":           {},
		"level only":      {1},
		"cut":             good[:len(good)-1],
		"beyond":          append(bytes.Clone(good), 1<<2),
		"keep nothing":    append(bytes.Clone(good), 0),
		"level too low":   append([]byte{0}, good[1:]...),
		"level too high":  append([]byte{64}, good[1:]...),
		"all gone":        {1, 0x81, 0x01},
		"long number":     {1, 0x80, 0x00},
		"cut child":       {1, 2, 2, 0, 0},
		"high child":      {1, 0xfe, 0xff, 0xff, 0x0f},
		"entry kind":      {1, 3 | 3<<2, 0},
		"long key":        {1, 3, 0x81, 0x20},
		"long value":      {1, 3, 0, 0x81, 0x02},
		"cut key":         {1, 3, 9, 0},
		"cut reference":   {1, 7, 0, 0},
		"wrong key order": append(bytes.Clone(good), 3, 0, 0),
	} {
		if _, err := btree.ApplyDelta(n, d); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzApplyDelta(f *testing.F) {
	n := testNode(f, nil)
	empty, err := fb.ParseNode(fb.EmptyNode())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(false, btree.AppendDelta(nil, n, n))
	f.Add(false, btree.AppendDelta(nil, n, empty))
	f.Add(true, btree.AppendDelta(nil, empty, n))
	f.Add(false, btree.AppendDelta(nil, n, testNode(f, func(i int, e *fb.Entry, _ *fb.Child) (bool, bool) {
		if i == 3 {
			*e = reference(string(e.Key), "r", 1<<40, object.Lazy)
		}
		return i%3 == 0, i%3 == 0 || i%4 == 1
	})))
	f.Fuzz(func(t *testing.T, fromEmpty bool, delta []byte) {
		old := n
		if fromEmpty {
			old = empty
		}
		got, err := btree.ApplyDelta(old, delta)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
			return
		}
		view, err := fb.ParseNode(got)
		if err != nil || len(got) > limits.MaxNodeBytes {
			t.Fatalf("result of %d bytes, error %v", len(got), err)
		}
		again, err := btree.ApplyDelta(old, btree.AppendDelta(nil, old, view))
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("own delta gives other bytes, error %v", err)
		}
	})
}
