package merge

import (
	"context"

	"github.com/ledgerd/ledger/commit"
)

// The names under which LastOneWins records its decisions.
const (
	ruleLastOneWins = "last one wins"
	// ruleGreaterHead is where neither side has a writer.
	ruleGreaterHead = "last one wins, greater head"
)

// LastOneWins decides for the side whose writer of the key is the greater commit by (timestamp, id). The writer of a key on a side is the newest
// commit of that side above the bases whose own change gave the key what it has there; a merge commit counts only where it
// has what none of its parents has. A side without a writer yields to the side that has one; if neither has, the greater head counts.
func LastOneWins() Decider { return lastOneWins{} }

type lastOneWins struct{}

// Decide implements Decider.
func (lastOneWins) Decide(ctx context.Context, p *Pair, cs []Conflict) error {
	var open [2][]wanted
	for i := range cs {
		c := &cs[i]
		open[leftSide] = append(open[leftSide], wanted{key: c.Key, entry: c.Left, has: c.HasLeft, at: i})
		open[rightSide] = append(open[rightSide], wanted{key: c.Key, entry: c.Right, has: c.HasRight, at: i})
	}
	writers := make([][2]*commit.Commit, len(cs))
	err := p.findWriters(ctx, &open, func(side int, w *wanted, c *commit.Commit) bool {
		writers[w.at][side] = c
		return true
	})
	if err != nil {
		return err
	}
	for i := range cs {
		cs[i].decideByWriters(writers[i][leftSide], writers[i][rightSide])
	}
	return nil
}

// decideByWriters decides for the greater writer, each nil if its side has none.
func (c *Conflict) decideByWriters(left, right *commit.Commit) {
	c.Outcome, c.Rule = TakeRight, ruleLastOneWins
	if left != nil {
		c.LeftWriter = left.ID
	}
	if right != nil {
		c.RightWriter = right.ID
	}
	switch {
	case left == nil && right == nil:
		c.Rule = ruleGreaterHead // Right is the greater one
	case right == nil, left != nil && commit.Compare(left, right) > 0:
		c.Outcome = TakeLeft
	}
}
