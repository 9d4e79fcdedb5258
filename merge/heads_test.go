package merge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// heads merges without storing the result.
func heads(t tester, p *testPage, rules merge.Rules, hs ...*commit.Commit) []merge.Merged {
	t.Helper()
	merged, err := merge.Heads(t.Context(), p.env(), rules, hs)
	if err != nil {
		t.Fatalf("merge heads: %v", err)
	}
	return merged
}

func wantContent(t tester, p *testPage, c *commit.Commit, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, p.content(t, c.Root)); diff != "" {
		t.Fatalf("content of the merge: -want +got:\n%s", diff)
	}
}

func TestHeadsOfOne(t *testing.T) {
	p := newTestPage()
	c := p.commit(t, 1, edit{"a": "1"})
	if merged := heads(t, p, merge.Rules{}, c); len(merged) != 0 {
		t.Fatalf("%d merges of one head", len(merged))
	}
}

func TestHeadsRefuses(t *testing.T) {
	p := newTestPage()
	a := p.commit(t, 1, edit{"a": "1"})
	b := p.commit(t, 2, edit{"a": "2"}, a)
	for name, hs := range map[string][]*commit.Commit{
		"none":     nil,
		"nil":      {a, nil},
		"twice":    {a, a},
		"ancestor": {a, b},
	} {
		if _, err := merge.Heads(t.Context(), p.env(), merge.Rules{}, hs); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestHowOfMerges(t *testing.T) {
	p := newTestPage()
	b := p.commit(t, 1, edit{"k": "base"})
	l, r := p.commit(t, 2, edit{"k": "left"}, b), p.commit(t, 3, edit{"k": "right"}, b)
	same := p.commit(t, 4, edit{"k": "left"}, b)
	m1 := p.commit(t, 0, edit{"k": "m1"}, l, r)
	m2 := p.commit(t, 0, edit{"k": "m2", "x": "m2"}, l, r)
	own := p.commit(t, 9, edit{"own": "1"}, m1)
	for _, c := range []struct {
		name string
		a, b *commit.Commit
		how  merge.How
		root *commit.Commit
	}{
		{"equal content", l, same, merge.Equal, l},
		{"two merges", m1, m2, merge.Rest, map[bool]*commit.Commit{true: m1, false: m2}[commit.Compare(m1, m2) > 0]},
		{"a merge and an own commit", own, m2, merge.Subset, own},
	} {
		for _, hs := range [][]*commit.Commit{{c.a, c.b}, {c.b, c.a}} {
			m := heads(t, p, merge.Rules{Rules: []merge.Rule{{Decider: mustNotAsk{}}}}, hs...)
			if len(m) != 1 || m[0].How != c.how || m[0].Commit.Root != c.root.Root {
				t.Errorf("%s: how %d, root %s, want %d, %s", c.name, m[0].How, m[0].Commit.Root, c.how, c.root.Root)
			}
		}
	}
}

// TestDeletions is the matrix of defect 14: what each side does to each of three keys, the middle
// one being one of many.
func TestDeletions(t *testing.T) {
	const filler = 60
	states := []string{gone, "a", "b"} // absent or one of two values
	others := edit{}
	for i := range filler {
		others[fmt.Sprintf("k%02d", i)] = "same"
	}
	for _, key := range []string{"a-first", "k30-middle", "z-last"} {
		for _, before := range states {
			for _, left := range states {
				for _, right := range states {
					name := fmt.Sprintf("%s %q %q %q", key, before, left, right)
					p := newTestPage()
					ed := maps.Clone(others)
					ed[key] = before
					b := p.commit(t, 1, ed)
					// Both sides have an own commit in any case, and the tree of neither is the
					// base's.
					l := p.commit(t, 2, edit{key: left, "k00": "left"}, b)
					r := p.commit(t, 3, edit{key: right, "k59": "right"}, b)
					want := map[string]string{}
					for k := range others {
						want[k] = "same"
					}
					want["k00"], want["k59"] = "left", "right"
					conflict := left != right && left != before && right != before
					result := right // the later commit
					if right == before {
						result = left
					}
					if result != gone {
						want[key] = result
					}
					m := heads(t, p, merge.Rules{}, l, r)[0]
					if diff := cmp.Diff(want, p.content(t, m.Commit.Root)); diff != "" {
						t.Errorf("%s: -want +got:\n%s", name, diff)
					}
					if m.Conflicts != map[bool]int{true: 1}[conflict] {
						t.Errorf("%s: %d conflicts, want conflict %t", name, m.Conflicts, conflict)
					}
				}
			}
		}
	}
}

// mustNotAsk is a decider that nobody may ask.
type mustNotAsk struct{}

func (mustNotAsk) Decide(context.Context, *merge.Pair, []merge.Conflict) error {
	return errors.New("the decider was asked")
}
