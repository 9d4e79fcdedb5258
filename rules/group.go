package rules

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/merging"
)

// GroupStrategy merges a namespace as a whole, for keys that belong together, such as a record and
// its index rows: deciding about each key by itself would leave rows that no record has. It sees
// all changes of both sides, in groups as it declares them, and writes the result.
//
// A merge calls Group for every key of the namespace that a side has changed, then MergeGroup for
// every group, in bytewise order of the groups' names, and at last Finish, all on one goroutine.
// Several pages may be merged at once. What it does must follow from what it is given alone, and
// not from which side is left, for devices to come to the same result. The context is as for a
// ledger.Resolver. A strategy that fails or panics makes the merge fail.
type GroupStrategy interface {
	// Name is recorded as the rule of what Group.Take decides: 1 to 128 bytes of UTF-8.
	Name() string
	// Group returns the name of the group of a key, at most 4096 bytes. It must follow from the key
	// alone. key is borrowed.
	Group(key []byte) []byte
	// MergeGroup writes what becomes of a group to m.Result, in which all changed keys of the
	// namespace have what they have in the base until their group's turn. It may write all keys of
	// the namespace.
	MergeGroup(ctx context.Context, m *Merge, g *Group) error
	// Finish comes after the last group: for what depends on all of them.
	Finish(ctx context.Context, m *Merge) error
}

// Merge is a merge of a namespace by a GroupStrategy. It and what is taken from it end with Finish:
// later reads fail with ErrClosed or ErrTxDone.
type Merge struct {
	// Prefix is what the keys of the namespace begin with. Keys for which a rule with a longer
	// prefix counts are not in it.
	Prefix []byte
	// Base, Left and Right are the whole page in the common ancestor and on both sides. Where there
	// are several common ancestors, Base is made of them: keys about which they do not agree are
	// absent, and its commit has the zero id.
	Base, Left, Right *ledger.Snapshot
	// Result takes what the strategy writes: keys of the namespace, others are refused with
	// ErrInvalid. It begins with what Left has, but with what Base has for each key that a side has
	// changed. It is not committed or rolled back by the strategy.
	Result *ledger.Tx
	// State is the strategy's own: what it keeps from one group to the next, and for Finish. It is
	// nil at first.
	State any

	in       *merging.Merge
	conflict func(*merging.Conflict) any
}

// Side names what a group or key is taken from.
type Side = merging.Side

// The sides of a merge.
const (
	SideBase  = merging.SideBase
	SideLeft  = merging.SideLeft
	SideRight = merging.SideRight
)

// Report records that a rule has decided about a key, for Page.Conflicts: for side, or with
// SideBase for none of the two, so that the key has what Result has now. A later report of a key
// replaces an earlier one. Group.Take reports by itself. Errors: ErrInvalid, ErrTooLarge, those of
// ctx.
func (m *Merge) Report(ctx context.Context, key []byte, rule string, side Side) error {
	return m.in.Report(ctx, key, rule, side)
}

// groupStrategy is a GroupStrategy as the driver of merges calls it.
type groupStrategy struct{ GroupStrategy }

func (g groupStrategy) MergeGroup(ctx context.Context, m *merging.Merge, group *merging.Group) error {
	merge := mergeOf(m)
	return g.GroupStrategy.MergeGroup(ctx, merge, &Group{Name: group.Name, in: group, conflict: merge.conflict})
}

func (g groupStrategy) Finish(ctx context.Context, m *merging.Merge) error {
	return g.GroupStrategy.Finish(ctx, mergeOf(m))
}

// mergeOf returns the Merge of m, which has it in its State.
func mergeOf(m *merging.Merge) *Merge {
	if m.State == nil {
		m.State = &Merge{
			Prefix: m.Prefix, Base: (*ledger.Snapshot)(m.Base), Left: (*ledger.Snapshot)(m.Left), Right: (*ledger.Snapshot)(m.Right), Result: (*ledger.Tx)(m.Result),
			in: m, conflict: bridge.Conflicts(m.Pair),
		}
	}
	return m.State.(*Merge)
}

// Group are the changed keys of which a GroupStrategy says that they belong together.
type Group struct {
	// Name is what GroupStrategy.Group returned.
	Name []byte

	in       *merging.Group
	conflict func(*merging.Conflict) any
}

// Changes yields the keys of the group that a side has changed, in order. Their values can be read
// until the merge ends. The last pair has the error, if there is one: ErrTxDone, ErrClosed,
// ErrCorrupt, those of ctx.
func (g *Group) Changes(ctx context.Context) iter.Seq2[ledger.MergeConflict, error] {
	return func(yield func(ledger.MergeConflict, error) bool) {
		for c, err := range g.in.Changes(ctx) {
			var out ledger.MergeConflict
			if err == nil {
				out = g.conflict(&c).(ledger.MergeConflict)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

// Take makes the changed keys of the group what they are on a side, with their priorities; no value
// is read. It reports, under the name of the strategy, the keys whose change on another side is
// lost by that. Errors: ErrInvalid, ErrTxDone, ErrClosed, ErrCorrupt, those of ctx.
func (g *Group) Take(ctx context.Context, s Side) error { return g.in.Take(ctx, s) }

// TakeThose is Take for those changed keys of the group for which want returns true. The key is
// borrowed. Errors: as Take.
func (g *Group) TakeThose(ctx context.Context, s Side, want func(key []byte) bool) error {
	return g.in.TakeThose(ctx, s, want)
}

// Newest returns SideLeft or SideRight for the side that wrote one of the changed keys of the group
// last, by the rule of LastOneWins. It holds the keys of the group in memory. Errors: as Take.
func (g *Group) Newest(ctx context.Context) (Side, error) { return g.in.Newest(ctx) }

// Newest returns SideLeft or SideRight for the side that wrote one of keys last, by the rule of
// LastOneWins. Keys are in ascending order, and a side has changed one of them. Errors: ErrCorrupt,
// those of ctx.
func (m *Merge) Newest(ctx context.Context, keys [][]byte) (Side, error) {
	return m.in.Newest(ctx, keys)
}
