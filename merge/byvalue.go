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

// ByValue is a Decider that applies a rule on values to conflicts. LastOneWins decides the
// conflicts that the rule cannot decide, those with values above MaxRuleValueBytes, those with an
// unknown base, and those with a value that was lost with the bucket (base.ErrGone): no device may
// have it any more, and merging must still end. Since the rule follows from values alone, it is
// also asked for virtual bases (I6), so that a base stays unknown only where the rule could not
// decide. Keys that are no conflict, with Rule.All, never go to LastOneWins.
//
// A merged value that a side has is taken from that side, with its priority; of two such sides,
// from the eager one. A new value is lazy if every side that has the key has it lazy, else eager. A
// value that the device does not hold is an error, which matches base.ErrNeedsFetch: the decision
// must not depend on the device (I1).
type ByValue struct {
	// Name is recorded as the rule that decided.
	Name string
	Rule ValueRule
	// NoBase is for a rule that can decide without the base, such as Maximum: it is also asked
	// where the base is unknown, with a nil base.
	NoBase bool
	// Equal is for a rule like Counter, which must also be asked, in virtual bases too, about keys
	// that both sides have changed to equal content: two sides that have each counted 1 are equal,
	// and stand for 2.
	Equal bool
}

// MaxRuleValueBytes is the length of the longest value passed to a ValueRule.
const MaxRuleValueBytes = 1 << 20

// Decide implements Decider.
func (b ByValue) Decide(ctx context.Context, p *Pair, cs []Conflict) error {
	left, err := b.decideAll(ctx, p, cs)
	if err != nil || len(left) == 0 {
		return err
	}
	rest := make([]Conflict, len(left))
	for i, at := range left {
		rest[i] = cs[at]
	}
	if err := LastOneWins().Decide(ctx, p, rest); err != nil {
		return err
	}
	for i, at := range left {
		cs[at] = rest[i]
	}
	return nil
}

// decideAll applies the rule, and returns the indexes of the conflicts that it could not decide. It
// may be asked about bases, since its outcomes follow from values alone (I6).
func (b ByValue) decideAll(ctx context.Context, p *Pair, cs []Conflict) ([]int, error) {
	var left []int
	for i := range cs {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("decide by %s: %w", b.Name, err)
		}
		decided, err := b.decide(ctx, p, &cs[i])
		if err != nil {
			return nil, fmt.Errorf("decide by %s: %w", b.Name, err)
		}
		if !decided {
			left = append(left, i)
		}
	}
	return left, nil
}

// decide reports whether c is decided: by the rule, or because it is no conflict.
func (b ByValue) decide(ctx context.Context, p *Pair, c *Conflict) (bool, error) {
	decided, err := b.ask(ctx, p, c)
	if err != nil || decided {
		return decided, err
	}
	if c.Outcome = c.withoutRule(); c.Outcome == Undecided {
		return false, nil
	}
	c.Rule = b.Name
	return true, nil
}

// ask reports whether the rule has decided about c.
func (b ByValue) ask(ctx context.Context, p *Pair, c *Conflict) (bool, error) {
	if c.BaseUnknown && !b.NoBase {
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
		case errors.Is(err, base.ErrGone) && i == 0 && b.NoBase:
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
	merged, ok := b.Rule(values[0], values[1], values[2])
	if !ok {
		return false, nil
	}
	c.Rule = b.Name
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
