package merge_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func writer(b byte) (id commit.ID) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

// goldenDecisions are decisions whose encoding never changes.
var goldenDecisions = []merge.Decision{
	{Outcome: merge.TakeLeft, Rule: "r"},
	{Outcome: merge.TakeRight, Rule: "last one wins", LeftWriter: writer(1), RightWriter: writer(0x41)},
	{Outcome: merge.TakeNew, Rule: "counter", LeftWriter: writer(1)},
	{Outcome: merge.TakeNone, Rule: "größer", RightWriter: writer(2)},
	{Outcome: merge.TakeNew, Rule: strings.Repeat("x", merge.MaxRuleBytes), LeftWriter: writer(3), RightWriter: writer(4)},
}

func TestDecisionGolden(t *testing.T) {
	var lines []string
	for _, d := range goldenDecisions {
		b, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > btree.InlineLimit {
			t.Errorf("%d bytes are not inline", len(b))
		}
		lines = append(lines, hex.EncodeToString(b))
		d.Key = []byte("key")
		got, err := merge.DecodeDecision(d.Key, b)
		if diff := cmp.Diff(d, got); diff != "" || err != nil {
			t.Errorf("decoded: %v, -want +got:\n%s", err, diff)
		}
	}
	path := filepath.Join("testdata", "decisions.hex")
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeDecisionRefuses(t *testing.T) {
	good, err := goldenDecisions[1].Encode()
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int, b byte) []byte {
		c := bytes.Clone(good)
		c[i] = b
		return c
	}
	for name, b := range map[string][]byte{
		"nothing":      nil,
		"header alone": good[:3],
		"version 0":    change(0, 0),
		"no outcome":   change(1, 0),
		"outcome 5":    change(1, 5),
		"no rule":      good[:2+2*commit.IDSize],
		"length 129":   append(bytes.Clone(good[:2+2*commit.IDSize]), bytes.Repeat([]byte{'r'}, 129)...),
		"not UTF-8":    change(len(good)-1, 0xff),
		"cut":          good[:2+2*commit.IDSize-1],
	} {
		var corrupt *base.CorruptError
		if d, err := merge.DecodeDecision(nil, b); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v, %v, want a CorruptError", name, d, err)
		}
	}
	if _, err := merge.DecodeDecision(nil, change(0, 2)); !errors.Is(err, base.ErrUnsupported) {
		t.Errorf("version 2: %v, want ErrUnsupported", err)
	}
}

func TestEncodeDecisionRefuses(t *testing.T) {
	for _, d := range []merge.Decision{
		{Rule: "r"}, {Outcome: 5, Rule: "r"}, {Outcome: merge.TakeLeft},
		{Outcome: merge.TakeLeft, Rule: strings.Repeat("r", 129)}, {Outcome: merge.TakeLeft, Rule: "\xff"},
	} {
		if _, err := d.Encode(); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", d, err)
		}
	}
}

func FuzzDecodeDecision(f *testing.F) {
	for _, d := range goldenDecisions {
		b, err := d.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := merge.DecodeDecision(nil, b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := d.Encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("encoded again: %x, %v", again, err)
		}
	})
}

func TestDecisionsOfPrefixes(t *testing.T) {
	p := newTestPage()
	keys := []string{"", "a", "aa", "ab", "b", "b\xff", "b\xff\xff", "c"}
	l, r := edit{}, edit{}
	for _, k := range keys {
		l[k], r[k] = "left", "right"
	}
	m := heads(t, p, merge.Rules{}, p.commit(t, 1, l), p.commit(t, 2, r))[0]
	rapid.Check(t, func(rt *rapid.T) {
		prefix := rapid.SampledFrom(append(keys, "d", "\xff", "ac")).Draw(rt, "prefix")
		var want, got []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		for d, err := range merge.Decisions(t.Context(), p.view(), m.Explanation, []byte(prefix)) {
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, string(d.Key))
		}
		if !slices.Equal(want, got) {
			rt.Fatalf("prefix %q: %q, want %q", prefix, got, want)
		}
	})
	for range merge.Decisions(t.Context(), p.view(), m.Explanation, nil) {
		break // nothing holds on
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range merge.Decisions(ctx, p.view(), m.Explanation, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	}
	// A tree of something else, here that of the page itself.
	for _, err := range merge.Decisions(t.Context(), p.view(), m.Commit.Root, nil) {
		if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) || strings.Contains(fmt.Sprint(err), "left") {
			t.Errorf("another tree: %v, want ErrCorrupt or ErrUnsupported", err)
		}
	}
}
