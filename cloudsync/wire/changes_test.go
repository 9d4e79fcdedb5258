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

	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// changes generates diffs.
func changes() *rapid.Generator[[]wire.Change] {
	return rapid.Custom(func(t *rapid.T) []wire.Change {
		keys := rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringN(0, 8, 8), rapid.StringN(0, 600, 3000)), 0, 30, rapid.ID[string]).Draw(t, "keys")
		slices.Sort(keys)
		list := make([]wire.Change, len(keys))
		for i, key := range keys {
			c := wire.Change{Key: []byte(key)}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				c.Removed = true
			case 1:
				c.Inline = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")
				c.Size = uint64(len(c.Inline))
			default:
				kind := rapid.SampledFrom([]object.Kind{object.Chunk, object.IndexBit}).Draw(t, "piece")
				c.Object = object.Sum(kind, []byte(key))
				c.Size = rapid.Uint64Range(1, math.MaxInt64).Draw(t, "size")
				c.Priority = object.Priority(rapid.IntRange(0, 1).Draw(t, "priority"))
			}
			list[i] = c
		}
		return list
	})
}

func readChanges(r *wire.ChangeReader) (list []wire.Change, err error) {
	for {
		c, err := r.Next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		copied := *c
		copied.Key, copied.Inline = bytes.Clone(c.Key), bytes.Clone(c.Inline)
		list = append(list, copied)
	}
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
		fromSlice, err1 := readChanges(wire.ChangesOf(b.Bytes()))
		fromStream, err2 := readChanges(wire.NewChangeReader(iotest.HalfReader(stream), int64(b.Len())))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, got := range [][]wire.Change{fromSlice, fromStream} {
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
	r := wire.NewChangeReader(iotest.OneByteReader(bytes.NewReader(b.Bytes())), int64(b.Len()))
	if got := allocated(func() {
		for i := range 500 {
			if c, err := r.Next(); err != nil || !bytes.Equal(c.Inline, noise(uint64(i), wire.MaxInlineBytes)) {
				t.Fatalf("change %d: %v", i, err)
			}
		}
	}); got > 6<<20 { // noise allocates 2 MiB of it and its generators
		t.Errorf("reading %d bytes allocates %d", b.Len(), got)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestChangesThatNobodyWrites(t *testing.T) {
	d := object.Sum(object.Chunk, []byte("x"))
	node := object.Sum(object.NodeBit, []byte("x"))
	for name, c := range map[string]wire.Change{
		"key too long":       {Key: make([]byte, limits.MaxKeyBytes+1)},
		"inline too long":    {Inline: make([]byte, wire.MaxInlineBytes+1)},
		"removed with value": {Removed: true, Inline: []byte("x")},
		"removed object":     {Removed: true, Object: d, Size: 1},
		"removed size":       {Removed: true, Size: 1},
		"removed lazy":       {Removed: true, Priority: object.Lazy},
		"inline lazy":        {Inline: []byte("x"), Priority: object.Lazy},
		"inline size":        {Inline: []byte("x"), Size: 2},
		"both":               {Inline: []byte("x"), Object: d, Size: 1},
		"node":               {Object: node, Size: 1},
		"no size":            {Object: d},
		"size":               {Object: d, Size: 1 << 63},
		"priority":           {Object: d, Size: 1, Priority: 2},
	} {
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
	node := object.Sum(object.NodeBit, []byte("x"))
	good := diffOf(t, inline("a", []byte("value")), wire.Change{Key: []byte("b"), Object: d, Size: 200}, wire.Change{Key: []byte("c"), Removed: true})
	two := func(a, b wire.Change) []byte { return append(diffOf(t, a), diffOf(t, b)...) }
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
		for source, r := range map[string]*wire.ChangeReader{"slice": wire.ChangesOf(b), "stream": wire.NewChangeReader(bytes.NewReader(b), int64(len(b)))} {
			_, err := readChanges(r)
			mustRefuse(t, name+" from "+source, "diff", err)
			if _, again := r.Next(); !errors.Is(again, base.ErrCorrupt) {
				t.Errorf("%s: the error does not stick: %v", name, again)
			}
		}
	}
	for n := range len(good) {
		_, err := readChanges(wire.NewChangeReader(bytes.NewReader(good[:n]), int64(len(good))))
		mustRefuse(t, "cut stream", "diff", err)
	}
	_, err := readChanges(wire.NewChangeReader(bytes.NewReader(good), -1))
	mustRefuse(t, "negative length", "diff", err)
	broken := errors.New("broken")
	if _, err := readChanges(wire.NewChangeReader(iotest.ErrReader(broken), 10)); !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a broken reader gives %v", err)
	}
	if err := wire.NewChangeWriter(brokenWriter{broken}).Write(&wire.Change{}); !errors.Is(err, broken) {
		t.Errorf("a broken writer gives %v", err)
	}
	if err := wire.NewChangeWriter(brokenWriter{}).Write(&wire.Change{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a short writer gives %v", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write(p []byte) (int, error) { return 0, w.err }

func FuzzDecodeDiff(f *testing.F) {
	d := object.Sum(object.IndexBit, []byte("x"))
	f.Add(diffOf(f, inline("", nil), inline("a", []byte("value")), wire.Change{Key: []byte("b"), Object: d, Size: 200, Priority: object.Lazy}, wire.Change{Key: []byte("c"), Removed: true}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []wire.Change
		var err error
		bounded(t, 2*len(b), func() { list, err = readChanges(wire.NewChangeReader(bytes.NewReader(b), int64(len(b)))) })
		if _, err2 := readChanges(wire.ChangesOf(b)); (err == nil) != (err2 == nil) {
			t.Errorf("stream %v, slice %v", err, err2)
		}
		if err != nil {
			mustRefuse(t, "diff", "diff", err)
			return
		}
		if again := diffOf(t, list...); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
	})
}
