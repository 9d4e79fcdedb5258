package merge

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Step is a commit that has a part in the value of a key.
type Step struct {
	Commit *commit.Commit
	// Entry is what the key has in Commit, as far as it has something.
	Entry fb.Entry
	Has   bool
	// Outcome and Rule say, for a merge, what decided; Rule is "" when only one side had changed the key.
	Outcome Outcome
	Rule    string
	// Lost are the values that gave way: for a commit with one parent the value before it, for a merge those of the parents that
	// it did not take.
	Lost []Lost
}

// Lost is a value that gave way.
type Lost struct {
	// Parent is the parent that had it, Writer the commit that wrote it: nil when the key never had a value there.
	Parent, Writer *commit.Commit
	Entry          fb.Entry
	Has            bool
}

// Why yields the commits that made the value that key has in head, newest first: the merges that took it from one side, and last the commit that
// wrote it (for a value that a merge made, the merge). It yields nothing for a key that never had a value.
// The last pair has the error, if there is one.
func Why(ctx context.Context, v *View, head *commit.Commit, key []byte) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) { yield(Step{}, errNotBuilt) }
}

// Undone is a key that a commit changed, and what Undo makes of it.
type Undone struct {
	// Kept tells that the key has been changed since, so that it stays as it is; Change is then without meaning but for its key.
	Kept   bool
	Change btree.Change
}

// Undo yields, in order of keys, what c changed against its parent, and what each key would be in head if it had not: what the parent
// has, or where c's value won over others in a later merge, the newest of those. Keys that are already so are left out. c is head or
// an ancestor of it, and parent one of c's parents.
// The last pair has the error, if there is one.
func Undo(ctx context.Context, v *View, head, c, parent *commit.Commit) iter.Seq2[Undone, error] {
	return func(yield func(Undone, error) bool) { yield(Undone{}, errNotBuilt) }
}
