package merge

import (
	"context"
)

// The names under which LastOneWins records its decisions.
const (
	ruleLastOneWins = "last one wins"
	// ruleGreaterHead is used where neither side has a writer.
	ruleGreaterHead = "last one wins, greater head"
)

// LastOneWins decides for the side that wrote the key last. The writer of a key on a side is the
// greatest commit, by (generation, timestamp, id), of that side above the bases that itself gave
// the key the side's entry; a merge commit counts only if none of its parents has that entry. Sides
// are compared by their newest commits, by (timestamp, id). The newest commit of a side is the
// greatest among the writer and those of the side's commits above the bases that have a later time,
// wrote the key, and are ancestors of the writer: a later write is no older than the value it
// replaced, whatever clocks said. Where no clock was set back, that is the writer. A side without a
// writer yields to a side that has one; if neither has, the greater head counts.
func LastOneWins() Decider { return lastOneWins{} }

type lastOneWins struct{}

// Decide implements Decider.
func (lastOneWins) Decide(ctx context.Context, p *Pair, cs []Conflict) error {
	var keys [2][]wanted
	for i := range cs {
		c := &cs[i]
		keys[leftSide] = append(keys[leftSide], wanted{key: c.Key, entry: c.Left, has: c.HasLeft, at: i})
		keys[rightSide] = append(keys[rightSide], wanted{key: c.Key, entry: c.Right, has: c.HasRight, at: i})
	}
	writers, err := p.findWriters(ctx, &keys)
	if err != nil {
		return err
	}
	for i := range cs {
		cs[i].decideByWriters(writers[leftSide][i], writers[rightSide][i])
	}
	return nil
}

// decideByWriters decides for the side that wrote last.
func (c *Conflict) decideByWriters(left, right written) {
	c.Outcome, c.Rule = laterSide(left.newest, right.newest), ruleLastOneWins
	if left.writer != nil {
		c.LeftWriter = left.writer.ID
	}
	if right.writer != nil {
		c.RightWriter = right.writer.ID
	}
	if left.writer == nil && right.writer == nil {
		c.Rule = ruleGreaterHead
	}
}
