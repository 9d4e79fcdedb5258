package merge_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/merge"
)

// conflicts returns the keys that two commits do not hold alike, as conflicts.
func (p *testPage) conflicts(t tester, left, right *commit.Commit) []merge.Conflict {
	t.Helper()
	var cs []merge.Conflict
	for d, err := range btree.Diff(t.Context(), p.tree(left.Root), p.tree(right.Root), nil) {
		if err != nil {
			t.Fatalf("diff: %v", err)
		}
		cs = append(cs, merge.Conflict{Key: d.Key, Left: d.Left, HasLeft: d.HasLeft, Right: d.Right, HasRight: d.HasRight})
	}
	return cs
}

// decide has a decider decide all conflicts between two commits with a base, and returns the pair's
// left and right commit.
func (p *testPage) decide(t tester, d merge.Decider, a, b, base *commit.Commit) (cs []merge.Conflict, left, right *commit.Commit) {
	t.Helper()
	if left, right = a, b; commit.Compare(a, b) > 0 {
		left, right = b, a
	}
	cs = p.conflicts(t, left, right)
	if err := d.Decide(t.Context(), merge.NewPair(p.env(), left, right, base), cs); err != nil {
		t.Fatalf("decide: %v", err)
	}
	return cs, left, right
}

func TestLastOneWins(t *testing.T) {
	tests := map[string]struct {
		history  func(p *testPage) (a, b, base *commit.Commit)
		a        bool // a's value is to win
		byWriter bool
	}{
		// The original took the side whose head was newer, however old its edit was.
		"old edit below a recent head loses": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			b = p.commit(t, 20, edit{"k": "old"}, base)
			b = p.commit(t, 90, edit{"other": "recent"}, b)
			return p.commit(t, 50, edit{"k": "new"}, base), b, base
		}, true, true},
		"deletion wins when it is newer": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			b = p.commit(t, 20, edit{"k": "old"}, base)
			return p.commit(t, 50, edit{"k": gone}, base), b, base
		}, true, true},
		"deletion loses when it is older": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			b = p.commit(t, 20, edit{"k": gone}, base)
			b = p.commit(t, 90, edit{"other": "recent"}, b)
			return p.commit(t, 50, edit{"k": "new"}, base), b, base
		}, true, true},
		"value that was there before counts when it was written again": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			a = p.commit(t, 20, edit{"k": "a"}, base)
			a = p.commit(t, 30, edit{"k": "x"}, a)
			a = p.commit(t, 70, edit{"k": "a"}, a)
			return a, p.commit(t, 50, edit{"k": "b"}, base), base
		}, true, true},
		"edit that was merged counts by its own time": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			x := p.commit(t, 20, edit{"k": "a"}, base)
			y := p.commit(t, 80, edit{"other": "y"}, base)
			a = p.commit(t, 0, edit{"k": "a"}, y, x)
			return a, p.commit(t, 50, edit{"k": "b"}, base), base
		}, false, true},
		"merge that made a value is its writer": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			x := p.commit(t, 20, edit{"k": "x"}, base)
			y := p.commit(t, 80, edit{"k": "y"}, base)
			a = p.commit(t, 0, edit{"k": "of both"}, x, y)
			return a, p.commit(t, 50, edit{"k": "b"}, base), base
		}, true, true},
		// A clock of the future wins over what was written beside it, and so does what is written
		// over it, but over nothing that was written on top.
		"clock of the future": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			b = p.commit(t, 90, edit{"k": "b"}, base)
			return p.commit(t, limits.MaxTimestamp/2, edit{"k": "future"}, base), b, base
		}, true, true},
		"what was written over a clock of the future": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			a = p.commit(t, limits.MaxTimestamp/2, edit{"k": "future"}, base)
			a = p.commit(t, 50, edit{"k": "a"}, a)
			return a, p.commit(t, 90, edit{"k": "b"}, base), base
		}, true, true},
		"what was written beside another key of the future": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			a = p.commit(t, limits.MaxTimestamp/2, edit{"other": "future"}, base)
			a = p.commit(t, 50, edit{"k": "a"}, a)
			return a, p.commit(t, 90, edit{"k": "b"}, base), base
		}, false, true},
		"value of the future that was written again": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			a = p.commit(t, limits.MaxTimestamp/2, edit{"k": "a"}, base)
			a = p.commit(t, 40, edit{"k": "x"}, a)
			a = p.commit(t, 50, edit{"k": "a"}, a)
			return a, p.commit(t, 90, edit{"k": "b"}, base), base
		}, true, true},
		"both on top of a clock of the future": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, limits.MaxTimestamp/2, edit{"k": "future"})
			a = p.commit(t, 90, edit{"other": "1"}, p.commit(t, 80, edit{"k": "a"}, base))
			b = p.commit(t, 50, edit{"k": "b"}, p.commit(t, 20, edit{"k": "x"}, p.commit(t, 10, edit{"k": "y"}, base)))
			return a, b, base
		}, true, true},
		"neither side has a writer": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			x := p.commit(t, 20, edit{"k": "x"}, base)
			y := p.commit(t, 30, edit{"k": "y"}, base)
			a = p.commit(t, 0, edit{"k": "x"}, y, x)
			b = p.commit(t, 0, edit{"k": "y"}, x, y)
			a = p.commit(t, 50, edit{"other": "newer"}, a)
			return a, b, x
		}, true, false},
		"side without a writer yields": {func(p *testPage) (a, b, base *commit.Commit) {
			base = p.commit(t, 10, edit{"k": "base"})
			x := p.commit(t, 20, edit{"k": "x"}, base)
			y := p.commit(t, 30, edit{"k": "y"}, base)
			b = p.commit(t, 0, edit{"k": "x"}, y, x)
			b = p.commit(t, 90, edit{"other": "newer"}, b)
			a = p.commit(t, 0, edit{"k": "y"}, x, y)
			return p.commit(t, 40, edit{"k": "a"}, a), b, x
		}, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTestPage()
			a, b, base := test.history(p)
			cs, left, _ := p.decide(t, merge.LastOneWins(), a, b, base)
			i := slices.IndexFunc(cs, func(c merge.Conflict) bool { return string(c.Key) == "k" })
			if i < 0 {
				t.Fatalf("no conflict about k")
			}
			want, rule := merge.TakeRight, "last one wins"
			if (a == left) == test.a {
				want = merge.TakeLeft
			}
			if !test.byWriter {
				rule += ", greater head"
			}
			if cs[i].Outcome != want || cs[i].Rule != rule {
				t.Errorf("outcome %d by %q, want %d by %q", cs[i].Outcome, cs[i].Rule, want, rule)
			}
			if test.byWriter == (cs[i].LeftWriter.IsZero() && cs[i].RightWriter.IsZero()) {
				t.Errorf("writers %s and %s", cs[i].LeftWriter.Short(), cs[i].RightWriter.Short())
			}
		})
	}
}

