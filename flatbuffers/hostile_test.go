package flatbuffers_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares b with the golden file of that name.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".bin")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s: the format changed: encoded\n%x\nwant\n%x", path, b, want)
	}
}

// reparse parses b with one of the parsers and encodes what it finds.
type reparse func(b []byte) (encoded []byte, err error)

func reparseCommit(b []byte) ([]byte, error) {
	c, err := fb.DecodeCommit(b)
	if err != nil {
		return nil, err
	}
	return fb.EncodeCommit(c)
}

func reparseIndex(b []byte) ([]byte, error) {
	x, err := fb.ParseIndex(b)
	if err != nil {
		return nil, err
	}
	children := make([]fb.IndexChild, x.Len())
	for i := range children {
		children[i] = x.Child(i)
	}
	return fb.EncodeIndex(children)
}

func reparseNode(b []byte) ([]byte, error) {
	n, err := fb.ParseNode(b)
	if err != nil {
		return nil, err
	}
	c := nodeCase{Level: n.Level()}
	for i := range n.Len() {
		c.Entries = append(c.Entries, n.Entry(i))
		if j, found := n.Search(n.Key(i)); j != i || !found {
			return nil, fmt.Errorf("search of key %d finds %d, %v", i, j, found)
		}
	}
	for i := range n.NumChildren() {
		c.Children = append(c.Children, n.Child(i))
		if ch, ok := n.ChildAt(n.Child(i).Gap); !ok || ch != n.Child(i) {
			return nil, fmt.Errorf("child %d is not at its gap", i)
		}
	}
	return fb.EncodeNode(c.Level, c.Entries, c.Children)
}

// checkReparse holds I1: b is refused with the right error, or is what the encoder writes.
func checkReparse(t *testing.T, what string, b []byte, f reparse) (accepted bool) {
	t.Helper()
	got, err := f(b)
	if err != nil {
		if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
			t.Fatalf("%s: %v", what, err)
		}
		return false
	}
	if !bytes.Equal(got, b) {
		t.Fatalf("%s: accepted, but encoded otherwise:\n%x\n%x", what, b, got)
	}
	return true
}

// samples returns encoded buffers with their parser.
func samples(t testing.TB) map[string]struct {
	b []byte
	f reparse
} {
	out := map[string]struct {
		b []byte
		f reparse
	}{}
	for name, c := range nodeCases() {
		out["node "+name] = struct {
			b []byte
			f reparse
		}{mustNode(t, c), reparseNode}
	}
	for name, c := range commitCases() {
		out["commit "+name] = struct {
			b []byte
			f reparse
		}{mustCommit(t, c), reparseCommit}
	}
	for name, c := range indexCases() {
		out["index "+name] = struct {
			b []byte
			f reparse
		}{mustIndex(t, c), reparseIndex}
	}
	return out
}

func TestGolden(t *testing.T) {
	for name, s := range samples(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, name, s.b)
			if !checkReparse(t, name, s.b, s.f) {
				t.Error("refused by its own parser")
			}
		})
	}
}

// TestDamage holds I1 and I3 for every truncation, extension and change of a single byte.
func TestDamage(t *testing.T) {
	for name, s := range samples(t) {
		t.Run(name, func(t *testing.T) {
			for n := range s.b {
				if checkReparse(t, fmt.Sprintf("first %d bytes", n), s.b[:n:n], s.f) {
					t.Fatalf("the first %d of %d bytes are accepted", n, len(s.b))
				}
			}
			for n := 1; n < 10; n++ {
				if checkReparse(t, "extended", append(bytes.Clone(s.b), make([]byte, n)...), s.f) {
					t.Fatalf("accepted with %d zeros behind it", n)
				}
			}
			b := bytes.Clone(s.b)
			for i, old := range b {
				for bit := range 8 {
					b[i] = old ^ 1<<bit
					checkReparse(t, fmt.Sprintf("bit %d of byte %d flipped", bit, i), b, s.f)
				}
				for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff, old + 1, old - 1} {
					b[i] = v
					checkReparse(t, fmt.Sprintf("byte %d set to %#x", i, v), b, s.f)
				}
				b[i] = old
			}
			// Counts and offsets that claim much.
			for i := 0; i+4 <= len(b); i += 4 {
				for _, v := range []string{"\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\x00\x00\x00\x80", "\xff\xff\x00\x00"} {
					b = bytes.Clone(s.b)
					copy(b[i:], v)
					checkReparse(t, fmt.Sprintf("%x at %d", v, i), b, s.f)
				}
			}
		})
	}
}

// TestHeaderDamage: not a single bit of the fixed parts is free, but for the values that stand
// there.
func TestHeaderDamage(t *testing.T) {
	b := mustNode(t, nodeCases()["references"])
	for i := range 72 {
		if i == 68 { // the level
			continue
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := fb.ParseNode(c); err == nil {
				t.Errorf("accepted with bit %d of byte %d flipped", bit, i)
			}
		}
	}
}

