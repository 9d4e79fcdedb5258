package merge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// undo undoes a commit against a parent in head, and returns what the page then holds and the keys
// that were kept.
func (p *testPage) undo(t tester, head, c, parent *commit.Commit) (content map[string]string, kept map[string]bool) {
	t.Helper()
	kept = map[string]bool{}
	var cs []btree.Change
	var last []byte
	for u, err := range merge.Undo(t.Context(), p.view(), head, c, parent) {
		if err != nil {
			t.Fatalf("undo: %v", err)
		}
		if last != nil && bytes.Compare(last, u.Change.Entry.Key) >= 0 {
			t.Fatalf("key %q behind %q", u.Change.Entry.Key, last)
		}
		if last = u.Change.Entry.Key; u.Kept {
			kept[string(last)] = true
		} else {
			cs = append(cs, u.Change)
		}
	}
	before := p.content(t, head.Root)
	undone := p.commitChanges(t, 0, cs, head)
	content = p.content(t, undone.Root)
	for _, c := range cs {
		if k := string(c.Entry.Key); value(before, k) == value(content, k) {
			t.Fatalf("key %q was so already", k)
		}
	}
	return content, kept
}

func TestUndo(t *testing.T) {
	counter := merge.Rules{Rules: []merge.Rule{{Decider: merge.ByValue{Name: "counter", Rule: merge.Counter}}}}
	tests := map[string]struct {
		history func(t *testing.T, p *testPage) (head, c, parent *commit.Commit)
		want    string
		kept    bool
	}{
		"the winner": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			return p.merge(t, merge.Rules{}, blue, green), green, red
		}, "blue", false},
		"the winner, later": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			more := p.commit(t, 4, edit{"other": "x"}, green)
			return p.commit(t, 9, edit{"other": "y"}, p.merge(t, merge.Rules{}, blue, more)), green, red
		}, "blue", false},
		"the loser": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			return p.merge(t, merge.Rules{}, blue, green), blue, red
		}, "green", true},
		"the winner over two": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, pink := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "pink"}, red)
			green := p.commit(t, 4, edit{"color": "green"}, red)
			return p.merge(t, merge.Rules{}, pink, p.merge(t, merge.Rules{}, blue, green)), green, red
		}, "pink", false},
		"the winner over two, the newer one first": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, pink := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "pink"}, red)
			green := p.commit(t, 4, edit{"color": "green"}, red)
			return p.merge(t, merge.Rules{}, blue, p.merge(t, merge.Rules{}, pink, green)), green, red
		}, "pink", false},
		"the winner over a deletion": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": gone}, red), p.commit(t, 3, edit{"color": "green"}, red)
			return p.merge(t, merge.Rules{}, blue, green), green, red
		}, gone, false},
		"a deletion that won": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": gone}, red)
			return p.merge(t, merge.Rules{}, blue, green), green, red
		}, "blue", false},
		"a deletion": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			c = p.commit(t, 2, edit{"color": gone}, red)
			return p.commit(t, 3, edit{"x": "y"}, c), c, red
		}, "red", false},
		"what was overwritten": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			green := p.commit(t, 2, edit{"color": "green"}, red)
			return p.commit(t, 3, edit{"color": "pink"}, green), green, red
		}, "pink", true},
		"what is undone already": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			green := p.commit(t, 2, edit{"color": "green"}, red)
			return p.commit(t, 3, edit{"color": "red"}, green), green, red
		}, "red", false},
		"what was written again": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			green := p.commit(t, 2, edit{"color": "green"}, red)
			pink := p.commit(t, 3, edit{"color": "pink", "other": "1"}, green)
			again := p.commit(t, 4, edit{"color": "green"}, pink)
			return p.commit(t, 5, edit{"other": "2"}, again), green, red
		}, "green", true},
		"what was deleted again": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			c = p.commit(t, 2, edit{"color": gone}, red)
			return p.commit(t, 4, edit{"color": gone}, p.commit(t, 3, edit{"color": "pink"}, c)), c, red
		}, gone, true},
		"what was written again on one of two branches": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			green := p.commit(t, 2, edit{"color": "green"}, red)
			again := p.commit(t, 4, edit{"color": "green"}, p.commit(t, 3, edit{"color": "pink"}, green))
			return p.merge(t, merge.Rules{}, again, p.commit(t, 5, edit{"other": "x"}, green)), green, red
		}, "green", true},
		// The commit's value is gone, and another branch has brought the same one.
		"what another branch wrote over what was written on top": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			green := p.commit(t, 2, edit{"color": "green"}, red)
			pink := p.commit(t, 3, edit{"color": "pink"}, green)
			return p.merge(t, merge.Rules{}, pink, p.commit(t, 4, edit{"color": "green"}, red)), green, red
		}, "green", true},
		"what a rule made of it": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "1"})
			blue, green := p.commit(t, 2, edit{"color": "2"}, red), p.commit(t, 3, edit{"color": "4"}, red)
			return p.merge(t, counter, blue, green), green, red
		}, "5", true},
		"a merge against its winner": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue", "b": "x"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			m := p.merge(t, merge.Rules{}, blue, green)
			return p.commit(t, 4, edit{"other": "x"}, m), m, green
		}, "green", false},
		"a merge against its loser": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue", "b": "x"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			m := p.merge(t, merge.Rules{}, blue, green)
			return p.commit(t, 4, edit{"other": "x"}, m), m, blue
		}, "blue", false},
		// Blue lost to the commit, pink to what was written again later.
		"what was written again and won": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			m := p.merge(t, merge.Rules{}, blue, green)
			grey := p.commit(t, 5, edit{"color": "grey"}, m)
			again := p.commit(t, 9, edit{"color": "green"}, grey)
			return p.merge(t, merge.Rules{}, again, p.commit(t, 8, edit{"color": "pink"}, grey)), green, red
		}, "green", true},
		// The side that won had the value from elsewhere.
		"another commit won": {func(t *testing.T, p *testPage) (head, c, parent *commit.Commit) {
			red := p.commit(t, 1, edit{"color": "red"})
			blue, green := p.commit(t, 2, edit{"color": "blue"}, red), p.commit(t, 3, edit{"color": "green"}, red)
			m := p.merge(t, merge.Rules{}, blue, p.commit(t, 4, edit{"x": "2"}, p.commit(t, 4, edit{"x": "1"}, green)))
			c = p.commit(t, 4, edit{"color": "green"}, p.commit(t, 3, edit{"color": "grey"}, red))
			return p.commit(t, 0, edit{}, m, c), c, p.commits[c.Parents[0]]
		}, "grey", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTestPage()
			head, c, parent := test.history(t, p)
			want := p.content(t, head.Root)
			apply(want, edit{"color": test.want})
			if b := p.content(t, parent.Root); len(c.Parents) == 2 {
				apply(want, edit{"b": value(b, "b")})
			}
			got, kept := p.undo(t, head, c, parent)
			if !maps.Equal(got, want) || kept["color"] != test.kept {
				t.Errorf("content %q, kept %v, want %q", got, kept, want)
			}
		})
	}
}

