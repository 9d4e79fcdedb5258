package merge

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// Decision is what was decided about a key in a merge. The decisions of a merge stand in a tree of their own, the
// explanation: the key is the key, the value what Encode gives (docs/format/records.md has the layout).
type Decision struct {
	Key     []byte
	Outcome Outcome
	Rule    string
	// LeftWriter and RightWriter are zero where the decider did not look for them.
	LeftWriter, RightWriter commit.ID
}

// Decisions yields the decisions in the tree with the given root whose keys begin with prefix, in order of keys. The last pair has the
// error, if there is one.
func Decisions(ctx context.Context, v *View, root object.Digest, prefix []byte) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) { yield(Decision{}, errNotBuilt) }
}
