package merge

import (
	"context"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// View is what is read of a page: its commits, trees and values.
type View struct {
	// Page is the id of the page, which keys the levels of its trees.
	Page [16]byte
	// Commits finds commits.
	Commits commit.Getter
	// Nodes gives tree nodes, and Pieces the pieces of values.
	Nodes  btree.Source
	Pieces split.Source
	// Explanation returns the root of the tree of decisions of a merge commit, and whether there is one. Nil: there is
	// none for any.
	Explanation func(ctx context.Context, merge commit.ID) (object.Digest, bool, error)
}

func (v *View) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: v.Page, Source: v.Nodes, Root: root}
}

// Sink takes the nodes and pieces that a merge makes, and gives them back. A *storage.Journal is one.
type Sink interface {
	btree.Sink
	btree.Source
	split.Source
}

// Env is the page in which merges are made. Nodes and Pieces of its View are those of Sink, so that a merge sees what the one
// before it in the same pass has made.
type Env struct {
	View
	// Sink takes what commits will reach.
	Sink Sink
	// Scratch begins a place for what no commit will reach. It gives what the page holds, too. end forgets what was put.
	Scratch func() (s Sink, end func())
	// Table cuts new values into pieces.
	Table *split.Table
	// Known returns the commits of the page that merge exactly a and b. Nil: none is known.
	Known func(ctx context.Context, a, b commit.ID) ([]*commit.Commit, error)
}

// How tells how a merge came to its content.
type How uint8

// The ways of merging. They are only ever added to.
const (
	// Known: the page has the merge already.
	Known How = iota + 1
	// Equal: both sides have the same content.
	Equal
	// Subset: one side has no commit of its own that is no merge; the other is taken whole.
	Subset
	// Rest: neither side has one; the greater is taken whole (I5).
	Rest
	// ThreeWay: key by key.
	ThreeWay
)

// Merged is one merge of two commits.
type Merged struct {
	// Commit is the merge commit; Left and Right are its parents, Left the lesser in the order of commit.Compare.
	Commit, Left, Right *commit.Commit
	How                 How
	// Conflicts counts the decisions that Explanation holds: the root of a tree, see Decision. It is zero when
	// there are none.
	Conflicts   int
	Explanation object.Digest
}
