package merge

import (
	"context"
	"errors"
)

// LastOneWins decides for the side whose writer of the key is the greater commit by (timestamp, id). The writer of a key on a side is the newest
// commit of that side above the bases whose own change gave the key what it has there; a merge commit counts only where it
// has what none of its parents has. A side without a writer yields to the side that has one; if neither has, the greater head counts.
func LastOneWins() Decider { return lastOneWins{} }

type lastOneWins struct{}

// Decide implements Decider.
func (lastOneWins) Decide(ctx context.Context, p *Pair, cs []Conflict) error {
	return errors.New("not built yet")
}
