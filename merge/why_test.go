package merge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// why returns the steps of a key as text: names of commits come from names.
func (p *testPage) why(t tester, head *commit.Commit, key string, names map[commit.ID]string) []string {
	t.Helper()
	outcomes := [...]string{"wrote", "left", "right", "new", "none"}
	name := func(c *commit.Commit) string {
		if c == nil {
			return "nobody"
		}
		if n, ok := names[c.ID]; ok {
			return n
		}
		return c.ID.Short()
	}
	var steps []string
	for s, err := range merge.Why(t.Context(), p.view(), head, []byte(key)) {
		if err != nil {
			t.Fatalf("why: %v", err)
		}
		v := "nothing"
		if s.Has {
			v = p.value(t, &s.Entry)
		}
		text := fmt.Sprintf("%s %s %s", name(s.Commit), outcomes[s.Outcome], v)
		if s.Rule != "" {
			text += " by " + s.Rule
		}
		for _, l := range s.Lost {
			v := "nothing"
			if l.Has {
				v = p.value(t, &l.Entry)
			}
			text += fmt.Sprintf("; %s of %s lost in %s", v, name(l.Writer), name(l.Parent))
		}
		steps = append(steps, text)
	}
	return steps
}

func TestWhy(t *testing.T) {
	type set map[string]*commit.Commit
	tests := map[string]struct {
		history func(t *testing.T, p *testPage, c set) // sets "head" and what is named
		want    []string
	}{
		"never had a value": {func(t *testing.T, p *testPage, c set) {
			c["head"] = p.commit(t, 1, edit{"other": "x"})
		}, nil},
		"written once": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["head"] = p.commit(t, 2, edit{"other": "x"}, c["red"])
		}, []string{"red wrote red"}},
		"written again": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			x := p.commit(t, 2, edit{"other": "x"}, c["red"])
			c["head"] = p.commit(t, 3, edit{"color": "green"}, x)
		}, []string{"head wrote green; red of red lost in " + "x"}},
		"deleted": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red", "other": "x"})
			c["gone"] = p.commit(t, 2, edit{"color": gone}, c["red"])
			c["head"] = p.commit(t, 3, edit{"other": "y"}, c["gone"])
		}, []string{"gone wrote nothing; red of red lost in red"}},
		"merged": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["blue"] = p.commit(t, 2, edit{"color": "blue"}, c["red"])
			c["green"] = p.commit(t, 3, edit{"color": "green"}, c["red"])
			c["head"] = p.merge(t, merge.Rules{}, c["blue"], c["green"])
		}, []string{"head right green by last one wins; blue of blue lost in blue", "green wrote green; red of red lost in red"}},
		"merged with a deletion": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["blue"] = p.commit(t, 9, edit{"color": "blue"}, c["red"])
			c["gone"] = p.commit(t, 3, edit{"color": gone}, c["red"])
			c["head"] = p.merge(t, merge.Rules{}, c["blue"], c["gone"])
		}, []string{"head right blue by last one wins; nothing of gone lost in gone", "blue wrote blue; red of red lost in red"}},
		"one side changed": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["blue"] = p.commit(t, 2, edit{"color": "blue"}, c["red"])
			other := p.commit(t, 3, edit{"other": "x"}, c["red"])
			c["head"] = p.merge(t, merge.Rules{}, c["blue"], other)
		}, []string{"head left blue", "blue wrote blue; red of red lost in red"}},
		"neither side changed": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["head"] = p.merge(t, merge.Rules{}, p.commit(t, 2, edit{"a": "x"}, c["red"]), p.commit(t, 3, edit{"b": "x"}, c["red"]))
		}, []string{"red wrote red"}},
		"both wrote the same": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["first"] = p.commit(t, 2, edit{"color": "blue"}, c["red"])
			c["second"] = p.commit(t, 3, edit{"color": "blue", "b": "x"}, c["red"])
			c["head"] = p.merge(t, merge.Rules{}, c["first"], c["second"])
		}, []string{"second wrote blue; red of red lost in red"}},
		"made by a rule": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "1"})
			c["left"] = p.commit(t, 2, edit{"color": "2"}, c["red"])
			c["right"] = p.commit(t, 3, edit{"color": "4"}, c["red"])
			rules := merge.Rules{Rules: []merge.Rule{{Decider: merge.ByValue{Name: "counter", Rule: merge.Counter}}}}
			c["merge"] = p.merge(t, rules, c["left"], c["right"])
			c["head"] = p.commit(t, 9, edit{"other": "x"}, c["merge"])
		}, []string{"merge new 5 by counter; 2 of left lost in left; 4 of right lost in right"}},
		"lost writer is the one that counted": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["old"] = p.commit(t, 2, edit{"color": "blue"}, c["red"])
			c["new"] = p.commit(t, 5, edit{"color": "blue", "y": "y"}, c["red"])
			c["side"] = p.merge(t, merge.Rules{}, p.commit(t, 9, edit{"x": "x"}, c["old"]), c["new"])
			c["green"] = p.commit(t, 7, edit{"color": "green"}, c["red"])
			c["head"] = p.merge(t, merge.Rules{}, c["side"], c["green"])
		}, []string{"head left green by last one wins; blue of new lost in side", "green wrote green; red of red lost in red"}},
		// A merge that takes one side whole has no explanation.
		"dropped without an explanation": {func(t *testing.T, p *testPage, c set) {
			c["red"] = p.commit(t, 1, edit{"color": "red"})
			c["blue"] = p.commit(t, 2, edit{"color": "blue"}, c["red"])
			c["green"] = p.commit(t, 3, edit{"color": "green"}, c["red"])
			c["m1"] = p.commit(t, 0, edit{"color": "blue"}, c["green"], c["blue"])
			c["m2"] = p.commit(t, 0, edit{"color": "green", "x": "y"}, c["green"], c["blue"])
			c["head"] = p.merge(t, merge.Rules{}, c["m1"], c["m2"])
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, c := newTestPage(), set{}
			test.history(t, p, c)
			names := map[commit.ID]string{}
			for n, c := range c {
				names[c.ID] = n
			}
			want := test.want
			switch name {
			case "written again":
				want = []string{"head wrote green; red of red lost in " + c["head"].Parents[0].Short()}
			case "dropped without an explanation":
				winner, loser, side := "m1", "m2", "right"
				if commit.Compare(c["m1"], c["m2"]) < 0 {
					winner, loser = loser, winner
				}
				won, lost := map[string]string{"m1": "blue", "m2": "green"}[winner], map[string]string{"m1": "blue", "m2": "green"}[loser]
				if len(p.explained) > 0 {
					t.Fatal("the merge has an explanation")
				}
				want = []string{fmt.Sprintf("head %s %s; %s of %s lost in %s", side, won, lost, lost, loser)}
				in := map[string]string{"blue": "left", "green": "right"}
				other := map[string]string{"blue": "green", "green": "blue"}[won]
				want = append(want, fmt.Sprintf("%s %s %s; %s of %s lost in %s", winner, in[won], won, other, other, other),
					fmt.Sprintf("%s wrote %s; red of red lost in red", won, won))
			}
			if got := p.why(t, c["head"], "color", names); !slices.Equal(got, want) {
				t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// drawMerged draws a history like drawHistory in which most merges are made by merge.Heads.
func drawMerged(t *rapid.T, n int) *history {
	h := &history{page: newTestPage(), commits: []*commit.Commit{commit.First()}, content: map[commit.ID]map[string]string{}}
	h.content[commit.First().ID] = map[string]string{}
	clock := int64(100)
	for i := range rapid.IntRange(2, n).Draw(t, "commits") {
		pick := func(label string) *commit.Commit {
			return h.commits[len(h.commits)-rapid.IntRange(1, min(len(h.commits), 5)).Draw(t, label)]
		}
		a, b := pick("parent"), pick("other parent")
		at := drawClock(t, &clock)
		switch {
		case a.ID == b.ID || h.related(a, b) || rapid.IntRange(0, 2).Draw(t, "merge") == 0:
			h.edit(t, at, fmt.Sprint(i), a)
		case rapid.IntRange(0, 3).Draw(t, "at will") == 0:
			h.mergeAtWill(t, i, a, b)
		default:
			m := h.page.merge(t, merge.Rules{}, a, b)
			h.add(m, h.page.content(t, m.Root))
		}
	}
	return h
}

// decision returns what the explanation of a merge says about a key.
func (h *history) decision(t *rapid.T, m *commit.Commit, key string) (merge.Decision, bool) {
	for d, err := range merge.Decisions(t.Context(), h.page.view(), h.page.explained[m.ID], []byte(key)) {
		if err != nil {
			t.Fatal(err)
		}
		if string(d.Key) == key {
			return d, true
		}
	}
	return merge.Decision{}, false
}

// parents returns the parents of a commit, the lesser first.
func (h *history) parents(c *commit.Commit) []*commit.Commit {
	var ps []*commit.Commit
	for _, id := range c.Parents {
		ps = append(ps, h.get(id))
	}
	slices.SortFunc(ps, commit.Compare)
	return ps
}

// from returns the parent from which a commit has its value of a key, nil if from none.
func (h *history) from(c *commit.Commit, key string) *commit.Commit {
	var from *commit.Commit
	for _, p := range h.parents(c) {
		if value(h.content[p.ID], key) == value(h.content[c.ID], key) {
			from = p
		}
	}
	return from
}

// wrote returns who wrote what a commit has under a key: the commit with the given id, or the one
// that the values lead to.
func (h *history) wrote(c *commit.Commit, key string, known commit.ID) commit.ID {
	if !known.IsZero() {
		return known
	}
	for ; !c.IsFirst(); c = h.from(c, key) {
		if h.from(c, key) == nil {
			return c.ID
		}
	}
	return commit.ID{}
}

type modelStep struct {
	commit       commit.ID
	value        string
	outcome      merge.Outcome
	rule         string
	lost, writer []commit.ID
}

// why says what Why must say, from whole contents and sets of ancestors.
func (h *history) why(t *rapid.T, c *commit.Commit, key string) (steps []modelStep) {
	for ; c != nil && !c.IsFirst(); c = h.from(c, key) {
		parents, from := h.parents(c), h.from(c, key)
		v := func(c *commit.Commit) string { return value(h.content[c.ID], key) }
		if from != nil && !slices.ContainsFunc(parents, func(p *commit.Commit) bool { return v(p) != v(c) }) {
			continue
		}
		s := modelStep{commit: c.ID, value: v(c)}
		if len(parents) == 1 {
			if v(parents[0]) != gone {
				s.lost, s.writer = []commit.ID{parents[0].ID}, []commit.ID{h.wrote(parents[0], key, commit.ID{})}
			}
			steps = append(steps, s)
			continue
		}
		d, explained := h.decision(t, c, key)
		s.rule = d.Rule
		switch {
		case from == parents[0]:
			s.outcome = merge.TakeLeft
		case from == parents[1]:
			s.outcome = merge.TakeRight
		case s.value == gone:
			s.outcome = merge.TakeNone
		default:
			s.outcome = merge.TakeNew
		}
		for i, p := range parents {
			changed := slices.ContainsFunc(h.bases(h.version(parents[0]), h.version(parents[1])), func(b *commit.Commit) bool { return v(b) != v(p) })
			if p != from && (explained || changed || from == nil) {
				s.lost = append(s.lost, p.ID)
				s.writer = append(s.writer, h.wrote(p, key, []commit.ID{d.LeftWriter, d.RightWriter}[i]))
			}
		}
		steps = append(steps, s)
	}
	return steps
}

func TestWhyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawMerged(t, 25)
		head := h.commits[len(h.commits)-1]
		for _, key := range []string{"a", "b", "c", "never"} {
			want := h.why(t, head, key)
			n := 0
			for s, err := range merge.Why(t.Context(), h.page.view(), head, []byte(key)) {
				if err != nil {
					t.Fatal(err)
				}
				got := modelStep{commit: s.Commit.ID, value: gone, outcome: s.Outcome, rule: s.Rule}
				if s.Has {
					got.value = h.page.value(t, &s.Entry)
				}
				for _, l := range s.Lost {
					got.lost, got.writer = append(got.lost, l.Parent.ID), append(got.writer, id(l.Writer))
					if has := value(h.content[l.Parent.ID], key); l.Has != (has != gone) || l.Has && h.page.value(t, &l.Entry) != has {
						t.Fatalf("key %q: lost %q, want %q", key, l.Entry.Value, has)
					}
				}
				if n == len(want) || fmt.Sprint(got) != fmt.Sprint(want[n]) {
					t.Fatalf("key %q: step %d is\n%v\nwant\n%v", key, n, got, want[n:min(n+1, len(want))])
				}
				n++
			}
			if n != len(want) {
				t.Fatalf("key %q: %d steps, want %d", key, n, len(want))
			}
		}
	})
}

func TestWhyErrors(t *testing.T) {
	p := newTestPage()
	red := p.commit(t, 1, edit{"color": "red"})
	head := p.commit(t, 2, edit{"x": "y"}, red)
	last := func(ctx context.Context) (n int, err error) {
		for _, err = range merge.Why(ctx, p.view(), head, []byte("color")) {
			n++
		}
		return n, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := last(ctx); n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d steps, error %v, want one with Canceled", n, err)
	}
	delete(p.commits, red.ID)
	if n, err := last(t.Context()); n != 1 || !errors.Is(err, base.ErrNotFound) {
		t.Errorf("%d steps, error %v, want one with ErrNotFound", n, err)
	}
}