// history is a random history with what each commit holds.
type history struct {
	page    *testPage
	commits []*commit.Commit
	content map[commit.ID]map[string]string
}

// drawHistory draws a history of n commits or fewer over a few keys. Merges hold for each key what
// one of the parents has, and sometimes something of their own.
func drawHistory(t *rapid.T, n int) *history {
	h := &history{page: newTestPage(), commits: []*commit.Commit{commit.First()}, content: map[commit.ID]map[string]string{}}
	h.content[commit.First().ID] = map[string]string{}
	clock := int64(100)
	for i := range rapid.IntRange(2, n).Draw(t, "commits") {
		pick := func(label string) *commit.Commit {
			back := rapid.IntRange(1, min(len(h.commits), rapid.SampledFrom([]int{2, 4, 1000}).Draw(t, "reach"))).Draw(t, label)
			return h.commits[len(h.commits)-back]
		}
		a, b := pick("parent"), pick("other parent")
		at := drawClock(t, &clock)
		if a.ID == b.ID || h.related(a, b) || rapid.IntRange(0, 2).Draw(t, "merge") == 0 {
			h.edit(t, at, fmt.Sprint(i), a)
		} else {
			h.mergeAtWill(t, i, a, b)
		}
	}
	return h
}

// drawClock draws what the clock of a device shows. Most clocks are together with the others, some
// are days away, and some at the end of time.
func drawClock(t *rapid.T, clock *int64) int64 {
	*clock = max(*clock+rapid.Int64Range(-40, 40).Draw(t, "step"), 1)
	off := rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 2, 5, limits.MaxTimestamp/limits.MaxAhead - 2}).Draw(t, "days ahead")
	return *clock + off*limits.MaxAhead
}

