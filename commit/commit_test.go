package commit_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func root(i int) object.Digest { return object.Sum(object.Node, fmt.Append(nil, i)) }

func at(ns int64) time.Time { return time.Unix(0, ns) }

func mustNew(t interface{ Fatal(...any) }, now int64, r int, parents ...*commit.Commit) *commit.Commit {
	c, err := commit.New(commit.Params{Now: at(now), Root: root(r), Parents: parents})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustMerge(t interface{ Fatal(...any) }, r int, a, b *commit.Commit) *commit.Commit {
	c, err := commit.NewMerge(root(r), a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func checkRoundTrip(t interface{ Fatalf(string, ...any) }, c *commit.Commit) {
	b := c.Encode()
	if c.ID != sha256.Sum256(b) {
		t.Fatalf("I1: id %s of %x", c.ID, b)
	}
	got, err := commit.Parse(b)
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if d := cmp.Diff(c, got, cmp.AllowUnexported(commit.Commit{})); d != "" {
		t.Fatalf("parsed otherwise: %s", d)
	}
}

// TestGolden holds the ids of commits, and with them their encoding and that of the empty root.
func TestGolden(t *testing.T) {
	first := commit.First()
	a, err := commit.New(commit.Params{Now: at(1_700_000_000_000_000_000), Root: root(1), Parents: []*commit.Commit{first}, Device: "laptop", Message: "add a thing"})
	if err != nil {
		t.Fatal(err)
	}
	b := mustNew(t, 1_600_000_000_000_000_000, 2, first)
	m := mustMerge(t, 3, a, b)
	var out strings.Builder
	for _, c := range []*commit.Commit{first, a, b, m} {
		checkRoundTrip(t, c)
		fmt.Fprintf(&out, "%s generation %d timestamp %d parents %v\n", c.ID, c.Generation, c.Timestamp, c.Parents)
	}
	path := filepath.Join("testdata", "ids.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("ids changed: %s", d)
	}
}

// TestFirst holds I2.
func TestFirst(t *testing.T) {
	c := commit.First()
	checkRoundTrip(t, c)
	if !c.IsFirst() || c.Timestamp != 0 || len(c.Parents) != 0 || c.Device != "" || c.Message != "" || c.Root != object.Sum(object.Node, fb.EmptyNode()) {
		t.Errorf("first commit: %+v", c)
	}
	if err := commit.CheckParents(c, nil); err != nil {
		t.Error(err)
	}
	for name, f := range map[string]fb.Commit{
		"timestamp": {Timestamp: 1, Root: c.Root},
		"root":      {Root: root(1)},
		"message":   {Root: c.Root, Message: "m"},
	} {
		b, err := fb.EncodeCommit(&f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := commit.Parse(b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("another commit of generation 0, with its own %s: %v", name, err)
		}
	}
}

// TestParseCopies: what a caller does with the bytes afterwards does not change a commit.
func TestParseCopies(t *testing.T) {
	c := mustNew(t, 5, 1, commit.First())
	b := bytes.Clone(c.Encode())
	got, err := commit.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	checkRoundTrip(t, got)
	if got.ID != c.ID {
		t.Error("parsed as another commit")
	}
}

// TestNewProperties holds I3 and I4.
func TestNewProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := func(label string) int64 { return rapid.Int64Range(-5, 1<<61).Draw(t, label) }
		first := commit.First()
		a := mustNew(t, now("a"), 1, first)
		b := mustNew(t, now("b"), 2, a)
		c := mustNew(t, now("c"), 3, first)
		m := mustMerge(t, 4, b, c)
		n := mustNew(t, now("n"), 5, c, m)
		for _, x := range []*commit.Commit{a, b, c, m, n} {
			checkRoundTrip(t, x)
		}
		if m.ID != mustMerge(t, 4, c, b).ID {
			t.Fatalf("I4: a merge depends on the order of its parents")
		}
		if m.Timestamp != max(b.Timestamp, c.Timestamp) || m.Generation != 3 || n.Generation != 4 {
			t.Fatalf("I3: %+v", []*commit.Commit{a, b, c, m, n})
		}
		check := func(x *commit.Commit, parents ...*commit.Commit) {
			if len(parents) == 2 && parents[0].ID.Compare(parents[1].ID) > 0 {
				parents[0], parents[1] = parents[1], parents[0]
			}
			if err := commit.CheckParents(x, parents); err != nil {
				t.Fatal(err)
			}
		}
		check(a, first)
		check(b, a)
		check(m, b, c)
		check(n, c, m)
	})
}

func TestTimestamps(t *testing.T) {
	first := commit.First()
	for name, c := range map[string]struct {
		now  time.Time
		base int64
		want int64 // 0: refused
	}{
		"clock ahead":      {at(100), 50, 100},
		"clock equal":      {at(50), 50, 51},
		"clock behind":     {at(10), 50, 51},
		"before 1970":      {time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), 50, 51},
		"zero time":        {time.Time{}, 50, 51},
		"last clock":       {at(limits.MaxTimestamp - limits.MaxAhead), 50, limits.MaxTimestamp - limits.MaxAhead},
		"above the last":   {at(limits.MaxTimestamp - limits.MaxAhead + 1), 50, 0},
		"beyond int64":     {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 50, 0},
		"a day behind":     {at(10), 10 + limits.MaxAhead, 10},
		"less than a day":  {at(10), 9 + limits.MaxAhead, 10 + limits.MaxAhead},
		"parent at limit":  {at(10), limits.MaxTimestamp, 10},
		"all at the limit": {at(limits.MaxTimestamp - limits.MaxAhead), limits.MaxTimestamp - 1, limits.MaxTimestamp},
	} {
		parent := parse(t, fb.Commit{Timestamp: c.base, Generation: 1, Root: root(1), Parents: [][32]byte{first.ID}})
		got, err := commit.New(commit.Params{Now: c.now, Root: root(2), Parents: []*commit.Commit{parent}})
		switch {
		case c.want == 0 && !errors.Is(err, base.ErrInvalid):
			t.Errorf("%s: %v", name, err)
		case c.want != 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == 0 && !strings.Contains(err.Error(), "clock"):
			t.Errorf("%s: %v does not say that it is the clock", name, err)
		case c.want != 0 && got.Timestamp != c.want:
			t.Errorf("%s: timestamp %d, want %d", name, got.Timestamp, c.want)
		}
	}
}

