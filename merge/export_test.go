package merge

import (
	"context"

	"github.com/ledgerd/ledger/commit"
)

// NewPair returns the merge of left and right with the given bases, for tests of what deciders do.
// Its trees are those of the commits; the base is that of the first one.
func NewPair(env *Env, left, right *commit.Commit, bases ...*commit.Commit) *Pair {
	r, err := relate(context.Background(), env.Commits, env.Lost, left, right)
	return &Pair{
		clockBack: err == nil && r.ClockBack, // what cannot be read is told by what is tested
		Left:      left, Right: right, Bases: bases, Base: env.Tree(bases[0]),
		LeftTree: env.Tree(left), RightTree: env.Tree(right), env: env,
	}
}