func (h *history) related(a, b *commit.Commit) bool {
	x, y := h.ancestors(a), h.ancestors(b)
	return x[b.ID] || y[a.ID]
}

func (h *history) add(c *commit.Commit, content map[string]string) {
	if h.content[c.ID] == nil {
		h.commits, h.content[c.ID] = append(h.commits, c), content
	}
}

// valueGen draws values of which some are equal and one is absence.
var valueGen = rapid.SampledFrom([]string{"u", "v", "w", gone})

// edit adds a commit with some changes.
func (h *history) edit(t *rapid.T, at int64, device string, parent *commit.Commit) {
	ed := rapid.MapOfN(rapid.StringMatching("[a-e]"), valueGen, 0, 3).Draw(t, "edit")
	ed["device of "+device] = "x" // so that no two commits are the same
	content := maps.Clone(h.content[parent.ID])
	apply(content, ed)
	h.add(h.page.commit(t, at, ed, parent), content)
}

// mergeAtWill adds a merge with arbitrary content.
func (h *history) mergeAtWill(t *rapid.T, i int, a, b *commit.Commit) {
	ed, x, y := edit{}, h.content[a.ID], h.content[b.ID]
	for k := range both(x, y) {
		if x[k] == y[k] {
			continue
		}
		ed[k] = rapid.SampledFrom([]string{value(x, k), value(y, k), value(y, k), fmt.Sprint("merged ", i)}).Draw(t, "merged")
	}
	content := maps.Clone(x)
	apply(content, ed)
	h.add(h.page.commit(t, 0, ed, a, b), content)
}

func apply(content map[string]string, ed edit) {
	for k, v := range ed {
		if content[k] = v; v == gone {
			delete(content, k)
		}
	}
}

// value is what a content has under a key, or gone.
func value(content map[string]string, key string) string {
	if v, ok := content[key]; ok {
		return v
	}
	return gone
}

// both returns the keys of both contents.
func both(a, b map[string]string) map[string]bool {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	return keys
}

// ancestors returns a commit and all its ancestors.
func (h *history) ancestors(c *commit.Commit) map[commit.ID]bool {
	set := map[commit.ID]bool{}
	todo := []*commit.Commit{c}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if set[c.ID] {
			continue
		}
		set[c.ID] = true
		for _, id := range c.Parents {
			todo = append(todo, h.get(id))
		}
	}
	return set
}

func (h *history) get(id commit.ID) *commit.Commit {
	if id == commit.First().ID {
		return commit.First()
	}
	return h.page.commits[id]
}

// writer finds the writer of a key as the definition says it, without any cleverness.
func (h *history) writer(side, other *commit.Commit, key string) *commit.Commit {
	var newest *commit.Commit
	common, want := h.ancestors(other), value(h.content[side.ID], key)
	for id := range h.ancestors(side) {
		c := h.get(id)
		own := !common[id] && value(h.content[id], key) == want
		for _, p := range c.Parents {
			own = own && value(h.content[p], key) != want
		}
		if own && (newest == nil || commit.CompareGeneration(c, newest) > 0) {
			newest = c
		}
	}
	return newest
}

// newest finds the commit by which a side is measured, w being its writer of a key.
func (h *history) newest(w, other *commit.Commit, key string) *commit.Commit {
	if w == nil {
		return nil
	}
	newest, common := w, h.ancestors(other)
	for id := range h.ancestors(w) {
		c := h.get(id)
		own := !common[id]
		for _, p := range c.Parents {
			own = own && value(h.content[p], key) != value(h.content[id], key)
		}
		if own && c.Timestamp > w.Timestamp && commit.Compare(c, newest) > 0 {
			newest = c
		}
	}
	return newest
}

