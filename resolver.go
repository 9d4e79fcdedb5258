package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/gate"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/split"
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
type Resolution struct {
	outcome  merge.Outcome
	value    []byte
	reader   io.Reader
	size     int64
	priority Priority
	rule     string
}

// KeepLeft keeps what the left side has: with its priority, and when the key is absent there, it is
// removed.
func KeepLeft() Resolution { return Resolution{outcome: merge.TakeLeft} }

// KeepRight keeps what the right side has: with its priority, and when the key is absent there, it
// is removed.
func KeepRight() Resolution { return Resolution{outcome: merge.TakeRight} }

// DeleteKey removes the key.
func DeleteKey() Resolution { return Resolution{outcome: merge.TakeNone} }

// NewValue gives the key a new value with priority Eager. value must not be changed before the
// merge has ended.
func NewValue(value []byte) Resolution { return NewPriorityValue(value, Eager) }

// NewPriorityValue gives the key a new value with a priority. A value that is short enough to be
// inline is always Eager. value must not be changed before the merge has ended.
func NewPriorityValue(value []byte, p Priority) Resolution {
	return Resolution{outcome: merge.TakeNew, value: value, priority: p}
}

// NewReader gives the key the value that r gives until io.EOF. size is its length, or -1 when that
// is not known; a different length makes the merge fail, as does a nil r. Memory does not depend on
// the length. When r is an io.Closer, it is closed.
func NewReader(r io.Reader, size int64, p Priority) Resolution {
	if r == nil {
		return Resolution{}
	}
	return Resolution{outcome: merge.TakeNew, reader: r, size: size, priority: p}
}

// WithRule returns r with the name that the merge records for what decided, 1 to 128 bytes of
// UTF-8; without it that is "resolver".
func (r Resolution) WithRule(name string) Resolution {
	r.rule = name
	return r
}

// mergeOrigin is the origin of entries that can be read during a merge, or a part of it.
type mergeOrigin struct {
	page   *Page // the merger's own handle
	values split.Source
	over   *atomic.Bool
}

var errMergeOver = fmt.Errorf("read a value of a merge that has gone on: %w", ErrTxDone)

func (o *mergeOrigin) enter() error {
	if !o.page.gate.Enter() {
		return errPageClosed
	}
	if o.over.Load() {
		o.page.leave()
		return errMergeOver
	}
	return nil
}

func (o *mergeOrigin) leave()               { o.page.leave() }
func (o *mergeOrigin) closing() *gate.Gate  { return o.page.gate }
func (o *mergeOrigin) pieces() split.Source { return o.values }
func (o *mergeOrigin) note(err error)       { o.page.note(err) }

// find is not needed: the entries hold their inline values.
func (o *mergeOrigin) find(context.Context, []byte) (fb.Entry, bool, error) {
	return fb.Entry{}, false, nil
}

// conflictMaker makes MergeConflicts of one merge of two commits.
type conflictMaker struct {
	base, side  *mergeOrigin
	left, right Commit
	bases       []Commit
}

// newConflictMaker returns a maker whose entries can be read until over is set.
func (run *mergeRun) newConflictMaker(p *merge.Pair, over *atomic.Bool) *conflictMaker {
	k := &conflictMaker{
		base: &mergeOrigin{page: run.m.page, values: run.baseValues(p), over: over},
		side: &mergeOrigin{page: run.m.page, values: run.sink, over: over},
		left: newCommit(p.Left), right: newCommit(p.Right),
	}
	for _, b := range p.Bases {
		k.bases = append(k.bases, newCommit(b))
	}
	return k
}

// baseValues returns where the values of the base are read: a virtual one has a place of its own.
func (run *mergeRun) baseValues(p *merge.Pair) split.Source {
	if s, ok := p.Base.Source.(split.Source); ok {
		return s
	}
	return run.sink
}

func (k *conflictMaker) conflict(c *merge.Conflict) MergeConflict {
	out := MergeConflict{
		Key: append([]byte{}, c.Key...), BaseUnknown: c.BaseUnknown, LeftCommit: k.left, RightCommit: k.right, BaseCommits: k.bases,
	}
	entry := func(from *mergeOrigin, e *fb.Entry, has bool) *Entry {
		if !has {
			return nil
		}
		n := newEntry(from, e, true)
		n.Key = out.Key // borrowed entries need not have one
		return &n
	}
	out.Base = entry(k.base, &c.Base, c.HasBase)
	out.Left = entry(k.side, &c.Left, c.HasLeft)
	out.Right = entry(k.side, &c.Right, c.HasRight)
	return out
}

// resolverDecider has a Resolver decide.
type resolverDecider struct {
	run      *mergeRun
	resolver Resolver
}

// defaultRule is recorded for what a Resolver has decided.
const defaultRule = "resolver"

// Decide implements merge.Decider.
func (d *resolverDecider) Decide(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		err := ctx.Err()
		if err == nil {
			err = d.decide(ctx, p, &cs[i])
		}
		if err != nil {
			return &MergeError{Left: CommitID(p.Left.ID), Right: CommitID(p.Right.ID), Err: err}
		}
	}
	return nil
}

func (d *resolverDecider) decide(ctx context.Context, p *merge.Pair, c *merge.Conflict) error {
	var over atomic.Bool
	conflict := d.run.newConflictMaker(p, &over).conflict(c)
	var r Resolution
	err := d.run.protect("resolver", func() (err error) {
		r, err = d.resolver.Resolve(ctx, &conflict)
		return err
	})
	if err == nil {
		// The new value may come from the values of the conflict.
		err = d.run.protect("reader of a resolution", func() error { return r.apply(ctx, p, c) })
	}
	over.Store(true)
	if err != nil {
		return fmt.Errorf("resolve a conflict: %w", err)
	}
	return nil
}

// apply makes r the outcome of c.
func (r *Resolution) apply(ctx context.Context, p *merge.Pair, c *merge.Conflict) (err error) {
	if closer, ok := r.reader.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	rule := r.rule
	if rule == "" {
		rule = defaultRule
	}
	if err := checkRuleName(rule); err != nil {
		return err
	}
	c.Outcome, c.Rule = r.outcome, rule
	switch r.outcome {
	case merge.TakeLeft, merge.TakeRight, merge.TakeNone:
		return nil
	case merge.TakeNew:
	default:
		return fmt.Errorf("the resolution is none: %w", ErrInvalid)
	}
	switch {
	case r.priority > Lazy:
		return fmt.Errorf("new value: %s: %w", r.priority, ErrInvalid)
	case r.reader == nil:
		c.New, err = p.Store(ctx, r.value, r.priority)
	case r.size < -1:
		return fmt.Errorf("new value of %d bytes: %w", r.size, ErrInvalid)
	default:
		c.New, err = p.StoreReader(ctx, &sizedReader{r: r.reader, left: r.size, want: r.size}, r.priority)
	}
	if err != nil {
		return fmt.Errorf("store the new value: %w", err)
	}
	c.New.Key = bytes.Clone(c.Key)
	return nil
}
