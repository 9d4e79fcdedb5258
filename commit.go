package ledger

import (
	"slices"
	"time"

	"github.com/ledgerd/ledger/commit"
)

// Commit is an immutable version of a page. It is a copy; its slices belong to the caller.
type Commit struct {
	ID CommitID
	// Time is Timestamp as a time in UTC.
	Time time.Time
	// Timestamp is when the commit was made, in nanoseconds since 1970, by the clock of its device.
	// If a parent is ahead of that clock, by less than a day, Timestamp is 1 ns after the parent. A
	// merge commit has the timestamp of its later parent. With wrong clocks it may be less than a
	// parent's; Generation never is.
	Timestamp int64
	// Generation is the longest path to the first commit, which has 0: it is implied in every page,
	// empty, and without parents.
	Generation uint64
	// Root is the digest of the tree's root node, 66 hexadecimal digits. Equal content has the same
	// root.
	Root string
	// Parents is empty for the first commit, one id for a usual commit, two for a merge.
	Parents []CommitID
	// Device and Message are as recorded by the committer, often "".
	Device, Message string
}

func newCommit(c *commit.Commit) Commit {
	out := Commit{
		ID: c.ID, Time: time.Unix(0, c.Timestamp).UTC(), Timestamp: c.Timestamp, Generation: c.Generation,
		Root: c.Root.String(), Device: c.Device, Message: c.Message,
	}
	out.Parents = slices.Clone(c.Parents)
	return out
}

// commitOf is newCommit for a commit that may be nil.
func commitOf(c *commit.Commit) *Commit {
	if c == nil {
		return nil
	}
	out := newCommit(c)
	return &out
}
