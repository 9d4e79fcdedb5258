package merge_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// asked collects what a decider is asked, and takes the right side.
type asked struct{ conflicts []merge.Conflict }

func (a *asked) Decide(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		cs[i].Outcome, cs[i].Rule = merge.TakeRight, "asked"
	}
	a.conflicts = append(a.conflicts, cs...)
	return nil
}

func rulesOf(d merge.Decider) merge.Rules { return merge.Rules{Rules: []merge.Rule{{Decider: d}}} }

// crissCross makes two commits with the given values of k, own commits both, whose common ancestors
// are commits with the given values, all on one commit with the value before.
func crissCross(t tester, p *testPage, before string, bases []string, left, right string) (l, r *commit.Commit) {
	t.Helper()
	return crissCrossOf(t, p, 0, before, bases, left, right)
}

// crissCrossOf is crissCross with bases of other ids for each salt; their timestamps are equal if
// it is not zero.
func crissCrossOf(t tester, p *testPage, salt int64, before string, bases []string, left, right string) (l, r *commit.Commit) {
	t.Helper()
	b := p.commit(t, 1, edit{"k": before, "z": "z"})
	at := int64(1)
	if salt > 0 {
		at = 0
	}
	var all []*commit.Commit
	for i, v := range bases {
		all = append(all, p.commit(t, 10+at*int64(i), edit{"k": v, fmt.Sprint("base", i): fmt.Sprint(salt)}, b))
	}
	side := func(name, value string, at int64) *commit.Commit {
		m := all[0]
		for i, c := range all[1:] {
			m = p.commit(t, 0, edit{fmt.Sprint("base", i+1): fmt.Sprint(salt), "by": name}, m, c)
		}
		return p.commit(t, at, edit{"k": value, name: "own"}, m)
	}
	return side("left", left, 100), side("right", right, 200)
}

func TestUnknownInBases(t *testing.T) {
	for _, c := range []struct {
		before  string
		bases   []string
		l, r    string
		asked   bool
		unknown bool
		result  string
	}{
		// The bases agree, or only one of them changed the key: the base is known.
		{"b", []string{"b", "b"}, "1", "b", false, false, "1"},
		{"b", []string{"x", "b"}, "x", "2", false, false, "2"},
		{"b", []string{"x", "x"}, "x", gone, false, false, gone},
		{"b", []string{"x", "b"}, "1", "2", true, false, "2"},
		// They do not: it is not, and whatever differs is a conflict.
		{"b", []string{"x", "y"}, "x", "y", true, true, "y"},
		{"b", []string{"x", "y"}, "x", "x", false, false, "x"},
		{"b", []string{"x", "y"}, gone, "x", true, true, "x"},
		{"b", []string{"x", "y"}, "x", gone, true, true, gone},
		{"b", []string{"x", gone}, "x", gone, true, true, gone},
		{"b", []string{"x", "y"}, gone, gone, false, false, gone},
		// A key that is unknown stays so, whatever another base has.
		{"b", []string{"x", "y", "b"}, gone, "b", true, true, "b"},
		{"b", []string{"x", "y", "x"}, "x", gone, true, true, gone},
		{gone, []string{"x", "y", "z"}, "z", gone, true, true, gone},
		{gone, []string{"x", "y", gone}, gone, "y", true, true, "y"},
	} {
		for salt := range int64(12) { // with equal timestamps the virtual merge of two bases may be the greater one beside the third
			name := fmt.Sprintf("%q %q %q %q", c.before, c.bases, c.l, c.r)
			p := newTestPage()
			l, r := crissCrossOf(t, p, salt, c.before, c.bases, c.l, c.r)
			rel, err := merge.Relate(t.Context(), p, l, r)
			if err != nil || len(rel.Bases) != len(c.bases) {
				t.Fatalf("%s: %d bases, %v", name, len(rel.Bases), err)
			}
			a := &asked{}
			m := heads(t, p, rulesOf(a), l, r)[0]
			if got := value(p.content(t, m.Commit.Root), "k"); got != c.result {
				t.Errorf("%s: k is %q, want %q", name, got, c.result)
			}
			i := slices.IndexFunc(a.conflicts, func(c merge.Conflict) bool { return string(c.Key) == "k" })
			if (i >= 0) != c.asked {
				t.Errorf("%s: asked %t, want %t", name, i >= 0, c.asked)
			} else if i >= 0 && (a.conflicts[i].BaseUnknown != c.unknown || a.conflicts[i].HasBase == c.unknown) {
				t.Errorf("%s: base unknown %t, has base %t", name, a.conflicts[i].BaseUnknown, a.conflicts[i].HasBase)
			}
		}
	}
}

