package merge

import "context"

// ValueRule makes one value of three. A nil slice stands for absence, also where the base is unknown or there is none. It returns the merged value,
// nil to remove the key, or ok false when it cannot decide about such values. It must follow from its arguments alone.
type ValueRule func(base, left, right []byte) (value []byte, ok bool)

// ByValue returns a decider that has conflicts decided by a rule on values, recorded under name, and leaves to fallback those about which the rule cannot
// decide and those with values above MaxRuleValueBytes. Since the rule follows from values alone, it is asked for virtual bases, too (I6).
func ByValue(name string, rule ValueRule, fallback Decider) Decider {
	return byValue{name, rule, fallback}
}

// MaxRuleValueBytes is the length of the longest value that a ValueRule is asked about.
const MaxRuleValueBytes = 1 << 20

type byValue struct {
	name     string
	rule     ValueRule
	fallback Decider
}

// Decide implements Decider.
func (b byValue) Decide(ctx context.Context, p *Pair, cs []Conflict) error { return errNotBuilt }

// Counter is a ValueRule for decimal integers of any sign and up to 1000 digits: the sum of what both sides have added. Absence is 0.
func Counter(base, left, right []byte) ([]byte, bool) { return nil, false }

// Maximum is a ValueRule that takes the greater decimal integer, or the bytewise greater value when one is no integer. Absence is least.
func Maximum(base, left, right []byte) ([]byte, bool) { return nil, false }

// SetUnion is a ValueRule for sets of lines: what both sides have, and what one has added; what one has removed is gone. The
// result is sorted, each line ends with a line feed.
func SetUnion(base, left, right []byte) ([]byte, bool) { return nil, false }