// heads draws two commits of which neither is an ancestor of the other, the lesser first; ok is
// false if it finds none.
func (h *history) heads(t *rapid.T) (left, right *commit.Commit, ok bool) {
	i := rapid.IntRange(0, len(h.commits)-1).Draw(t, "head")
	for j := range h.commits {
		left, right = h.commits[i], h.commits[len(h.commits)-1-j]
		if left.ID != right.ID && !h.related(left, right) {
			if commit.Compare(left, right) > 0 {
				left, right = right, left
			}
			return left, right, true
		}
	}
	return nil, nil, false
}

func id(c *commit.Commit) commit.ID {
	if c == nil {
		return commit.ID{}
	}
	return c.ID
}

func TestLastOneWinsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t, 25)
		left, right, ok := h.heads(t)
		if !ok {
			return
		}
		cs, _, _ := h.page.decide(t, merge.LastOneWins(), left, right, commit.First())
		for _, c := range cs {
			l, r := h.writer(left, right, string(c.Key)), h.writer(right, left, string(c.Key))
			if c.LeftWriter != id(l) || c.RightWriter != id(r) {
				t.Fatalf("key %q: writers %s and %s, want %s and %s", c.Key, c.LeftWriter.Short(), c.RightWriter.Short(), id(l).Short(), id(r).Short())
			}
			want := merge.TakeRight
			if l, r := h.newest(l, right, string(c.Key)), h.newest(r, left, string(c.Key)); l != nil && (r == nil || commit.Compare(l, r) > 0) {
				want = merge.TakeLeft
			}
			if c.Outcome != want {
				t.Fatalf("key %q: outcome %d, want %d", c.Key, c.Outcome, want)
			}
		}
	})
}

func TestNewestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t, 25)
		left, right, ok := h.heads(t)
		if !ok {
			return
		}
		names := slices.Sorted(maps.Keys(rapid.MapOfN(rapid.StringMatching("[a-e]"), rapid.Just(true), 0, 4).Draw(t, "keys")))
		want := merge.TakeRight
		var last *commit.Commit
		var keys [][]byte
		for _, k := range names {
			keys = append(keys, []byte(k))
			if c := h.newest(h.writer(left, right, k), right, k); c != nil && (last == nil || commit.Compare(c, last) > 0) {
				want, last = merge.TakeLeft, c
			}
			if c := h.newest(h.writer(right, left, k), left, k); c != nil && (last == nil || commit.Compare(c, last) > 0) {
				want, last = merge.TakeRight, c
			}
		}
		got, err := merge.NewPair(h.page.env(), left, right, commit.First()).Newest(t.Context(), keys)
		if err != nil || got != want {
			t.Fatalf("newest of %q: %d, %v, want %d", names, got, err, want)
		}
	})
}

func TestNewestRefusesUnsortedKeys(t *testing.T) {
	p := newTestPage()
	a, b := p.commit(t, 1, edit{"a": "1"}), p.commit(t, 2, edit{"a": "2"})
	_, err := merge.NewPair(p.env(), a, b, commit.First()).Newest(t.Context(), [][]byte{[]byte("b"), []byte("a")})
	if !errors.Is(err, base.ErrInvalid) {
		t.Fatalf("error %v, want ErrInvalid", err)
	}
}

// numbered returns the changes of n keys to one value.
func numbered(n int, value string) []btree.Change {
	var cs []btree.Change
	for i := range n {
		v := []byte(value)
		cs = append(cs, btree.Change{Entry: fb.Entry{Key: fmt.Appendf(nil, "key %06d", i), Inline: true, Value: v, Size: uint64(len(v))}})
	}
	return cs
}