// lost returns the newest value that lost to what c has under a key in merges between c and head,
// from whole contents.
func (h *history) lost(t *rapid.T, head, c *commit.Commit, key string) (lost string, ok bool) {
	var newest *commit.Commit
	won := value(h.content[c.ID], key)
	for id := range h.ancestors(head) {
		m := h.get(id)
		d, explained := h.decision(t, m, key)
		if !explained || value(h.content[id], key) != won || d.Outcome != merge.TakeLeft && d.Outcome != merge.TakeRight {
			continue
		}
		winner, loser, writer := h.parents(m)[0], h.parents(m)[1], d.RightWriter
		if d.Outcome == merge.TakeRight {
			winner, loser, writer = loser, winner, d.LeftWriter
		}
		w := h.get(h.wrote(loser, key, writer))
		if !h.ancestors(winner)[c.ID] {
			continue
		}
		if !ok || w != nil && (newest == nil || commit.Compare(w, newest) > 0) {
			newest, lost, ok = w, value(h.content[loser.ID], key), true
		}
	}
	return lost, ok
}

// written reports whether a commit between c and head, which descends from c, wrote a key, from
// whole contents.
func (h *history) written(head, c *commit.Commit, key string) bool {
	for id := range h.ancestors(head) {
		x := h.get(id)
		if id == c.ID || !h.ancestors(x)[c.ID] {
			continue
		}
		has := func(p *commit.Commit) bool { return value(h.content[p.ID], key) == value(h.content[id], key) }
		if !slices.ContainsFunc(h.parents(x), has) {
			return true
		}
	}
	return false
}