// fetching gives the nodes of a page, and has those come that are missing there, as a page store
// does for a tree that is known as history only.
type fetching struct {
	*testPage
	fetched int
}

func (f *fetching) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := f.testPage.Node(ctx, d)
	if errors.Is(err, base.ErrNeedsFetch) {
		delete(f.missing, d)
		f.fetched++
		return f.testPage.Node(ctx, d)
	}
	return n, err
}

// Several bases that are known as history only are fetched as a single one is.
func TestBasesThatAreNotHeld(t *testing.T) {
	for _, bases := range [][]string{{"x", "y"}, {"b", "x", "b"}, {"x", "x"}} {
		p := newTestPage()
		l, r := crissCross(t, p, "b", bases, "1", "2")
		want := heads(t, p, merge.Rules{}, l, r)
		rel, err := merge.Relate(t.Context(), p, l, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range rel.Bases {
			p.missing[c.Root] = true
			first, err := p.Commit(t.Context(), c.Parents[0])
			if err != nil {
				t.Fatal(err)
			}
			p.missing[first.Root] = true
		}
		f := &fetching{testPage: p}
		env := p.env()
		env.Tree = p.trees(f)
		got, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{l, r})
		if err != nil {
			t.Errorf("bases with %q: %v", bases, err)
			continue
		}
		if got[0].Commit.ID != want[0].Commit.ID || f.fetched == 0 {
			t.Errorf("bases with %q: %d nodes were fetched, merged into %s, want %s", bases, f.fetched, got[0].Commit.ID, want[0].Commit.ID)
		}
	}
}

// Beyond the depth to which bases of bases are made, no base is taken for granted.
func TestDeepHistoriesLoseNothing(t *testing.T) {
	p := newTestPage()
	b := p.commit(t, 1, edit{"k": "b", "other": "b"})
	l, r := p.commit(t, 2, edit{"k": "x", "l": "own-1"}, b), p.commit(t, 3, edit{"k": "y", "r": "own-1"}, b)
	for i := range 40 {
		// Each side has what the other has written beside k, about which they never agree.
		seen := fmt.Sprint("own", i-1)
		ml := p.commit(t, 0, edit{"k": "x", "l": seen, "r": seen}, l, r)
		mr := p.commit(t, 0, edit{"k": "y", "l": seen, "r": seen}, r, l)
		l, r = p.commit(t, int64(10+2*i), edit{"l": "own" + fmt.Sprint(i)}, ml), p.commit(t, int64(11+2*i), edit{"r": "own" + fmt.Sprint(i)}, mr)
	}
	r = p.commit(t, 1000, edit{"other": "r"}, r)
	a := &asked{}
	heads(t, p, rulesOf(a), l, r)
	if !slices.ContainsFunc(a.conflicts, func(c merge.Conflict) bool { return string(c.Key) == "k" }) {
		t.Error("k was not asked about")
	}
	for _, c := range a.conflicts {
		if !c.BaseUnknown {
			t.Errorf("asked about %s with a base", c.Key)
		}
	}
	got := p.content(t, heads(t, p, merge.Rules{}, l, r)[0].Commit.Root)
	if got["other"] != "r" || got["l"] != "own39" || got["r"] != "own39" {
		t.Errorf("content %v", got)
	}
}

