package ledger

import (
	"context"
	"fmt"
	"io"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/merge"
)

// Resolver decides conflicts one at a time. It may be called for several pages at once. The answer
// must depend on the conflict alone, so that all devices get the same result.
//
// ctx ends when the page is closed, the rules are replaced, or the merging call is cancelled. The
// resolver must then return soon: it cannot be interrupted, and Close waits for it. It may read and
// write the page, but must not merge or close it. When it fails or panics, nothing is merged, and
// the merge is retried later.
type Resolver func(ctx context.Context, c *MergeConflict) (Resolution, error)

// MergeConflict is a key with different content in two branches. The values of its entries can be
// read during the call that receives the conflict; later reads fail with ErrTxDone.
type MergeConflict struct {
	// Key belongs to the receiver.
	Key []byte
	// Base, Left and Right are the entries of the key in the common ancestor and on both sides, nil
	// where it is absent. On every device, Left is the side whose head is the lesser by (timestamp,
	// id).
	Base, Left, Right *Entry
	// BaseUnknown reports that there are several common ancestors with different entries for the
	// key. Base is then nil.
	BaseUnknown bool
	// LeftCommit and RightCommit are the heads that are merged. In a merge of more than two heads,
	// one may be a merge that is not stored yet.
	LeftCommit, RightCommit Commit
	// BaseCommits are the common ancestors, at least one.
	BaseCommits []Commit
}

// Resolution is the decision about a key in conflict. The zero Resolution makes the merge fail.
type Resolution struct {
	// Take is TakeLeft, TakeRight, TakeNone or TakeNew.
	Take merge.Outcome
	// Value is the new value of TakeNew. It must not be changed before the merge has ended.
	Value []byte
	// Reader, when not nil, supplies the new value instead of Value, until io.EOF. Size is its
	// length, 0 when unknown; a different length makes the merge fail. The value is streamed, not
	// held in memory. When Reader is an io.Closer, it is closed.
	Reader io.Reader
	Size   int64
	// Priority is the priority of the new value. A value short enough to be inline is always Eager.
	Priority Priority
	// Rule is recorded as the name of the rule that decided, at most 128 bytes of UTF-8; "" means
	// "resolver".
	Rule string
}

// The values of Resolution.Take.
const (
	// TakeLeft and TakeRight keep the entry of one side, with its priority. If the key is absent
	// there, it is removed.
	TakeLeft  = merge.TakeLeft
	TakeRight = merge.TakeRight
	// TakeNone removes the key.
	TakeNone = merge.TakeNone
	// TakeNew gives the key a new value.
	TakeNew = merge.TakeNew
)

// asking returns a strategy that calls r: for all changed keys, or for conflicts. With a nil r,
// merges fail.
func asking(r Resolver, all bool) Strategy {
	if r == nil {
		return Strategy{Wrong: fmt.Errorf("no resolver: %w", ErrInvalid)}
	}
	return Strategy{All: all, Resolver: func(ctx context.Context, c *merging.Conflict) (merging.Resolution, error) {
		conflict := newConflictMaker(c.Pair).conflict(c)
		out, err := r(ctx, &conflict)
		return merging.Resolution(out), err
	}}
}

// conflictMaker makes MergeConflicts of one merge of two commits.
type conflictMaker struct {
	left, right Commit
	bases       []Commit
}

func newConflictMaker(p *merge.Pair) *conflictMaker {
	k := &conflictMaker{left: newCommit(p.Left), right: newCommit(p.Right)}
	for _, b := range p.Bases {
		k.bases = append(k.bases, newCommit(b))
	}
	return k
}

func (k *conflictMaker) conflict(c *merging.Conflict) MergeConflict {
	out := MergeConflict{
		Key: append([]byte{}, c.Key...), BaseUnknown: c.BaseUnknown, LeftCommit: k.left, RightCommit: k.right, BaseCommits: k.bases,
	}
	entry := func(e *fb.Entry, has bool) *Entry {
		if !has {
			return nil
		}
		n := newEntry(c.Origin, e, true)
		n.Key = out.Key // a borrowed entry may have no key
		return &n
	}
	out.Base = entry(&c.Base, c.HasBase)
	out.Left = entry(&c.Left, c.HasLeft)
	out.Right = entry(&c.Right, c.HasRight)
	return out
}
