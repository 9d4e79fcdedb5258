package ledger

import (
	"context"
	"io"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
)

// Resolver decides conflicts one at a time. Resolve may be called for several pages at once. The
// answer must follow from the conflict alone, for devices to come to the same result.
//
// ctx ends when the page is closed, the rules are replaced, or the call that merges is given up.
// Resolve must then return soon: it cannot be interrupted, and Close waits for it. It may read and
// write the page, but must not merge or close it. When it fails or panics, nothing is merged, and
// it is tried again later.
type Resolver interface {
	Resolve(ctx context.Context, c *MergeConflict) (Resolution, error)
}

// ResolverFunc is a function as Resolver.
type ResolverFunc func(ctx context.Context, c *MergeConflict) (Resolution, error)

// Resolve implements Resolver.
func (f ResolverFunc) Resolve(ctx context.Context, c *MergeConflict) (Resolution, error) {
	return f(ctx, c)
}

// MergeConflict is a key about which two branches do not agree. The values of its entries can be
// read as long as the call lasts to which it was given: later reads fail with ErrTxDone.
type MergeConflict struct {
	// Key belongs to the receiver.
	Key []byte
	// Base, Left and Right are the entries of the key in the common ancestor and on both sides, nil
	// where it is absent. Left is the side whose head is the lesser by (timestamp, id), on every
	// device.
	Base, Left, Right *Entry
	// BaseUnknown tells that there are several common ancestors, and that they do not agree about
	// the key. Base is then nil.
	BaseUnknown bool
	// LeftCommit and RightCommit are the heads that are merged. When more than two come together,
	// one may be a merge that is not stored yet.
	LeftCommit, RightCommit Commit
	// BaseCommits are the common ancestors, at least one.
	BaseCommits []Commit
}

// Resolution is what becomes of a key in conflict. The zero Resolution is none: it makes the merge
// fail.
type Resolution struct{ in merging.Resolution }

// KeepLeft keeps what the left side has: with its priority, and when the key is absent there, it is
// removed.
func KeepLeft() Resolution { return Resolution{merging.Resolution{Outcome: merge.TakeLeft}} }

// KeepRight keeps what the right side has: with its priority, and when the key is absent there, it
// is removed.
func KeepRight() Resolution { return Resolution{merging.Resolution{Outcome: merge.TakeRight}} }

// DeleteKey removes the key.
func DeleteKey() Resolution { return Resolution{merging.Resolution{Outcome: merge.TakeNone}} }

// NewValue gives the key a new value with priority Eager. value must not be changed before the
// merge has ended.
func NewValue(value []byte) Resolution { return NewPriorityValue(value, Eager) }

// NewPriorityValue gives the key a new value with a priority. A value that is short enough to be
// inline is always Eager. value must not be changed before the merge has ended.
func NewPriorityValue(value []byte, p Priority) Resolution {
	return Resolution{merging.Resolution{Outcome: merge.TakeNew, Value: value, Priority: p}}
}

// NewReader gives the key the value that r gives until io.EOF. size is its length, or -1 when that
// is not known; a different length makes the merge fail, as does a nil r. Memory does not depend on
// the length. When r is an io.Closer, it is closed.
func NewReader(r io.Reader, size int64, p Priority) Resolution {
	if r == nil {
		return Resolution{}
	}
	return Resolution{merging.Resolution{Outcome: merge.TakeNew, Reader: r, Size: size, Priority: p}}
}

// WithRule returns r with the name that the merge records for what decided, 1 to 128 bytes of
// UTF-8; without it that is "resolver".
func (r Resolution) WithRule(name string) Resolution {
	r.in.Rule = name
	return r
}

// asking returns a strategy that asks a resolver, which may be nil: that makes merges fail.
func asking(kind merging.Kind, r Resolver) Strategy {
	if r == nil {
		return Strategy{merging.Strategy{Kind: kind}}
	}
	return Strategy{merging.Strategy{Kind: kind, Resolver: func(ctx context.Context, c *merging.Conflict) (merging.Resolution, error) {
		conflict := newConflictMaker(c.Pair).conflict(c)
		out, err := r.Resolve(ctx, &conflict)
		return out.in, err
	}}}
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
	entry := func(from session.Origin, e *fb.Entry, has bool) *Entry {
		if !has {
			return nil
		}
		n := newEntry(from, e, true)
		n.Key = out.Key // borrowed entries need not have one
		return &n
	}
	out.Base = entry(c.BaseOrigin, &c.Base, c.HasBase)
	out.Left = entry(c.SideOrigin, &c.Left, c.HasLeft)
	out.Right = entry(c.SideOrigin, &c.Right, c.HasRight)
	return out
}
