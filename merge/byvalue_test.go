package merge_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// byLastOne is the rule by which the last one wins where nobody has written a key.
const byLastOne = "last one wins, greater head"

// join is a rule that joins the values of the sides; it cannot decide about "no", and "none"
// removes.
func join(_, left, right []byte) ([]byte, bool) {
	l, r := string(left), string(right)
	switch {
	case l == "no" || r == "no":
		return nil, false
	case l == "none" || r == "none":
		return nil, true
	case l == "empty" || r == "empty":
		return []byte{}, true
	case strings.HasPrefix(l, "win"):
		return left, true
	case strings.HasPrefix(r, "win"):
		return right, true
	}
	return []byte(min(l, r) + max(l, r)), true
}

func TestByValue(t *testing.T) {
	p := newTestPage()
	long, lazy := strings.Repeat("l", 500), strings.Repeat("z", 500)
	entry := func(v string, priority object.Priority) (fb.Entry, bool) {
		if v == absent {
			return fb.Entry{}, false
		}
		return p.entry(t, "", v, priority), true
	}
	tests := []struct {
		name, base, left, right   string
		leftPriority, rightPriory object.Priority
		unknown                   bool
		outcome                   merge.Outcome
		value                     string
		priority                  object.Priority
		fallback                  bool
	}{
		{name: "new", base: "x", left: "a", right: "b", outcome: merge.TakeNew, value: "ab"},
		{name: "new of absence", base: "x", left: absent, right: "b", outcome: merge.TakeRight},
		{name: "left has it", base: "x", left: "win", right: "b", outcome: merge.TakeLeft},
		{name: "right has it", base: "x", left: "b", right: "win", outcome: merge.TakeRight},
		{name: "removed", base: "x", left: "none", right: "b", outcome: merge.TakeNone},
		{name: "removed as left has", base: "x", left: absent, right: "none", outcome: merge.TakeLeft},
		{name: "removed as right has", base: "x", left: "none", right: absent, outcome: merge.TakeRight},
		{name: "empty is not absent", base: "x", left: "empty", right: absent, outcome: merge.TakeNew, value: ""},
		{name: "undecided", base: "x", left: "no", right: "b", outcome: merge.TakeRight, fallback: true},
		{name: "unknown base", base: absent, left: "a", right: "b", unknown: true, outcome: merge.TakeRight, fallback: true},
		{name: "eager of lazy and eager", base: "x", left: lazy, right: long, leftPriority: object.Lazy,
			outcome: merge.TakeNew, value: long + lazy, priority: object.Eager},
		{name: "lazy of two lazy", base: "x", left: lazy, right: long, leftPriority: object.Lazy, rightPriory: object.Lazy,
			outcome: merge.TakeNew, value: long + lazy, priority: object.Lazy},
		{name: "eager one of equal values", base: "x", left: "win" + lazy, right: "win" + lazy, leftPriority: object.Lazy,
			outcome: merge.TakeRight},
		{name: "eager one of equal values, exchanged", base: "x", left: "win" + lazy, right: "win" + lazy, rightPriory: object.Lazy,
			outcome: merge.TakeLeft},
		{name: "long base", base: strings.Repeat("b", merge.MaxRuleValueBytes+1), left: "a", right: "b", outcome: merge.TakeRight, fallback: true},
		{name: "longest", base: "x", left: strings.Repeat("b", merge.MaxRuleValueBytes), right: "win", outcome: merge.TakeRight},
		{name: "too long", base: "x", left: strings.Repeat("b", merge.MaxRuleValueBytes+1), right: "win", outcome: merge.TakeRight, fallback: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := merge.Conflict{Key: []byte(test.name), BaseUnknown: test.unknown}
			c.Base, c.HasBase = entry(test.base, object.Eager)
			c.Left, c.HasLeft = entry(test.left, test.leftPriority)
			c.Right, c.HasRight = entry(test.right, test.rightPriory)
			d := merge.ByValue{Name: "join", Rule: join}
			cs := []merge.Conflict{c}
			if err := d.Decide(t.Context(), p.pair(t), cs); err != nil {
				t.Fatal(err)
			}
			c = cs[0]
			rule := "join"
			if test.fallback {
				rule = byLastOne
			}
			if c.Outcome != test.outcome || c.Rule != rule {
				t.Fatalf("outcome %d by %q", c.Outcome, c.Rule)
			}
			if c.Outcome == merge.TakeNew && (p.value(t, &c.New) != test.value || c.New.Priority != test.priority) {
				t.Errorf("value %.10q %s", p.value(t, &c.New), c.New.Priority)
			}
		})
	}
}