// The cost follows the number of keys in conflict or that of changes, whichever is less, and
// commits only one side has.
func TestLastOneWinsReadsLittle(t *testing.T) {
	p := newTestPage()
	const keys = 20000
	old := p.commit(t, 1, edit{"before": "all"})
	for i := range 50 {
		old = p.commit(t, int64(i+2), edit{"before": fmt.Sprint(i)}, old)
	}
	start := p.commitChanges(t, 100, numbered(keys, "base"), old)
	all := p.commitChanges(t, 200, numbered(keys, "all"), start)
	few := start
	for i := range 10 {
		few = p.commit(t, int64(300+i), edit{fmt.Sprintf("key %06d", i*1999): "few"}, few)
	}
	cs := p.conflicts(t, all, few)
	var ten []merge.Conflict
	for _, c := range cs {
		if string(c.Right.Value) == "few" {
			ten = append(ten, c)
		}
	}
	for _, test := range []struct {
		name           string
		cs             []merge.Conflict
		nodes, commits int
	}{
		{"few keys, many changes", ten, 400, 13},
		{"many keys, few changes", cs, 10*keys/16 + 400, 13},
	} {
		pair := merge.NewPair(p.env(), all, few, start)
		p.resetCounts()
		if err := merge.LastOneWins().Decide(t.Context(), pair, test.cs); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d nodes, %d commits", test.name, p.nodeReads, p.commitReads)
		if p.nodeReads > test.nodes || p.commitReads > test.commits {
			t.Errorf("%s: %d nodes and %d commits read, want at most %d and %d", test.name, p.nodeReads, p.commitReads, test.nodes, test.commits)
		}
		for _, c := range test.cs {
			few := string(c.Right.Value) == "few"
			if few != (c.Outcome == merge.TakeRight) || few == c.RightWriter.IsZero() || c.LeftWriter.IsZero() {
				t.Fatalf("key %s: outcome %d", c.Key, c.Outcome)
			}
		}
	}
}

// A key is found without a walk through the tree, also where a side has written all of it since the
// base.
func TestNewestOfOneKeyReadsLittle(t *testing.T) {
	p := newTestPage()
	start := commit.First()
	left := p.commitChanges(t, 2, numbered(20000, "left"), start)
	right := p.commitChanges(t, 3, numbered(20000, "right"), start)
	p.resetCounts()
	o, err := merge.NewPair(p.env(), left, right, start).Newest(t.Context(), [][]byte{[]byte("key 000000")})
	if err != nil || o != merge.TakeRight {
		t.Fatalf("outcome %d, error %v, want the right side", o, err)
	}
	if p.nodeReads > 24 {
		t.Errorf("%d nodes read, want at most 24", p.nodeReads)
	}
}

func TestLastOneWinsErrors(t *testing.T) {
	p := newTestPage()
	start := p.commit(t, 1, edit{"k": "base"})
	a := p.commit(t, 3, edit{"x": "1"}, p.commit(t, 2, edit{"k": "a"}, start))
	b := p.commit(t, 4, edit{"k": "b"}, start)
	cs := p.conflicts(t, a, b)
	delete(p.commits, a.Parents[0])
	err := merge.LastOneWins().Decide(t.Context(), merge.NewPair(p.env(), a, b, start), cs)
	if !errors.Is(err, base.ErrNotFound) || !strings.Contains(err.Error(), a.Parents[0].String()) {
		t.Fatalf("error %v, want ErrNotFound that names the commit", err)
	}
}

// A merge has the timestamp of its greater parent, whose id may be the greater one: the merge is
// the later commit all the same.
func TestLastOneWinsEqualTimestamps(t *testing.T) {
	seen := map[bool]bool{}
	for i := 0; len(seen) < 2 && i < 64; i++ {
		p := newTestPage()
		start := p.commit(t, 10, edit{"k": "base"})
		written := p.commit(t, 80, edit{"k": "v", "i": fmt.Sprint(i)}, start)
		lost := p.commit(t, 0, edit{"k": "w"}, p.commit(t, 20, edit{"k": "w"}, start), written)
		again := p.commit(t, 0, edit{"k": "v"}, lost, p.commit(t, 30, edit{"k": "u"}, start))
		seen[commit.Compare(again, written) > 0] = true
		cs, left, _ := p.decide(t, merge.LastOneWins(), again, p.commit(t, 50, edit{"k": "other"}, start), start)
		got := cs[slices.IndexFunc(cs, func(c merge.Conflict) bool { return string(c.Key) == "k" })]
		writer := got.RightWriter
		if left == again {
			writer = got.LeftWriter
		}
		if writer != again.ID {
			t.Fatalf("writer %s, want %s", writer.Short(), again.ID.Short())
		}
	}
	if len(seen) < 2 {
		t.Fatal("ids came in one order only")
	}
}
