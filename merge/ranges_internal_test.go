package merge

import (
	"bytes"
	"context"
	"testing"

	"pgregory.net/rapid"
)

type nobody struct{}

func (nobody) Decide(context.Context, *Pair, []Conflict) error { return nil }

// The ranges are disjoint, ascend, cover all keys, and give each key the rule with its longest
// prefix.
func TestRanges(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		prefixes := rapid.SliceOfNDistinct(key, 0, 8, func(b []byte) string { return string(b) }).Draw(t, "prefixes")
		var rules Rules
		for _, p := range prefixes {
			rules.Rules = append(rules.Rules, Rule{Prefix: p, Decider: nobody{}})
		}
		s, err := newRuleSet(rules)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.ranges {
			r := &s.ranges[i]
			switch {
			case i == 0 && len(r.lo) > 0:
				t.Fatalf("the first range begins at %x", r.lo)
			case i > 0 && !bytes.Equal(r.lo, s.ranges[i-1].hi):
				t.Fatalf("range %d begins at %x, the one before ends at %x", i, r.lo, s.ranges[i-1].hi)
			case (r.hi == nil) != (i == len(s.ranges)-1):
				t.Fatalf("range %d ends at %x", i, r.hi)
			case r.hi != nil && bytes.Compare(r.lo, r.hi) >= 0:
				t.Fatalf("range %d is empty", i)
			}
		}
		for range 30 {
			k := key.Draw(t, "key")
			longest := -1
			for _, p := range prefixes {
				if bytes.HasPrefix(k, p) {
					longest = max(longest, len(p))
				}
			}
			r := s.rules[s.ranges[s.find(k)].rule]
			if _, custom := r.Decider.(nobody); custom != (longest >= 0) || custom && len(r.Prefix) != longest {
				t.Fatalf("key %x has the rule for %x", k, r.Prefix)
			}
		}
	})
}