// pair returns some pair of commits of the page.
func (p *testPage) pair(t tester) *merge.Pair {
	t.Helper()
	a, b := p.commit(t, 1, edit{"a": "1"}), p.commit(t, 2, edit{"a": "2"})
	return merge.NewPair(p.env(), a, b, commit.First())
}

// Keys that are no conflict, which Rule.All brings, are not for the last one to win when the
// rule cannot decide.
func TestByValueWithoutConflict(t *testing.T) {
	p := newTestPage()
	no, x := p.entry(t, "", "no", object.Eager), p.entry(t, "", "x", object.Eager)
	cs := []merge.Conflict{
		{Key: []byte("left changed"), Base: x, Left: no, Right: x, HasBase: true, HasLeft: true, HasRight: true},
		{Key: []byte("right changed"), Base: x, Left: x, Right: no, HasBase: true, HasLeft: true, HasRight: true},
		{Key: []byte("same"), Left: no, Right: no, HasLeft: true, HasRight: true, BaseUnknown: true},
	}
	if err := (merge.ByValue{Name: "join", Rule: join}).Decide(t.Context(), p.pair(t), cs); err != nil {
		t.Fatal(err)
	}
	for i, want := range []merge.Outcome{merge.TakeLeft, merge.TakeRight, merge.TakeLeft} {
		if cs[i].Outcome != want || cs[i].Rule != "join" {
			t.Errorf("%s: outcome %d by %q", cs[i].Key, cs[i].Outcome, cs[i].Rule)
		}
	}
}

func TestByValueMixesRuleAndLastOneWins(t *testing.T) {
	p := newTestPage()
	var cs []merge.Conflict
	for i, v := range []string{"a", "no", "b", "no", "c"} {
		c := merge.Conflict{Key: []byte{byte('a' + i)}, HasLeft: true, HasRight: true}
		c.Left, c.Right = p.entry(t, "", v, object.Eager), p.entry(t, "", "z", object.Eager)
		cs = append(cs, c)
	}
	if err := (merge.ByValue{Name: "join", Rule: join}).Decide(t.Context(), p.pair(t), cs); err != nil {
		t.Fatal(err)
	}
	for i, c := range cs {
		want, rule := merge.TakeNew, "join"
		if i%2 == 1 {
			want, rule = merge.TakeRight, byLastOne
		}
		if c.Outcome != want || c.Rule != rule || string(c.Key) != string(rune('a'+i)) {
			t.Errorf("key %s: outcome %d", c.Key, c.Outcome)
		}
	}
}

func TestByValueNoBaseIsAskedAboutUnknownBases(t *testing.T) {
	p := newTestPage()
	c := merge.Conflict{Key: []byte("k"), HasLeft: true, HasRight: true, BaseUnknown: true}
	c.Left, c.Right = p.entry(t, "", "7", object.Eager), p.entry(t, "", "10", object.Eager)
	cs := []merge.Conflict{c}
	if err := (merge.ByValue{Name: "maximum", Rule: merge.Maximum, NoBase: true}).Decide(t.Context(), p.pair(t), cs); err != nil {
		t.Fatal(err)
	}
	if cs[0].Outcome != merge.TakeRight || cs[0].Rule != "maximum" {
		t.Errorf("outcome %d by %q", cs[0].Outcome, cs[0].Rule)
	}
}

// A value that is in the cloud alone does not change what is decided: the merge must wait for it.
func TestByValueNeedsItsValues(t *testing.T) {
	p := newTestPage()
	c := merge.Conflict{Key: []byte("k"), HasLeft: true, HasRight: true}
	c.Left, c.Right = p.entry(t, "", strings.Repeat("7", 400), object.Lazy), p.entry(t, "", "10", object.Eager)
	p.missing[c.Left.Digest] = true
	err := merge.ByValue{Name: "join", Rule: join}.Decide(t.Context(), p.pair(t), []merge.Conflict{c})
	if !errors.Is(err, base.ErrNeedsFetch) {
		t.Fatalf("error %v", err)
	}
}

