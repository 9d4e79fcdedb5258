package flatbuffers_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/flatbuffers/gen"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// digest returns some digest of the given kind.
func digest(kind object.Kind, i int) object.Digest { return object.Sum(kind, fmt.Append(nil, i)) }

func inline(key, value string) fb.Entry {
	return fb.Entry{Key: []byte(key), Value: []byte(value), Inline: true, Size: uint64(len(value))}
}

func reference(key string, kind object.Kind, size uint64, p object.Priority) fb.Entry {
	return fb.Entry{Key: []byte(key), Digest: object.Sum(kind, []byte(key)), Size: size, Priority: p}
}

type nodeCase struct {
	Level    int
	Entries  []fb.Entry
	Children []fb.Child
}

func nodeCases() map[string]nodeCase {
	var wide nodeCase
	wide.Level = 3
	for i := range 40 {
		wide.Entries = append(wide.Entries, inline(fmt.Sprintf("prefix/%03d", i), fmt.Sprintf("value %d", i)))
	}
	for i := 0; i <= 40; i += 1 + i%3 {
		wide.Children = append(wide.Children, fb.Child{Gap: i, Level: i % 3, Digest: digest(object.Node, i)})
	}
	return map[string]nodeCase{
		"empty":     {},
		"one":       {Entries: []fb.Entry{inline("k", "v")}},
		"empty key": {Entries: []fb.Entry{inline("", ""), inline("\x00", "\x00")}},
		"references": {Level: 2, Entries: []fb.Entry{
			reference("a", object.Chunk, 0, object.Eager),
			inline("b", "inline"),
			reference("c", object.Index, 1<<20, object.Lazy),
			reference("d", object.Chunk, math.MaxInt64, object.Lazy),
		}, Children: []fb.Child{
			{Gap: 0, Level: 0, Digest: digest(object.Node, 1)},
			{Gap: 2, Level: 1, Digest: digest(object.Node, 2)},
			{Gap: 4, Level: 0, Digest: digest(object.Node, 3)},
		}},
		"wide": wide,
	}
}

