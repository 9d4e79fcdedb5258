package flatbuffers_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	runtime "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/flatbuffers/gen"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

func commitCases() map[string]fb.Commit {
	root := digest(object.Node, 7)
	return map[string]fb.Commit{
		"first":  {Root: object.Sum(object.Node, fb.EmptyNode())},
		"plain":  {Timestamp: 1_700_000_000_000_000_001, Generation: 1, Root: root, Parents: [][32]byte{{1, 2, 3}}},
		"merge":  {Timestamp: limits.MaxTimestamp, Generation: 1<<64 - 1, Root: root, Parents: [][32]byte{{1}, {1, 1}}},
		"named":  {Timestamp: 5, Generation: 2, Root: root, Parents: [][32]byte{{9}}, Device: "löwe", Message: "three words\nand a line\x00"},
		"padded": {Timestamp: 5, Generation: 2, Root: digest(object.Node, 1), Parents: [][32]byte{{9}}, Device: "abc", Message: "abcd"},
	}
}

func mustCommit(t testing.TB, c fb.Commit) []byte {
	t.Helper()
	b, err := fb.EncodeCommit(&c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkCommit(t interface{ Fatalf(string, ...any) }, c fb.Commit, b []byte) {
	got, err := fb.DecodeCommit(b)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if d := cmp.Diff(&c, got, emptyEqual); d != "" {
		t.Fatalf("decoded otherwise: %s", d)
	}
	checkGeneratedCommit(t, c, b)
	checkGeneratedCommit(t, c, builtCommit(c))
}

// checkGeneratedCommit holds I4 for commits.
func checkGeneratedCommit(t interface{ Fatalf(string, ...any) }, c fb.Commit, b []byte) {
	g := gen.GetRootAsCommit(b, 0)
	parents := slices.Concat(bytesOf(c.Parents)...)
	if !bytes.Equal(g.RootNodeIdBytes(), c.Root[:]) || g.CreationTimestamp() != c.Timestamp || g.Generation() != c.Generation ||
		!bytes.Equal(g.ParentIdsBytes(), parents) || string(g.Device()) != c.Device || string(g.Message()) != c.Message {
		t.Fatalf("generated reader sees another commit")
	}
}

func bytesOf(ids [][32]byte) [][]byte {
	var out [][]byte
	for _, id := range ids {
		out = append(out, id[:])
	}
	return out
}

// builtCommit encodes c with the generated builder.
func builtCommit(c fb.Commit) []byte {
	b := runtime.NewBuilder(0)
	message, device := b.CreateString(c.Message), b.CreateString(c.Device)
	parents, root := b.CreateByteVector(slices.Concat(bytesOf(c.Parents)...)), b.CreateByteVector(c.Root[:])
	gen.CommitStart(b)
	gen.CommitAddCreationTimestamp(b, c.Timestamp)
	gen.CommitAddGeneration(b, c.Generation)
	gen.CommitAddRootNodeId(b, root)
	gen.CommitAddParentIds(b, parents)
	gen.CommitAddDevice(b, device)
	gen.CommitAddMessage(b, message)
	b.FinishWithFileIdentifier(gen.CommitEnd(b), []byte("LCO1"))
	return b.FinishedBytes()
}

func TestCommitRoundTrip(t *testing.T) {
	for name, c := range commitCases() {
		t.Run(name, func(t *testing.T) {
			b := mustCommit(t, c)
			checkCommit(t, c, b)
			// The builder's order is another one, so it must not be accepted as the same commit.
			if other := builtCommit(c); !bytes.Equal(other, b) {
				if _, err := fb.DecodeCommit(other); !errors.Is(err, base.ErrCorrupt) {
					t.Errorf("another layout of the same values: %v", err)
				}
			}
		})
	}
}

func TestCommitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := fb.Commit{
			Timestamp: rapid.Int64Range(0, limits.MaxTimestamp).Draw(t, "timestamp"),
			Root:      digest(object.Node, rapid.Int().Draw(t, "root")),
			Device:    rapid.StringN(0, 20, limits.MaxDeviceBytes).Draw(t, "device"),
			Message:   rapid.StringN(0, 60, 300).Draw(t, "message"),
		}
		for _, p := range rapid.SliceOfNDistinct(rapid.Byte(), 0, 2, rapid.ID[byte]).Draw(t, "parents") {
			c.Parents = append(c.Parents, [32]byte{31: p})
		}
		slices.SortFunc(c.Parents, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
		if len(c.Parents) > 0 {
			c.Generation = rapid.Uint64Min(1).Draw(t, "generation")
		}
		b, err := fb.EncodeCommit(&c)
		if err != nil {
			t.Fatal(err)
		}
		checkCommit(t, c, b)
	})
}

func TestEncodeCommitRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fb.Commit)
		want   error
	}{
		"negative timestamp":    {func(c *fb.Commit) { c.Timestamp = -1 }, base.ErrInvalid},
		"timestamp above 2^62":  {func(c *fb.Commit) { c.Timestamp = limits.MaxTimestamp + 1 }, base.ErrInvalid},
		"generation 0":          {func(c *fb.Commit) { c.Generation = 0 }, base.ErrInvalid},
		"no parents":            {func(c *fb.Commit) { c.Parents = nil }, base.ErrInvalid},
		"three parents":         {func(c *fb.Commit) { c.Parents = [][32]byte{{1}, {2}, {3}} }, base.ErrInvalid},
		"equal parents":         {func(c *fb.Commit) { c.Parents = [][32]byte{{1}, {1}} }, base.ErrInvalid},
		"falling parents":       {func(c *fb.Commit) { c.Parents = [][32]byte{{2}, {1}} }, base.ErrInvalid},
		"root that is a chunk":  {func(c *fb.Commit) { c.Root = digest(object.Chunk, 1) }, base.ErrInvalid},
		"root with a high bit":  {func(c *fb.Commit) { c.Root[0] = 6 }, base.ErrInvalid},
		"device not UTF-8":      {func(c *fb.Commit) { c.Device = "\xff" }, base.ErrInvalid},
		"message not UTF-8":     {func(c *fb.Commit) { c.Message = "a\xc0" }, base.ErrInvalid},
		"device beyond limit":   {func(c *fb.Commit) { c.Device = strings.Repeat("a", limits.MaxDeviceBytes+1) }, base.ErrTooLarge},
		"message beyond limit":  {func(c *fb.Commit) { c.Message = strings.Repeat("a", limits.MaxMessageBytes+1) }, base.ErrTooLarge},
		"(not wrong: at limit)": {func(c *fb.Commit) { c.Message = strings.Repeat("a", limits.MaxMessageBytes) }, nil},
	} {
		c := commitCases()["plain"]
		tc.change(&c)
		b, err := fb.EncodeCommit(&c)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if tc.want == nil {
			checkCommit(t, c, b)
		}
	}
}

func TestDecodeCommitTooLong(t *testing.T) {
	c := commitCases()["merge"]
	c.Device, c.Message = strings.Repeat("d", limits.MaxDeviceBytes), strings.Repeat("m", limits.MaxMessageBytes)
	b := mustCommit(t, c)
	checkCommit(t, c, b)
	if _, err := fb.DecodeCommit(append(b, make([]byte, 4)...)); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("longest commit and 4 zeros: %v", err)
	}
}
