package merge

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

// keyRange is the keys from lo on and below hi, with one rule; a nil hi is no bound.
type keyRange struct {
	lo, hi []byte
	rule   int // index into ruleSet.rules
}

// ruleSet is Rules as ranges of keys, which are disjoint, ascend and cover all keys.
type ruleSet struct {
	rules  []Rule
	ranges []keyRange
	// asksAll says that a rule has an owner, or asks about changes of one side, too.
	asksAll bool
	// asksEqual says that a decider asks about keys that both sides have changed to equal content.
	asksEqual bool
}

// newRuleSet verifies rules and cuts the keys into ranges.
func newRuleSet(rules Rules) (*ruleSet, error) {
	s := &ruleSet{}
	byPrefix := map[string]Rule{}
	for _, r := range rules.Rules {
		_, again := byPrefix[string(r.Prefix)]
		switch {
		case (r.Decider == nil) == (r.Owner == nil):
			return nil, fmt.Errorf("merge by rules: the rule for prefix %s needs a decider or an owner, one of them: %w", keyText(r.Prefix), base.ErrInvalid)
		case again:
			return nil, fmt.Errorf("merge by rules: two rules for prefix %s: %w", keyText(r.Prefix), base.ErrInvalid)
		case len(r.Prefix) > limits.MaxKeyBytes:
			return nil, fmt.Errorf("merge by rules: a prefix of %d bytes: %w", len(r.Prefix), base.ErrInvalid)
		}
		s.asksAll = s.asksAll || r.All || r.Owner != nil
		s.asksEqual = s.asksEqual || asksEqual(r.Decider)
		byPrefix[string(r.Prefix)] = r
	}
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		s.rules = append(s.rules, byPrefix[prefix])
	}
	if len(s.rules) == 0 || len(s.rules[0].Prefix) > 0 {
		s.rules = slices.Insert(s.rules, 0, Rule{Decider: LastOneWins()})
	}
	s.cut()
	return s, nil
}

// asksEqual reports whether d must be asked about keys that both sides have changed to equal
// content.
func asksEqual(d Decider) bool {
	b, _ := d.(ByValue)
	return b.Equal
}

// cut makes the ranges. Prefixes are nested or disjoint, and a prefix precedes those nested in it.
func (s *ruleSet) cut() {
	var open []int  // the rules whose prefixes begin the present key, the longest last
	var from []byte // lower keys have their ranges
	emit := func(to []byte) {
		if to == nil || bytes.Compare(from, to) < 0 {
			s.ranges = append(s.ranges, keyRange{from, to, open[len(open)-1]})
		}
		from = to
	}
	for i := range s.rules {
		prefix := s.rules[i].Prefix
		for len(open) > 0 && !bytes.HasPrefix(prefix, s.rules[open[len(open)-1]].Prefix) {
			emit(base.PrefixEnd(s.rules[open[len(open)-1]].Prefix))
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			emit(prefix)
		}
		open = append(open, i)
	}
	for len(open) > 0 {
		end := base.PrefixEnd(s.rules[open[len(open)-1]].Prefix)
		emit(end)
		if end == nil {
			return // nothing can follow
		}
		open = open[:len(open)-1]
	}
}

// find returns the number of the range of a key.
func (s *ruleSet) find(key []byte) int {
	i, found := slices.BinarySearchFunc(s.ranges, key, func(r keyRange, key []byte) int { return bytes.Compare(r.lo, key) })
	if !found {
		i--
	}
	return i
}

// owned reports whether the rule of a range is an owner.
func (s *ruleSet) owned(r *keyRange) bool { return s.rules[r.rule].Owner != nil }

// behind reports whether a key lies above the range.
func (r *keyRange) behind(key []byte) bool { return r.hi != nil && bytes.Compare(key, r.hi) >= 0 }

// keyText shows a key in an error: hexadecimal, at most 32 bytes.
func keyText(key []byte) string {
	const shown = 32
	text := fmt.Sprintf("%x", key[:min(len(key), shown)])
	return cmp.Or(text, `""`) + map[bool]string{true: "..."}[len(key) > shown]
}
