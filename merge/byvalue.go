package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// ValueRule makes one value of three. A nil slice stands for absence, also where there is no base.
// It returns the merged value, nil to remove the key, or ok false when it cannot decide about such
// values. The result must depend on the arguments alone, and the rule may neither change nor keep
// them. A good rule treats both sides alike, and returns one side's value when the other has the
// base's value.
type ValueRule func(base, left, right []byte) (value []byte, ok bool)

// ByValue returns a decider that applies a rule on values to conflicts, recorded under name.
// fallback (nil: LastOneWins) decides the conflicts that the rule cannot decide, those with values
// above MaxRuleValueBytes, those with an unknown base, and those with a value that was lost with
// the bucket (base.ErrGone): no device may have it any more, and merging must still end. Since the
// rule follows from values alone, it is also asked for virtual bases (I6), so that a base stays
// unknown only where the rule could not decide. Keys that are no conflict, with Rule.All, never go
// to fallback.
//
// A merged value that a side has is taken from that side, with its priority; of two such sides,
// from the eager one. A new value is lazy if every side that has the key has it lazy, else eager. A
// value that the device does not hold is an error, which matches base.ErrNeedsFetch: the decision
// must not depend on the device (I1).
func ByValue(name string, rule ValueRule, fallback Decider) Decider {
	return newByValue(byValue{name: name, rule: rule, fallback: fallback})
}

// ByValueNoBase is ByValue for a rule that can decide without the base, such as Maximum: it is also
// asked where the base is unknown, with a nil base.
func ByValueNoBase(name string, rule ValueRule, fallback Decider) Decider {
	return newByValue(byValue{name: name, rule: rule, fallback: fallback, noBase: true})
}

// ByValueEqual is ByValue for a rule like Counter, which must also be asked, in virtual bases too,
// about keys that both sides have changed to equal content: two sides that have each counted 1 are
// equal, and stand for 2.
func ByValueEqual(name string, rule ValueRule, fallback Decider) Decider {
	return newByValue(byValue{name: name, rule: rule, fallback: fallback, equal: true})
}

// MaxRuleValueBytes is the length of the longest value passed to a ValueRule.
const MaxRuleValueBytes = 1 << 20

type byValue struct {
	name     string
	rule     ValueRule
	fallback Decider
	noBase   bool
	equal    bool
}

func newByValue(b byValue) Decider {
	if b.fallback == nil {
		b.fallback = LastOneWins()
	}
	return b
}

// Decide implements Decider.
func (b byValue) Decide(ctx context.Context, p *Pair, cs []Conflict) error {
	left, err := b.decideAll(ctx, p, cs)
	if err != nil {
		return err
	}
	return handOver(ctx, p, cs, left, b.fallback.Decide)
}

// decideBases implements baseDecider.
func (b byValue) decideBases(ctx context.Context, p *Pair, cs []Conflict) error {
	left, err := b.decideAll(ctx, p, cs)
	if err != nil {
		return err
	}
	if next, ok := b.fallback.(byValue); ok {
		return handOver(ctx, p, cs, left, next.decideBases)
	}
	return nil
}

// asksEqual implements baseDecider.
func (b byValue) asksEqual() bool { return b.equal }

// handOver passes the conflicts with the given indexes to decide.
func handOver(ctx context.Context, p *Pair, cs []Conflict, at []int, decide func(context.Context, *Pair, []Conflict) error) error {
	if len(at) == 0 {
		return nil
	}
	rest := make([]Conflict, len(at))
	for i, j := range at {
		rest[i] = cs[j]
	}
	if err := decide(ctx, p, rest); err != nil {
		return err
	}
	for i, j := range at {
		cs[j] = rest[i]
	}
	return nil
}

// decideAll applies the rule, and returns the indexes of the conflicts that it could not decide.
func (b byValue) decideAll(ctx context.Context, p *Pair, cs []Conflict) ([]int, error) {
	var left []int
	for i := range cs {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("decide by %s: %w", b.name, err)
		}
		decided, err := b.decide(ctx, p, &cs[i])
		if err != nil {
			return nil, fmt.Errorf("decide by %s: %w", b.name, err)
		}
		if !decided {
			left = append(left, i)
		}
	}
	return left, nil
}

// decide reports whether c is decided: by the rule, or because it is no conflict.
func (b byValue) decide(ctx context.Context, p *Pair, c *Conflict) (bool, error) {
	decided, err := b.ask(ctx, p, c)
	if err != nil || decided {
		return decided, err
	}
	if c.Outcome = c.withoutRule(); c.Outcome == Undecided {
		return false, nil
	}
	c.Rule = b.name
	return true, nil
}

// ask reports whether the rule has decided about c.
func (b byValue) ask(ctx context.Context, p *Pair, c *Conflict) (bool, error) {
	if c.BaseUnknown && !b.noBase {
		return false, nil
	}
	var values [3][]byte
	for i, s := range c.sides() {
		if !s.has {
			continue
		}
		if s.entry.Size > MaxRuleValueBytes {
			return false, nil
		}
		v, err := p.Value(ctx, s.entry, MaxRuleValueBytes)
		switch {
		case errors.Is(err, base.ErrGone) && i == 0 && b.noBase:
			continue
		case errors.Is(err, base.ErrGone):
			return false, nil
		case err != nil:
			return false, err
		}
		if values[i] = v; v == nil {
			values[i] = []byte{} // nil is absence
		}
	}
	merged, ok := b.rule(values[0], values[1], values[2])
	if !ok {
		return false, nil
	}
	c.Rule = b.name
	return true, c.take(ctx, p, merged, values[1], values[2])
}

// take sets the outcome that gives the key the merged value; left and right are the values of the
// sides.
func (c *Conflict) take(ctx context.Context, p *Pair, merged, left, right []byte) error {
	isLeft, isRight := sameValue(merged, left), sameValue(merged, right)
	switch {
	case isLeft && isRight && c.Left.Priority == object.Lazy && c.Right.Priority == object.Eager:
		c.Outcome = TakeRight
	case isLeft:
		c.Outcome = TakeLeft
	case isRight:
		c.Outcome = TakeRight
	case merged == nil:
		c.Outcome = TakeNone
	default:
		priority := object.Lazy
		if c.HasLeft && c.Left.Priority == object.Eager || c.HasRight && c.Right.Priority == object.Eager {
			priority = object.Eager
		}
		e, err := p.Store(ctx, merged, priority)
		if err != nil {
			return err
		}
		c.Outcome, c.New = TakeNew, e
	}
	return nil
}

// sameValue reports whether two values, nil for absence, are the same.
func sameValue(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}