// TestTimestampsNeverRunOut holds I5, and that a parent of the future leaves no trace: in a chain
// of commits with any timestamps and clocks each one has the time of its clock, or of its parent,
// and that is at most a day ahead of the clock.
func TestTimestampsNeverRunOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := commit.First()
		for i := range rapid.IntRange(1, 20).Draw(t, "commits") {
			if rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
				at := rapid.OneOf(rapid.Int64Range(0, limits.MaxTimestamp), rapid.Just(int64(limits.MaxTimestamp))).Draw(t, "its timestamp")
				foreign := parse(t, fb.Commit{Timestamp: at, Generation: parent.Generation + 1, Root: root(i), Parents: [][32]byte{parent.ID}})
				if err := commit.CheckParents(foreign, []*commit.Commit{parent}); err != nil {
					t.Fatal(err)
				}
				parent = foreign
			}
			now := rapid.Int64Range(0, limits.MaxTimestamp-limits.MaxAhead).Draw(t, "clock")
			c := mustNew(t, now, i, parent)
			follows := parent.Timestamp >= now && parent.Timestamp < now+limits.MaxAhead
			if c.Timestamp < now || c.Timestamp > now+limits.MaxAhead || !follows && c.Timestamp != now || follows && c.Timestamp != parent.Timestamp+1 {
				t.Fatalf("I5: timestamp %d at %d with a parent's %d", c.Timestamp, now, parent.Timestamp)
			}
			parent = c
		}
	})
}