func mustNode(t testing.TB, c nodeCase) []byte {
	t.Helper()
	b, err := fb.EncodeNode(c.Level, c.Entries, c.Children)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var emptyEqual = cmpopts.EquateEmpty()

// checkNode compares what every accessor of n says with c.
func checkNode(t interface{ Fatalf(string, ...any) }, n *fb.Node, c nodeCase) {
	if n.Level() != c.Level || n.Len() != len(c.Entries) || n.NumChildren() != len(c.Children) {
		t.Fatalf("level %d, %d entries, %d children; want %d, %d, %d", n.Level(), n.Len(), n.NumChildren(), c.Level, len(c.Entries), len(c.Children))
	}
	for i, e := range c.Entries {
		if d := cmp.Diff(e, n.Entry(i), emptyEqual); d != "" {
			t.Fatalf("entry %d: %s", i, d)
		}
		if v, inline := n.Value(i); !bytes.Equal(n.Key(i), e.Key) || inline != e.Inline || !bytes.Equal(v, e.Value) {
			t.Fatalf("entry %d: key %q, inline %v, value %q", i, n.Key(i), inline, v)
		}
	}
	byGap := map[int]fb.Child{}
	for i, ch := range c.Children {
		if got := n.Child(i); got != ch {
			t.Fatalf("child %d: %v, want %v", i, got, ch)
		}
		byGap[ch.Gap] = ch
	}
	for gap := -1; gap <= len(c.Entries)+1; gap++ {
		want, ok := byGap[gap]
		if got, gotOK := n.ChildAt(gap); got != want || gotOK != ok {
			t.Fatalf("child at gap %d: %v, %v; want %v, %v", gap, got, gotOK, want, ok)
		}
	}
}

func TestNodeRoundTrip(t *testing.T) {
	for name, c := range nodeCases() {
		t.Run(name, func(t *testing.T) {
			b := mustNode(t, c)
			n, err := fb.ParseNode(b)
			if err != nil {
				t.Fatal(err)
			}
			checkNode(t, n, c)
			if !bytes.Equal(n.Bytes(), b) {
				t.Fatal("Bytes differs from what was parsed")
			}
			built, err := buildNode(c.Level, c.Entries, c.Children)
			if err != nil {
				t.Fatal(err)
			}
			checkNode(t, built, c)
			if !bytes.Equal(built.Bytes(), b) {
				t.Fatal("Rebuild makes other bytes than EncodeNode")
			}
			// Into memory that holds something else.
			value := bytes.Repeat([]byte{0xff}, len(b))
			dirty, err := buildNode(0, []fb.Entry{{Key: []byte("\xff"), Inline: true, Value: value, Size: uint64(len(value))}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			memory := &dirty.Bytes()[0]
			if err := dirty.Rebuild(c.Level, c.Entries, c.Children); err != nil || !bytes.Equal(dirty.Bytes(), b) || &dirty.Bytes()[0] != memory {
				t.Fatalf("Rebuild in used memory: %v", err)
			}
			checkNode(t, dirty, c)
		})
	}
	if got := mustNode(t, nodeCase{}); !bytes.Equal(got, fb.EmptyNode()) {
		t.Error("EmptyNode differs from the encoding of no entries")
	}
}

// checkGenerated holds I4 for nodes.
func checkGenerated(t interface{ Fatalf(string, ...any) }, b []byte, c nodeCase) {
	g := gen.GetRootAsTreeNode(b, 0)
	if int(g.Level()) != c.Level || g.KeyEndsLength() != len(c.Entries) || g.ValueEndsLength() != len(c.Entries) ||
		g.FlagsLength() != len(c.Entries) || g.ChildGapsLength() != len(c.Children) || g.ChildLevelsLength() != len(c.Children) {
		t.Fatalf("generated reader sees other counts")
	}
	var k, v uint32
	n := &nodeReader{t: t}
	for i, e := range c.Entries {
		key, value := g.KeysBytes()[k:g.KeyEnds(i)], g.ValuesBytes()[v:g.ValueEnds(i)]
		k, v = g.KeyEnds(i), g.ValueEnds(i)
		n.entry(i, e, key, value, g.Flags(i))
	}
	if int(k) != g.KeysLength() || int(v) != g.ValuesLength() {
		t.Fatalf("generated reader sees longer blocks")
	}
	for i, ch := range c.Children {
		d := object.Digest(g.ChildIdsBytes()[object.DigestSize*i:][:object.DigestSize])
		if int(g.ChildGaps(i)) != ch.Gap || int(g.ChildLevels(i)) != ch.Level || d != ch.Digest {
			t.Fatalf("generated reader sees another child %d", i)
		}
	}
}

type nodeReader struct {
	t interface{ Fatalf(string, ...any) }
}

func (r *nodeReader) entry(i int, e fb.Entry, key, value []byte, flags byte) {
	want, wantFlags := e.Value, byte(0)
	if !e.Inline {
		want = object.Identifier{Digest: e.Digest, KeyIndex: e.Size}.Append(nil)
		wantFlags = 2 | byte(e.Priority)
	}
	if !bytes.Equal(key, e.Key) || !bytes.Equal(value, want) || flags != wantFlags {
		r.t.Fatalf("generated reader sees another entry %d: %q %x %d", i, key, value, flags)
	}
}

func drawNode(t *rapid.T) nodeCase {
	var c nodeCase
	keys := rapid.SliceOfNDistinct(rapid.StringMatching(`(prefix/)?[a-c\x00]{0,12}`), 0, 30, rapid.ID[string]).Draw(t, "keys")
	sort.Strings(keys)
	if len(keys) > 0 {
		c.Level = rapid.IntRange(0, fb.MaxLevel).Draw(t, "level")
	}
	for i, k := range keys {
		if rapid.Bool().Draw(t, "inline") {
			c.Entries = append(c.Entries, inline(k, rapid.StringN(0, 40, 60).Draw(t, "value")))
			continue
		}
		e := reference(k, object.Kind(rapid.IntRange(0, 1).Draw(t, "kind")), rapid.Uint64Range(0, math.MaxInt64).Draw(t, "size"),
			object.Priority(rapid.IntRange(0, 1).Draw(t, "priority")))
		e.Digest[5] = byte(i)
		c.Entries = append(c.Entries, e)
	}
	if c.Level > 0 {
		for gap := range len(keys) + 1 {
			if rapid.Bool().Draw(t, "child") {
				c.Children = append(c.Children, fb.Child{Gap: gap, Level: rapid.IntRange(0, c.Level-1).Draw(t, "child level"), Digest: digest(object.Node, gap)})
			}
		}
	}
	return c
}

func TestNodeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawNode(t)
		b, err := fb.EncodeNode(c.Level, c.Entries, c.Children)
		if err != nil {
			t.Fatal(err)
		}
		n, err := fb.ParseNode(b)
		if err != nil {
			t.Fatal(err)
		}
		checkNode(t, n, c)
		checkGenerated(t, b, c)
		probes := []string{"", "\xff", rapid.StringMatching(`(prefix/)?[a-d\x00]{0,13}`).Draw(t, "probe"), rapid.String().Draw(t, "any")}
		for _, e := range c.Entries {
			k := string(e.Key)
			probes = append(probes, k, k+"\x00", k+"\xff")
			if k != "" {
				probes = append(probes, k[:len(k)-1], k[:len(k)-1]+string([]byte{k[len(k)-1] - 1}))
			}
		}
		for _, p := range probes {
			want, wantFound := slices.BinarySearchFunc(c.Entries, p, func(e fb.Entry, p string) int { return bytes.Compare(e.Key, []byte(p)) })
			if got, found := n.Search([]byte(p)); got != want || found != wantFound {
				t.Fatalf("search %q: %d, %v; want %d, %v", p, got, found, want, wantFound)
			}
		}
	})
}

