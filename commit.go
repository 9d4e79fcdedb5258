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
	// Timestamp is when the commit was made, in nanoseconds since 1970, by the clock of the device
	// that made it; where a parent is less than a day ahead of that clock, it is 1 ns after the
	// parent. A merge commit has that of its later parent. Where clocks were wrong it may be less
	// than that of a parent; Generation never is.
	Timestamp int64
	// Generation is the longest path to the first commit, which has 0.
	Generation uint64
	// Root is the digest of the tree's root node, 66 hexadecimal digits. Equal content has the
	// equal root.
	Root string
	// Parents has no id for the first commit, one for a usual commit, two for a merge.
	Parents []CommitID
	// Device and Message are what was recorded, often "".
	Device, Message string
}

// IsFirst reports whether c is the implied first commit of every page: empty, without parents.
func (c Commit) IsFirst() bool { return c.Generation == 0 }

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
