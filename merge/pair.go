package merge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// Pair is a merge of two commits while it is being made.
type Pair struct {
	// Left and Right are the commits, Left the lesser in the order of commit.Compare.
	Left, Right *commit.Commit
	// Base is the tree of the common ancestor. In a criss-cross history, with several Bases, it is
	// the virtual base, without the keys about which the bases disagree; Unknown then has these
	// keys.
	Base, Unknown btree.Tree
	Bases         []*commit.Commit
	// LeftTree and RightTree are the trees of the sides.
	LeftTree, RightTree btree.Tree

	env *Env
	// clockBack is that of Relation.
	clockBack bool
	// rules is nil in a merge for a virtual base.
	rules *ruleSet
	// owner is the index of the rule whose owner runs, or noOwner. Zero, in a Pair outside a merge,
	// is as good as noOwner, as rules is nil.
	owner int
	// reports are the decisions of the running owner, encoded, by key; nil when none runs.
	reports map[string][]byte
}

// noOwner in Pair.owner says that no owner runs.
const noOwner = -1

// Changes yields, in order, every key with a prefix that a side has changed, as conflicts without
// outcome: also when only one side has, or both to the same content. An Owner does not see the keys
// of a rule with a longer prefix. The last pair holds the error, if there is one.
func (p *Pair) Changes(ctx context.Context, prefix []byte) iter.Seq2[Conflict, error] {
	return func(yield func(Conflict, error) bool) {
		end := base.PrefixEnd(prefix)
		unknown := newKeySet(p.Unknown)
		for e, err := range btree.Diff3(ctx, p.Base, p.LeftTree, p.RightTree, prefix) {
			if err != nil {
				yield(Conflict{}, fmt.Errorf("compare the trees of commits %s and %s with their base: %w", p.Left.ID, p.Right.ID, err))
				return
			}
			if end != nil && bytes.Compare(e.Key, end) >= 0 {
				return
			}
			if p.owner != noOwner && !p.Owns(e.Key) {
				continue
			}
			c := conflictOf(&e)
			if c.BaseUnknown, err = unknown.has(ctx, e.Key); err != nil {
				yield(Conflict{}, err)
				return
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Owns reports whether the rule of the running owner counts for a key. In a Pair outside of a merge
// it counts for all.
func (p *Pair) Owns(key []byte) bool {
	return p.rules == nil || p.rules.ranges[p.rules.find(key)].rule == p.owner
}

func conflictOf(e *btree.Diff3Entry) Conflict {
	return Conflict{
		Key: e.Key, Base: e.Base, Left: e.Left, Right: e.Right, HasBase: e.HasBase, HasLeft: e.HasLeft, HasRight: e.HasRight,
	}
}

// keySet reports whether keys, queried in ascending order, are in a tree.
type keySet struct {
	cursor *btree.Cursor // nil when the set is empty, or at its end
	begun  bool
}

func newKeySet(t btree.Tree) keySet {
	if t.Source == nil || t.Root == btree.EmptyRoot {
		return keySet{}
	}
	return keySet{cursor: t.Cursor()}
}

func (s *keySet) has(ctx context.Context, key []byte) (bool, error) {
	if s.cursor == nil {
		return false, nil
	}
	var err error
	ok := true
	if s.begun && bytes.Compare(s.cursor.Key(), key) < 0 {
		ok, err = s.cursor.Next(ctx) // the next key is often near
	}
	if err == nil && ok && (!s.begun || bytes.Compare(s.cursor.Key(), key) < 0) {
		ok, err = s.cursor.Seek(ctx, key)
		s.begun = true
	}
	if err != nil {
		return false, fmt.Errorf("read the unknown keys of a base: %w", err)
	}
	if !ok {
		s.cursor = nil
		return false, nil
	}
	return bytes.Equal(s.cursor.Key(), key), nil
}

// Report records a decision of an Owner, which must be running. c must have a Key that the owner's
// rule covers, an Outcome and a Rule. A later report of a key replaces an earlier one. Reports are
// held in memory, as the owner's changes are. Errors: base.ErrInvalid, that of ctx.
func (p *Pair) Report(ctx context.Context, c *Conflict) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("report a decision: %w", err)
	}
	if p.reports == nil {
		return fmt.Errorf("report a decision while no owner runs: %w", base.ErrInvalid)
	}
	if !p.Owns(c.Key) {
		return fmt.Errorf("report a decision about key %s, for which another rule counts: %w", keyText(c.Key), base.ErrInvalid)
	}
	if c.Outcome == Undecided || c.Outcome > TakeNone {
		return fmt.Errorf("report a decision about key %s with outcome %d: %w", keyText(c.Key), c.Outcome, base.ErrInvalid)
	}
	value, err := c.decision()
	if err != nil {
		return err
	}
	p.reports[string(c.Key)] = value
	return nil
}

// Open returns a reader of the value of an entry. The caller owns it. ctx governs its reads; errors
// are those of reading pieces.
func (p *Pair) Open(ctx context.Context, e *fb.Entry) io.ReadSeeker {
	if e.Inline {
		return bytes.NewReader(e.Value)
	}
	return split.NewReader(ctx, p.env.Pieces, e.Digest, e.Size)
}

// Value reads a value of at most limit bytes into memory; it must not be changed. Errors match
// base.ErrTooLarge for a longer value, or are those of reading pieces.
func (p *Pair) Value(ctx context.Context, e *fb.Entry, limit int64) ([]byte, error) {
	if limit < 0 || e.Size > uint64(limit) || e.Size > math.MaxInt {
		return nil, fmt.Errorf("read a value of %d bytes with a limit of %d: %w", e.Size, limit, base.ErrTooLarge)
	}
	if e.Inline {
		return e.Value, nil
	}
	b := make([]byte, e.Size)
	if _, err := io.ReadFull(p.Open(ctx, e), b); err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	return b, nil
}

// Store stores a value for an outcome TakeNew and returns its entry without key. A short value is
// inline, and then always eager. value is not retained. Errors: base.ErrInvalid for another
// priority, those of the Sink, that of ctx.
func (p *Pair) Store(ctx context.Context, value []byte, priority object.Priority) (fb.Entry, error) {
	return p.store(ctx, priority, func() (fb.Entry, error) { return btree.PutValue(ctx, p.env.Sink, p.env.Table, value, priority) })
}

// StoreReader is Store for the bytes of r up to io.EOF; memory does not depend on their number. ctx
// does not interrupt a blocking Read of r. Errors: those of Store and of r.
func (p *Pair) StoreReader(ctx context.Context, r io.Reader, priority object.Priority) (fb.Entry, error) {
	return p.store(ctx, priority, func() (fb.Entry, error) { return btree.PutReader(ctx, p.env.Sink, p.env.Table, r, priority) })
}

// store calls put for a value with a valid priority.
func (p *Pair) store(ctx context.Context, priority object.Priority, put func() (fb.Entry, error)) (e fb.Entry, err error) {
	if priority > object.Lazy {
		return e, fmt.Errorf("store a value with %s: %w", priority, base.ErrInvalid)
	}
	if err = ctx.Err(); err == nil {
		e, err = put()
	}
	if err != nil {
		return fb.Entry{}, fmt.Errorf("store a value: %w", err)
	}
	return e, nil
}