// TestHeldMeaning changes single things that are well-formed FlatBuffers and must be refused all
// the same.
func TestHeldMeaning(t *testing.T) {
	node := func(f func(b []byte)) []byte {
		b := mustNode(t, nodeCase{Level: 1,
			Entries:  []fb.Entry{inline("a", "1"), reference("b", object.Chunk, 200, object.Eager)},
			Children: []fb.Child{{Gap: 1, Digest: digest(object.Node, 1)}},
		})
		f(b)
		return b
	}
	find := func(b []byte, s string) int {
		i := bytes.Index(b, []byte(s))
		if i < 0 {
			t.Fatalf("%q not found", s)
		}
		return i
	}
	for name, b := range map[string][]byte{
		"keys fall":           node(func(b []byte) { b[find(b, "ab\x00\x00")] = 'c' }),
		"keys equal":          node(func(b []byte) { b[find(b, "ab\x00\x00")] = 'b' }),
		"padding":             node(func(b []byte) { b[find(b, "ab\x00\x00")+3] = 1 }),
		"level above 63":      node(func(b []byte) { b[68] = 64 }),
		"level of the child":  node(func(b []byte) { b[68] = 0 }),
		"long size":           node(func(b []byte) { b[find(b, "\xc8\x01")+1] = 0x80 }),
		"size with no sense":  node(func(b []byte) { b[find(b, "\xc8\x01")+1] = 0 }),
		"lazy inline":         node(func(b []byte) { b[find(b, "\x02\x00\x00\x00\x00\x02\x00\x00")+4] = 1 }),
		"unknown flag":        node(func(b []byte) { b[find(b, "\x02\x00\x00\x00\x00\x02\x00\x00")+5] = 6 }),
		"reference as inline": node(func(b []byte) { b[find(b, "\x02\x00\x00\x00\x00\x02\x00\x00")+4] = 2 }),
	} {
		if _, err := fb.ParseNode(b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := fb.ParseNode(node(func([]byte) {})); err != nil {
		t.Error(err)
	}
}

// TestCrafted builds what no single damaged byte gives.
func TestCrafted(t *testing.T) {
	// Two keys of 3000 bytes become one of 5000 and one of 1000.
	a, b := strings.Repeat("a", 3000), strings.Repeat("b", 3000)
	long := mustNode(t, nodeCase{Entries: []fb.Entry{inline(a, ""), inline(b, "")}})
	binary.LittleEndian.PutUint32(long[76:], 5000)
	if _, err := fb.ParseNode(long); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("key of 5000 bytes: %v", err)
	}
	// Inline values become references.
	d := digest(object.Chunk, 1)
	for name, value := range map[string]string{
		"no size":         string(d[:]),
		"size of 2^63":    string(binary.AppendUvarint(d[:], 1<<63)),
		"size twice":      string(d[:]) + "\x01\x01",
		"size beyond":     string(d[:]) + strings.Repeat("\xff", 11) + "\x01",
		"digest of node":  "\x02" + string(d[1:]) + "\x01",
		"nothing":         "",
		"(good: a value)": string(d[:]) + "\x01",
	} {
		n := mustNode(t, nodeCase{Entries: []fb.Entry{inline("k", value)}})
		n[72+8+8+4+4] = 2 // behind the ends, no gaps, and the count of flags
		_, err := fb.ParseNode(n)
		if good := name[0] == '('; good && err != nil || !good && !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("reference with %s: %v", name, err)
		}
	}
	// An index piece of one child, and of none.
	two := mustIndex(t, indexChildren(2, object.Chunk))
	one := append(bytes.Clone(two[:28]), "\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x21\x00\x00\x00"...)
	one = append(append(one, d[:]...), 0, 0, 0)
	one[24] = 40 - 24
	none := append(bytes.Clone(two[:28]), make([]byte, 8)...)
	none[24] = 32 - 24
	for _, b := range [][]byte{one, none} {
		if _, err := fb.ParseIndex(b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("index piece of fewer than two children: %v", err)
		}
	}
}

func TestUnknownVersion(t *testing.T) {
	for name, s := range samples(t) {
		b := bytes.Clone(s.b)
		b[7] = '2'
		_, err := s.f(b)
		if fe, ok := errors.AsType[*base.FormatError](err); !ok || fe.Found != 2 || fe.Supported != 1 {
			t.Errorf("%s with version 2: %v", name, err)
		}
		for _, v := range []byte{'0', 'A', 0} {
			b[7] = v
			if _, err := s.f(b); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s with version %q: %v", name, v, err)
			}
		}
	}
}

// TestAllocations holds I2: a buffer that is right costs no more than its view, a wrong one no more
// than its error.
func TestAllocations(t *testing.T) {
	b := mustNode(t, nodeCases()["wide"])
	n, err := fb.ParseNode(b)
	if err != nil {
		t.Fatal(err)
	}
	if a := testing.AllocsPerRun(100, func() { _, _ = fb.ParseNode(b) }); a > 2 {
		t.Errorf("ParseNode allocates %v times", a)
	}
	key := n.Key(17)
	if a := testing.AllocsPerRun(100, func() {
		i, _ := n.Search(key)
		e := n.Entry(i)
		c, _ := n.ChildAt(i)
		if e.Size == 1<<40 || c.Level > 99 {
			t.Error("unreachable")
		}
	}); a != 0 {
		t.Errorf("access allocates %v times", a)
	}
	x := mustIndex(t, indexCases()["many"])
	if a := testing.AllocsPerRun(100, func() { _, _ = fb.ParseIndex(x) }); a != 0 {
		t.Errorf("ParseIndex allocates %v times", a)
	}
}

func fuzz(f *testing.F, prefix string, fn reparse) {
	for name, s := range samples(f) {
		if strings.HasPrefix(name, prefix) {
			f.Add(s.b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkReparse(t, "fuzzed", b, fn) })
}

func FuzzDecodeCommit(f *testing.F) { fuzz(f, "commit ", reparseCommit) }

func FuzzDecodeIndex(f *testing.F) { fuzz(f, "index ", reparseIndex) }

func FuzzDecodeNode(f *testing.F) { fuzz(f, "node ", reparseNode) }
