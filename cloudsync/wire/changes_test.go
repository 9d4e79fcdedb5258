package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// changes generates diffs.
func changes() *rapid.Generator[[]btree.Change] {
	return rapid.Custom(func(t *rapid.T) []btree.Change {
		keys := rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringN(0, 8, 8), rapid.StringN(0, 600, 3000)), 0, 30, rapid.ID[string]).Draw(t, "keys")
		slices.Sort(keys)
		list := make([]btree.Change, len(keys))
		for i, key := range keys {
			c := btree.Change{Entry: fb.Entry{Key: []byte(key)}}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				c.Delete = true
			case 1:
				c = inline(key, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"))
			default:
				kind := rapid.SampledFrom([]object.Kind{object.Chunk, object.Index}).Draw(t, "piece")
				c.Entry.Digest = object.Sum(kind, []byte(key))
				c.Entry.Size = rapid.Uint64Range(1, math.MaxInt64).Draw(t, "size")
				c.Entry.Priority = object.Priority(rapid.IntRange(0, 1).Draw(t, "priority"))
			}
			list[i] = c
		}
		return list
	})
}

func readChanges(r io.Reader, limit int) (list []btree.Change, err error) {
	for c, err := range wire.ReadChanges(r, uint64(limit)) {
		if err != nil {
			return list, err
		}
		c.Entry.Key, c.Entry.Value = bytes.Clone(c.Entry.Key), bytes.Clone(c.Entry.Value)
		list = append(list, c)
	}
	return list, nil
}

func TestChangesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := changes().Draw(t, "changes")
		var b bytes.Buffer
		w := wire.NewChangeWriter(&b)
		for i := range list {
			if err := w.Write(&list[i]); err != nil {
				t.Fatal(err)
			}
		}
		behind := "behind"
		stream := bytes.NewReader(append(b.Bytes(), behind...))
		fromSlice, err1 := readChanges(bytes.NewReader(b.Bytes()), b.Len())
		fromStream, err2 := readChanges(iotest.HalfReader(stream), b.Len())
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, got := range [][]btree.Change{fromSlice, fromStream} {
			if diff := cmp.Diff(list, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
		if rest, _ := io.ReadAll(stream); string(rest) != behind {
			t.Fatalf("%q is left of what stands behind the diff", rest)
		}
	})
}

// TestLongDiffStreams reads a diff that is longer than what the reader holds.
func TestLongDiffStreams(t *testing.T) {
	var b bytes.Buffer
	w := wire.NewChangeWriter(&b)
	for i := range 500 {
		c := inline(strings.Repeat(string(rune('a'+i/26/26))+string(rune('a'+i/26%26))+string(rune('a'+i%26)), limits.MaxKeyBytes/3), noise(uint64(i), wire.MaxInlineBytes))
		if err := w.Write(&c); err != nil {
			t.Fatal(err)
		}
	}
	i := 0
	if got := allocated(func() {
		for c, err := range wire.ReadChanges(iotest.OneByteReader(bytes.NewReader(b.Bytes())), uint64(b.Len())) {
			if err != nil || !bytes.Equal(c.Entry.Value, noise(uint64(i), wire.MaxInlineBytes)) {
				t.Fatalf("change %d: %v", i, err)
			}
			i++
		}
	}); got > 6<<20 { // noise allocates 2 MiB of it and its generators
		t.Errorf("reading %d bytes allocates %d", b.Len(), got)
	}
	if i != 500 {
		t.Errorf("%d changes are read", i)
	}
}

func TestChangesThatNobodyWrites(t *testing.T) {
	d := object.Sum(object.Chunk, []byte("x"))
	node := object.Sum(object.Node, []byte("x"))
	for name, e := range map[string]fb.Entry{
		"key too long":    {Key: make([]byte, limits.MaxKeyBytes+1), Inline: true},
		"inline too long": {Inline: true, Value: make([]byte, wire.MaxInlineBytes+1)},
		"node":            {Digest: node, Size: 1},
		"no size":         {Digest: d},
		"size":            {Digest: d, Size: 1 << 63},
		"priority":        {Digest: d, Size: 1, Priority: 2},
	} {
		c := btree.Change{Entry: e}
		w := wire.NewChangeWriter(io.Discard)
		err := w.Write(&c)
		if !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) || w.Bytes() != 0 {
			t.Errorf("%s: %v", name, err)
		}
		ok := inline("z", nil)
		if again := w.Write(&ok); again == nil || w.Bytes() != 0 {
			t.Errorf("%s: the error does not stick", name)
		}
	}
	for _, keys := range [][2]string{{"b", "a"}, {"a", "a"}, {"a", ""}, {"", ""}, {"ab", "a"}} {
		w := wire.NewChangeWriter(io.Discard)
		a, b := inline(keys[0], nil), inline(keys[1], nil)
		if err := w.Write(&a); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(&b); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("keys %q: %v", keys, err)
		}
	}
}

func TestBadDiffs(t *testing.T) {
	d := object.Sum(object.Chunk, []byte("x"))
	node := object.Sum(object.Node, []byte("x"))
	good := diffOf(t, inline("a", []byte("value")), far("b", d, object.Eager), removed("c"))
	two := func(a, b btree.Change) []byte { return append(diffOf(t, a), diffOf(t, b)...) }
	for name, b := range map[string][]byte{
		"descending":         two(inline("b", nil), inline("a", nil)),
		"twice":              two(inline("a", nil), inline("a", nil)),
		"key length":         {0xfd, 0x80, 0x01},
		"long form of kind":  {0x81, 0x00, 0x00},
		"long form of value": {0x01, 0x80, 0x00},
		"value too long":     append([]byte{0x01, 0x81, 0x20}, make([]byte, 4097)...),
		"node":               append(append([]byte{0x02}, node[:]...), 1),
		"reserved digest":    append(append([]byte{0x02}, bytes.Repeat([]byte{0xff}, 33)...), 1),
		"zero digest":        append(append([]byte{0x02}, make([]byte, 33)...), 1),
		"size 0":             append(append([]byte{0x02}, d[:]...), 0),
		"size 2^63":          append(append([]byte{0x02}, d[:]...), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01),
		"size 2^64":          append(append([]byte{0x02}, d[:]...), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02),
	} {
		_, err := readChanges(bytes.NewReader(b), len(b))
		mustRefuse(t, name, "diff", err)
	}
	for n := range len(good) {
		_, err := readChanges(bytes.NewReader(good[:n]), len(good))
		mustRefuse(t, "cut stream", "diff", err)
	}
	broken := errors.New("broken")
	if _, err := readChanges(iotest.ErrReader(broken), 10); !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a broken reader gives %v", err)
	}
	one := inline("", nil)
	if err := wire.NewChangeWriter(brokenWriter{broken}).Write(&one); !errors.Is(err, broken) {
		t.Errorf("a broken writer gives %v", err)
	}
	if err := wire.NewChangeWriter(brokenWriter{}).Write(&one); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a short writer gives %v", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write(p []byte) (int, error) { return 0, w.err }

func FuzzDecodeDiff(f *testing.F) {
	d := object.Sum(object.Index, []byte("x"))
	f.Add(diffOf(f, inline("", nil), inline("a", []byte("value")), far("b", d, object.Lazy), removed("c")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []btree.Change
		var err error
		bounded(t, 2*len(b), func() { list, err = readChanges(bytes.NewReader(b), len(b)) })
		if err != nil {
			mustRefuse(t, "diff", "diff", err)
			return
		}
		if again := diffOf(t, list...); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
	})
}