func TestEncodeNodeRefuses(t *testing.T) {
	with := func(e fb.Entry, f func(*fb.Entry)) fb.Entry { f(&e); return e }
	ref := reference("k", object.Chunk, 5, object.Eager)
	node := digest(object.Node, 0)
	for name, c := range map[string]struct {
		nodeCase
		want error
	}{
		"negative level":          {nodeCase{Level: -1, Entries: []fb.Entry{ref}}, base.ErrInvalid},
		"level too high":          {nodeCase{Level: fb.MaxLevel + 1, Entries: []fb.Entry{ref}}, base.ErrInvalid},
		"no entries at level 1":   {nodeCase{Level: 1}, base.ErrInvalid},
		"no entries but a child":  {nodeCase{Level: 1, Children: []fb.Child{{Digest: node}}}, base.ErrInvalid},
		"equal keys":              {nodeCase{Entries: []fb.Entry{ref, ref}}, base.ErrInvalid},
		"falling keys":            {nodeCase{Entries: []fb.Entry{inline("b", ""), inline("a", "")}}, base.ErrInvalid},
		"long key":                {nodeCase{Entries: []fb.Entry{inline(string(make([]byte, limits.MaxKeyBytes+1)), "")}}, base.ErrTooLarge},
		"lazy inline":             {nodeCase{Entries: []fb.Entry{with(inline("a", "b"), func(e *fb.Entry) { e.Priority = object.Lazy })}}, base.ErrInvalid},
		"inline of other size":    {nodeCase{Entries: []fb.Entry{with(inline("a", "b"), func(e *fb.Entry) { e.Size = 2 })}}, base.ErrInvalid},
		"inline with digest":      {nodeCase{Entries: []fb.Entry{with(inline("a", "b"), func(e *fb.Entry) { e.Digest = ref.Digest })}}, base.ErrInvalid},
		"reference with value":    {nodeCase{Entries: []fb.Entry{with(ref, func(e *fb.Entry) { e.Value = []byte("v") })}}, base.ErrInvalid},
		"reference to a node":     {nodeCase{Entries: []fb.Entry{with(ref, func(e *fb.Entry) { e.Digest = node })}}, base.ErrInvalid},
		"reserved bit":            {nodeCase{Entries: []fb.Entry{with(ref, func(e *fb.Entry) { e.Digest[0] = 4 })}}, base.ErrInvalid},
		"unknown priority":        {nodeCase{Entries: []fb.Entry{with(ref, func(e *fb.Entry) { e.Priority = 2 })}}, base.ErrInvalid},
		"huge size":               {nodeCase{Entries: []fb.Entry{with(ref, func(e *fb.Entry) { e.Size = 1 << 63 })}}, base.ErrInvalid},
		"child at own level":      {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Level: 1, Digest: node}}}, base.ErrInvalid},
		"child at negative level": {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Level: -1, Digest: node}}}, base.ErrInvalid},
		"child below a leaf":      {nodeCase{Entries: []fb.Entry{ref}, Children: []fb.Child{{Digest: node}}}, base.ErrInvalid},
		"gap beyond":              {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Gap: 2, Digest: node}}}, base.ErrInvalid},
		"negative gap":            {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Gap: -1, Digest: node}}}, base.ErrInvalid},
		"gap twice":               {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Digest: node}, {Digest: node}}}, base.ErrInvalid},
		"child that is a value":   {nodeCase{Level: 1, Entries: []fb.Entry{ref}, Children: []fb.Child{{Digest: ref.Digest}}}, base.ErrInvalid},
		"node too large":          {nodeCase{Entries: []fb.Entry{inline("a", string(make([]byte, limits.MaxNodeBytes)))}}, base.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := fb.EncodeNode(c.Level, c.Entries, c.Children); !errors.Is(err, c.want) {
				t.Errorf("EncodeNode: %v, want %v", err, c.want)
			}
			if _, err := buildNode(c.Level, c.Entries, c.Children); !errors.Is(err, c.want) {
				t.Errorf("Rebuild: %v, want %v", err, c.want)
			}
		})
	}
}

// Heads are in the order of the keys where they differ, and are what Key begins with.
func TestNodeHead(t *testing.T) {
	for name, c := range nodeCases() {
		n, err := fb.ParseNode(mustNode(t, c))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n.Len() {
			var want [8]byte
			copy(want[:], n.Key(i))
			if got := n.Head(i); got != binary.BigEndian.Uint64(want[:]) {
				t.Errorf("%s: head %x of key %x", name, got, n.Key(i))
			}
		}
	}
}

// buildNode returns a new node.
func buildNode(level int, entries []fb.Entry, children []fb.Child) (*fb.Node, error) {
	n := new(fb.Node)
	if err := n.Rebuild(level, entries, children); err != nil {
		return nil, err
	}
	return n, nil
}
