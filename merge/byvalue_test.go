package merge_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// recording is a decider that takes the left side of everything and counts what it was asked.
type recording struct{ keys *[]string }

func (r recording) Decide(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		*r.keys = append(*r.keys, string(cs[i].Key))
		cs[i].Outcome, cs[i].Rule = merge.TakeLeft, "recording"
	}
	return nil
}

// join is a rule that joins the values of the sides; it cannot decide about "no", and "none" removes.
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
		{name: "undecided", base: "x", left: "no", right: "b", outcome: merge.TakeLeft, fallback: true},
		{name: "unknown base", base: absent, left: "a", right: "b", unknown: true, outcome: merge.TakeLeft, fallback: true},
		{name: "eager of lazy and eager", base: "x", left: lazy, right: long, leftPriority: object.Lazy,
			outcome: merge.TakeNew, value: long + lazy, priority: object.Eager},
		{name: "lazy of two lazy", base: "x", left: lazy, right: long, leftPriority: object.Lazy, rightPriory: object.Lazy,
			outcome: merge.TakeNew, value: long + lazy, priority: object.Lazy},
		{name: "eager one of equal values", base: "x", left: "win" + lazy, right: "win" + lazy, leftPriority: object.Lazy,
			outcome: merge.TakeRight},
		{name: "eager one of equal values, exchanged", base: "x", left: "win" + lazy, right: "win" + lazy, rightPriory: object.Lazy,
			outcome: merge.TakeLeft},
		{name: "long base", base: strings.Repeat("b", merge.MaxRuleValueBytes+1), left: "a", right: "b", outcome: merge.TakeLeft, fallback: true},
		{name: "longest", base: "x", left: strings.Repeat("b", merge.MaxRuleValueBytes), right: "win", outcome: merge.TakeRight},
		{name: "too long", base: "x", left: strings.Repeat("b", merge.MaxRuleValueBytes+1), right: "win", outcome: merge.TakeLeft, fallback: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := merge.Conflict{Key: []byte(test.name), BaseUnknown: test.unknown}
			c.Base, c.HasBase = entry(test.base, object.Eager)
			c.Left, c.HasLeft = entry(test.left, test.leftPriority)
			c.Right, c.HasRight = entry(test.right, test.rightPriory)
			var asked []string
			d := merge.ByValue("join", join, recording{&asked})
			cs := []merge.Conflict{c}
			if err := d.Decide(t.Context(), p.pair(t), cs); err != nil {
				t.Fatal(err)
			}
			c = cs[0]
			rule := "join"
			if test.fallback {
				rule = "recording"
			}
			if c.Outcome != test.outcome || c.Rule != rule || test.fallback != (len(asked) == 1) {
				t.Fatalf("outcome %d by %q, fallback asked about %q", c.Outcome, c.Rule, asked)
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

func TestByValueMixesRuleAndFallback(t *testing.T) {
	p := newTestPage()
	var cs []merge.Conflict
	for i, v := range []string{"a", "no", "b", "no", "c"} {
		c := merge.Conflict{Key: []byte{byte('a' + i)}, HasLeft: true, HasRight: true}
		c.Left, c.Right = p.entry(t, "", v, object.Eager), p.entry(t, "", "z", object.Eager)
		cs = append(cs, c)
	}
	var asked []string
	if err := merge.ByValue("join", join, recording{&asked}).Decide(t.Context(), p.pair(t), cs); err != nil {
		t.Fatal(err)
	}
	if strings.Join(asked, "") != "bd" {
		t.Errorf("fallback was asked about %q", asked)
	}
	for i, c := range cs {
		want := merge.TakeNew
		if i%2 == 1 {
			want = merge.TakeLeft
		}
		if c.Outcome != want || string(c.Key) != string(rune('a'+i)) {
			t.Errorf("key %s: outcome %d", c.Key, c.Outcome)
		}
	}
}

func TestByValueNoBaseIsAskedAboutUnknownBases(t *testing.T) {
	p := newTestPage()
	c := merge.Conflict{Key: []byte("k"), HasLeft: true, HasRight: true, BaseUnknown: true}
	c.Left, c.Right = p.entry(t, "", "7", object.Eager), p.entry(t, "", "10", object.Eager)
	cs := []merge.Conflict{c}
	if err := merge.ByValueNoBase("maximum", merge.Maximum, nil).Decide(t.Context(), p.pair(t), cs); err != nil {
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
	var asked []string
	err := merge.ByValue("join", join, recording{&asked}).Decide(t.Context(), p.pair(t), []merge.Conflict{c})
	if !errors.Is(err, base.ErrNeedsFetch) || len(asked) > 0 {
		t.Fatalf("error %v, fallback asked about %q", err, asked)
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
	err := merge.ByValue("cancel", rule, nil).Decide(ctx, pair, []merge.Conflict{c, c, c})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Fatalf("error %v after %d calls", err, n)
	}
}