// TestUndoModel holds the law of Undo: it changes a key only if nothing on top of the commit has
// written it.
func TestUndoModel(t *testing.T) {
	won, again := 0, 0
	for tries := 0; tries < 10 && (won == 0 || again == 0); tries++ { // what some cases do not have, others have
		rapid.Check(t, func(t *rapid.T) {
			h := drawMerged(t, 20)
			head := h.commits[len(h.commits)-1]
			for _, c := range h.commits {
				if !h.ancestors(head)[c.ID] {
					continue
				}
				for _, parent := range h.parents(c) {
					w, a := checkUndo(t, h, head, c, parent)
					won, again = won+w, again+a
				}
			}
		})
	}
	if won == 0 || again == 0 {
		t.Errorf("%d keys were won by the commit, %d were written again: want some of both", won, again)
	}
}

// checkUndo compares what Undo makes with what whole contents say, and returns over how many values
// c had won, and how many keys have c's value because it was written again.
func checkUndo(t *rapid.T, h *history, head, c, parent *commit.Commit) (won, again int) {
	before, done, now := h.content[parent.ID], h.content[c.ID], h.content[head.ID]
	want, wantKept := maps.Clone(now), map[string]bool{}
	for k := range both(before, done) {
		switch v := value(now, k); {
		case value(before, k) == value(done, k):
		case v == value(done, k) && h.written(head, c, k):
			wantKept[k] = true
			again++
		case v == value(done, k):
			lost, ok := h.lost(t, head, c, k)
			if !ok {
				lost = value(before, k)
			} else {
				won++
			}
			apply(want, edit{k: lost})
		case v != value(before, k):
			wantKept[k] = true
		}
	}
	got, kept := h.page.undo(t, head, c, parent)
	if !maps.Equal(got, want) || !maps.Equal(kept, wantKept) {
		t.Fatalf("commit %s: content %q, kept %v, want %q and %v", c.ID.Short(), got, kept, want, wantKept)
	}
	return won, again
}

// TestUndoReadsWhatChanged: of the commits on top of the undone one it reads the ways to the keys.
func TestUndoReadsWhatChanged(t *testing.T) {
	const n, changes, above = 20_000, 20, 30
	p, _, c := large(t, n, changes, false)
	parent := p.commits[c.Parents[0]]
	head := c
	for i := range above {
		head = p.commit(t, int64(i+10), edit{keyOf(n - 1 - i): "later"}, head)
	}
	p.resetCounts()
	if _, kept := p.undo(t, head, c, parent); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
	// The test itself reads all of two trees, which share nearly everything.
	reads := p.nodeReads
	p.resetCounts()
	p.content(t, head.Root)
	whole := 2 * p.nodeReads
	// Each key is looked up in each commit and in its parent, by about log16(n) = 4 nodes, and a
	// few times beside.
	if limit := changes * (2*above + 6) * 4 * 3 / 2; reads-whole > limit {
		t.Errorf("%d nodes read for %d keys and %d commits, want at most %d", reads-whole, changes, above, limit)
	}
	t.Logf("%d nodes read", reads-whole)
}

// To undo the newest commit is to go back to its parent.
func TestUndoOfTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newTestPage()
		head, parent := commit.First(), commit.First()
		for i := range rapid.IntRange(1, 6).Draw(t, "commits") {
			parent = head
			ed := rapid.MapOfN(rapid.StringMatching("[a-e]"), valueGen, 0, 4).Draw(t, "edit")
			ed["i"] = fmt.Sprint(i)
			head = p.commit(t, int64(i), ed, head)
		}
		got, kept := p.undo(t, head, head, parent)
		if want := p.content(t, parent.Root); !maps.Equal(got, want) || len(kept) > 0 {
			t.Fatalf("content %q, kept %v, want %q", got, kept, want)
		}
	})
}

func TestUndoErrors(t *testing.T) {
	p := newTestPage()
	red := p.commit(t, 1, edit{"color": "red"})
	head := p.commit(t, 2, edit{"color": "blue"}, red)
	last := func(ctx context.Context, parent *commit.Commit) (err error) {
		for _, err = range merge.Undo(ctx, p.view(), head, head, parent) {
		}
		return err
	}
	if err := last(t.Context(), commit.First()); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("error %v for a commit that is no parent, want ErrInvalid", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := last(ctx, red); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want Canceled", err)
	}
	clear(p.nodes)
	if err := last(t.Context(), red); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}