// A rule that follows from values is asked about bases (I6). A value that only the virtual base has
// stays readable for whoever takes it.
func TestByValueInBases(t *testing.T) {
	long := string(varied(300_000))
	join := merge.ByValue{Name: "join", Rule: func(base, left, right []byte) ([]byte, bool) {
		if string(base) != "b" {
			return base, true
		}
		return fmt.Append(nil, long, len(left)+len(right)), true
	}}
	takeBases := owner(func(ctx context.Context, p *merge.Pair, prefix []byte) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			// What stands under k in the base comes to be under the owner's key.
			e, ok, err := p.Base.Get(ctx, []byte("k"))
			e.Key = []byte("own/k")
			if ok || err != nil {
				yield(btree.Change{Entry: e}, err)
			}
		}
	})
	for name, rules := range map[string]merge.Rules{
		"k":     rulesOf(join),
		"own/k": {Rules: []merge.Rule{{Decider: join}, {Prefix: []byte("own/"), Owner: takeBases}}},
	} {
		p := newTestPage()
		l, r := crissCross(t, p, "b", []string{"xx", "yyy"}, "1", "2")
		env, sink := p.sealed()
		merged, err := merge.Heads(t.Context(), env, rules, []*commit.Commit{l, r})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		maps.Copy(p.nodes, sink.nodes)
		maps.Copy(p.pieces, sink.pieces)
		got := p.content(t, merged[0].Commit.Root)
		if want := fmt.Sprint(long, 5); got[name] != want {
			t.Errorf("%s is a value of %d bytes, want that of the base, %d bytes", name, len(got[name]), len(want))
		}
	}
}

// Unknown keys are noted in batches.
func TestManyUnknownKeys(t *testing.T) {
	const n = 5000
	p := newTestPage()
	b := p.commit(t, 1, edit{"z": "z"})
	sides := make([]edit, 4)
	for i := range sides {
		sides[i] = edit{}
		for k := range n {
			sides[i][keyOf(k)] = fmt.Sprint(i)
		}
	}
	x, y := p.commit(t, 2, sides[0], b), p.commit(t, 3, sides[1], b)
	l := p.commit(t, 10, edit{"l": "own"}, p.commit(t, 0, sides[2], x, y))
	gone := p.commit(t, 0, edit{keyOf(n - 1): gone, keyOf(1): gone}, x, y)
	r := p.commit(t, 11, edit{"r": "own"}, gone)
	a := &asked{}
	heads(t, p, rulesOf(a), l, r)
	if len(a.conflicts) != n {
		t.Errorf("asked about %d keys, want %d", len(a.conflicts), n)
	}
	for _, c := range a.conflicts {
		if !c.BaseUnknown || c.HasBase {
			t.Fatalf("key %s: base unknown %t, has base %t", c.Key, c.BaseUnknown, c.HasBase)
		}
	}
}

// Deep and wide criss-cross histories end in time, with the same result in any order of heads and
// no key lost.
func TestHostileHistories(t *testing.T) {
	for _, c := range []struct{ width, depth int }{{2, 200}, {6, 12}, {40, 2}} {
		p := newTestPage()
		row := make([]*commit.Commit, c.width)
		for i := range row {
			row[i] = p.commit(t, int64(i), edit{fmt.Sprint("own", i): "x", "k": fmt.Sprint(i)})
		}
		for d := range c.depth {
			next := make([]*commit.Commit, c.width)
			for i := range next {
				other := row[(i+1+d%(c.width-1))%c.width]
				next[i] = p.commit(t, 0, edit{"k": fmt.Sprint(d, i), fmt.Sprint("m", i): fmt.Sprint(d)}, row[i], other)
			}
			for i := range next {
				row[i] = p.commit(t, int64(1000*d+i), edit{fmt.Sprint("own", i): fmt.Sprint(d)}, next[i])
			}
		}
		left, right := row[0], row[1]
		p.resetCounts()
		a := heads(t, p, merge.Rules{}, left, right)[0]
		b := heads(t, p, merge.Rules{}, right, left)[0]
		if a.Commit.ID != b.Commit.ID || a.How != merge.ThreeWay {
			t.Errorf("width %d, depth %d: how %d, other order gives the same: %t", c.width, c.depth, a.How, a.Commit.ID == b.Commit.ID)
		}
		content := p.content(t, a.Commit.Root)
		if content["own0"] != fmt.Sprint(c.depth-1) || content["own1"] != fmt.Sprint(c.depth-1) {
			t.Errorf("width %d, depth %d: own edits are %q and %q", c.width, c.depth, content["own0"], content["own1"])
		}
		t.Logf("width %d, depth %d: %d commits, %d read, %d nodes read", c.width, c.depth, len(p.commits), p.commitReads, p.nodeReads)
	}
}