// A value that was lost with the bucket is asked of nobody for ever: the last one wins, or a
// rule decides that can do without the base.
func TestByValueWithoutLostValues(t *testing.T) {
	p := newTestPage()
	lost := p.entry(t, "", strings.Repeat("5", 400), object.Eager)
	p.lost[lost.Digest] = true
	a, b := p.entry(t, "", "7", object.Eager), p.entry(t, "", "10", object.Eager)
	for _, test := range []struct {
		name              string
		base, left, right fb.Entry
		rule              merge.ByValue
		by                string
	}{
		{"base", lost, a, b, merge.ByValue{Name: "join", Rule: join}, byLastOne},
		{"side", a, lost, b, merge.ByValue{Name: "join", Rule: join}, byLastOne},
		{"base, by the sides alone", lost, a, b, merge.ByValue{Name: "maximum", Rule: merge.Maximum, NoBase: true}, "maximum"},
		{"one side changed", lost, lost, b, merge.ByValue{Name: "join", Rule: join}, "join"},
	} {
		cs := []merge.Conflict{{Key: []byte("k"), Base: test.base, Left: test.left, Right: test.right, HasBase: true, HasLeft: true, HasRight: true}}
		if err := test.rule.Decide(t.Context(), p.pair(t), cs); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if cs[0].Outcome != merge.TakeRight || cs[0].Rule != test.by {
			t.Errorf("%s: outcome %d by %q", test.name, cs[0].Outcome, cs[0].Rule)
		}
	}
}

func TestByValueStopsWithItsContext(t *testing.T) {
	p := newTestPage()
	pair := p.pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	rule := func(_, left, _ []byte) ([]byte, bool) {
		n++
		cancel()
		return left, true
	}
	c := merge.Conflict{Key: []byte("k"), HasLeft: true}
	c.Left = p.entry(t, "", "1", object.Eager)
	err := merge.ByValue{Name: "cancel", Rule: rule}.Decide(ctx, pair, []merge.Conflict{c, c, c})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Fatalf("error %v after %d calls", err, n)
	}
}

// An entry may have an empty value as a nil slice; the rule must not take it for absence.
func TestByValueTellsEmptyFromAbsent(t *testing.T) {
	p := newTestPage()
	c := merge.Conflict{Key: []byte("k"), HasLeft: true, Left: fb.Entry{Inline: true}}
	var left, right []byte
	rule := func(_, l, r []byte) ([]byte, bool) {
		left, right = l, r
		return l, true
	}
	if err := (merge.ByValue{Name: "look", Rule: rule}).Decide(t.Context(), p.pair(t), []merge.Conflict{c}); err != nil {
		t.Fatal(err)
	}
	if left == nil || right != nil {
		t.Errorf("rule got %v and %v", left, right)
	}
}

// drawCounters draws a history, most of it criss-cross, in which every commit that is no merge adds
// to a counter what add gives. It returns what each has added.
func drawCounters(t *rapid.T, rules merge.Rules, add func(i int) int64) (*history, map[commit.ID]int64) {
	h := &history{page: newTestPage(), commits: []*commit.Commit{commit.First()}, content: map[commit.ID]map[string]string{}}
	h.content[commit.First().ID] = map[string]string{}
	added := map[commit.ID]int64{}
	increment := func(i int, c *commit.Commit) {
		n, _ := strconv.ParseInt(h.content[c.ID]["n"], 10, 64)
		c = h.page.commit(t, int64(i), edit{"n": strconv.FormatInt(n+add(i), 10)}, c)
		if _, again := h.content[c.ID]; !again {
			added[c.ID] = add(i)
			h.add(c, h.page.content(t, c.Root))
		}
	}
	for i := range rapid.IntRange(3, 20).Draw(t, "commits") {
		pick := func(label string) *commit.Commit {
			return h.commits[len(h.commits)-rapid.IntRange(1, min(len(h.commits), 6)).Draw(t, label)]
		}
		a, b := pick("parent"), pick("other parent")
		if a.ID == b.ID || h.related(a, b) || rapid.IntRange(0, 2).Draw(t, "merge") == 0 {
			increment(i+1, a)
		} else {
			m := h.page.merge(t, rules, a, b)
			h.add(m, h.page.content(t, m.Root))
		}
	}
	return h, added
}

// Whatever the history, a counter is the sum of all that was added below, each once.
func TestCounterInCrissCross(t *testing.T) {
	rules := merge.Rules{Rules: []merge.Rule{{Decider: merge.ByValue{Name: "counter", Rule: merge.Counter, Equal: true}}}}
	for name, add := range map[string]func(i int) int64{
		"different sums": func(i int) int64 { return 1 << i },
		"equal sums":     func(i int) int64 { return int64(1 + i%2) },
	} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkCounters(t, rules, add) }) })
	}
}

// checkCounters compares the counters of a random history with what was added.
func checkCounters(t *rapid.T, rules merge.Rules, add func(i int) int64) {
	h, added := drawCounters(t, rules, add)
	for _, c := range h.commits {
		sum := int64(0)
		for id := range h.ancestors(c) {
			sum += added[id]
		}
		if got := h.content[c.ID]["n"]; sum != 0 && got != strconv.FormatInt(sum, 10) {
			t.Fatalf("commit %s counts %s, want %d", c.ID.Short(), got, sum)
		}
	}
}