func TestNewRefuses(t *testing.T) {
	first := commit.First()
	a := mustNew(t, 1, 1, first)
	top := parse(t, fb.Commit{Timestamp: 1, Generation: math.MaxUint64, Root: root(1), Parents: [][32]byte{{1}}})
	for name, c := range map[string]struct {
		p    commit.Params
		want error
	}{
		"no parents":        {commit.Params{Root: root(1)}, base.ErrInvalid},
		"nil parent":        {commit.Params{Root: root(1), Parents: []*commit.Commit{nil}}, base.ErrInvalid},
		"three parents":     {commit.Params{Root: root(1), Parents: []*commit.Commit{first, a, top}}, base.ErrInvalid},
		"one parent twice":  {commit.Params{Root: root(1), Parents: []*commit.Commit{a, a}}, base.ErrInvalid},
		"no root":           {commit.Params{Parents: []*commit.Commit{a}}, base.ErrInvalid},
		"generation beyond": {commit.Params{Root: root(1), Parents: []*commit.Commit{top}}, base.ErrInvalid},
		"long message":      {commit.Params{Root: root(1), Parents: []*commit.Commit{a}, Message: strings.Repeat("m", limits.MaxMessageBytes+1)}, base.ErrTooLarge},
		"bad device":        {commit.Params{Root: root(1), Parents: []*commit.Commit{a}, Device: "\xff"}, base.ErrInvalid},
	} {
		if _, err := commit.New(c.p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := commit.NewMerge(root(1), a, a); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("merge with itself: %v", err)
	}
}

// parse returns the commit with some content, which need not follow from any parents.
func parse(t interface{ Fatal(...any) }, f fb.Commit) *commit.Commit {
	b, err := fb.EncodeCommit(&f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := commit.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheckParentsRefuses(t *testing.T) {
	first := commit.First()
	a, b := mustNew(t, 100, 1, first), mustNew(t, 200, 2, first)
	if a.ID.Compare(b.ID) > 0 {
		a, b = b, a
	}
	latest := max(a.Timestamp, b.Timestamp)
	one, two := [][32]byte{a.ID}, [][32]byte{a.ID, b.ID}
	good := mustMerge(t, 3, a, b)
	for name, c := range map[string]struct {
		c       *commit.Commit
		parents []*commit.Commit
		want    error
	}{
		"generation too low":  {parse(t, fb.Commit{Timestamp: 1000, Generation: 1, Root: root(1), Parents: one}), []*commit.Commit{a}, base.ErrCorrupt},
		"generation too high": {parse(t, fb.Commit{Timestamp: 1000, Generation: 3, Root: root(1), Parents: one}), []*commit.Commit{a}, base.ErrCorrupt},
		"timestamp of parent": {parse(t, fb.Commit{Timestamp: a.Timestamp, Generation: 2, Root: root(1), Parents: one}), []*commit.Commit{a}, nil},
		"timestamp below it":  {parse(t, fb.Commit{Timestamp: 0, Generation: 2, Root: root(1), Parents: one}), []*commit.Commit{a}, nil},
		"merge as its later":  {parse(t, fb.Commit{Timestamp: latest, Generation: 2, Root: root(1), Parents: two}), []*commit.Commit{a, b}, nil},
		"parents swapped":     {good, []*commit.Commit{b, a}, base.ErrInvalid},
		"a parent missing":    {good, []*commit.Commit{a}, base.ErrInvalid},
		"another parent":      {good, []*commit.Commit{a, first}, base.ErrInvalid},
		"nil parent":          {good, []*commit.Commit{a, nil}, base.ErrInvalid},
	} {
		if err := commit.CheckParents(c.c, c.parents); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestIDs(t *testing.T) {
	id := commit.First().ID
	if !strings.HasPrefix(id.String(), id.Short()) || id.IsZero() || !(commit.ID{}).IsZero() {
		t.Error("Short or IsZero is wrong")
	}
	a, b := commit.ID{1}, commit.ID{2}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("ids are out of order")
	}
}

func TestCompare(t *testing.T) {
	first := commit.First()
	a, b := mustNew(t, 5, 1, first), mustNew(t, 5, 2, first)
	late := mustNew(t, 6, 1, first)
	if commit.Compare(a, late) >= 0 || commit.Compare(late, b) <= 0 || commit.Compare(a, a) != 0 {
		t.Error("the timestamp does not decide")
	}
	if commit.Compare(a, b) != a.ID.Compare(b.ID) {
		t.Error("the id does not decide among equal timestamps")
	}
}

func FuzzParse(f *testing.F) {
	first := commit.First()
	a := mustNew(f, 5, 1, first)
	for _, c := range []*commit.Commit{first, a, mustMerge(f, 2, a, first)} {
		f.Add(c.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := commit.Parse(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(c.Encode(), b) || c.ID != sha256.Sum256(b) {
			t.Fatalf("accepted as %s: %x", c.ID, b)
		}
	})
}
