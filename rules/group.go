package rules

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/merging"
)

// GroupStrategy merges a namespace as a whole, for keys that belong together, such as a record and
// its index rows: separate decisions about each key could leave index rows without a record. The
// strategy sees all changes of both sides, in groups that it defines, and writes the result.
//
// A merge calls Group for every key of the namespace that a side has changed, then MergeGroup for
// every group, in bytewise order of the groups' names, and at last Finish, all on one goroutine.
// Several pages may be merged at once. The result must depend on the arguments alone, and not on
// which side is left, so that all devices get the same result. The context is as for a
// ledger.Resolver. A strategy that fails or panics makes the merge fail. A merge holds the changed
// keys of the namespace, and the reports about them, in memory.
type GroupStrategy interface {
	// Name is recorded as the rule of Group.Take's decisions: 1 to 128 bytes of UTF-8.
	Name() string
	// Group returns the name of the group of a key, at most 4096 bytes. It must depend on the key
	// alone. key is borrowed.
	Group(key []byte) []byte
	// MergeGroup writes the merged group to m.Result, in which all changed keys of the namespace
	// have their base entries until MergeGroup is called for their group. It may write all keys of
	// the namespace.
	MergeGroup(ctx context.Context, m *Merge, g *Group) error
	// Finish is called after the last group, for work that depends on all groups.
	Finish(ctx context.Context, m *Merge) error
}

// Merge is a merge of a namespace by a GroupStrategy. It and everything read from it are valid
// until Finish returns: later reads fail with ErrClosed or ErrTxDone.
type Merge struct {
	// Prefix is the common prefix of the namespace. Keys under a rule with a longer prefix do not
	// belong to it.
	Prefix []byte
	// Base, Left and Right are the whole page in the common ancestor and on both sides. If there
	// are several common ancestors, Base is made of them: keys on which they differ are absent, and
	// its commit has the zero id.
	Base, Left, Right *ledger.Snapshot
	// Result receives the strategy's writes to keys of the namespace; other keys fail with
	// ErrInvalid. It begins with the content of Left, but with that of Base for each key that a
	// side has changed. The strategy must not commit or roll it back.
	Result *ledger.Tx
	// State is for the strategy's own use, from one group to the next and for Finish. It is nil at
	// first.
	State any

	in       *merging.Merge
	conflict func(*merging.Conflict) any
}

// Side names the source of a group or key.
type Side = merging.Side

// The sides of a merge.
const (
	SideBase  = merging.SideBase
	SideLeft  = merging.SideLeft
	SideRight = merging.SideRight
)

// Report records for Page.Conflicts that a rule has decided about a key: for side, or with SideBase
// for neither, so that the key has its present value in Result. A later report of a key replaces an
// earlier one. Group.Take makes its own reports. Errors: ErrInvalid, ErrTooLarge, those of ctx.
func (m *Merge) Report(ctx context.Context, key []byte, rule string, side Side) error {
	return m.in.Report(ctx, key, rule, side)
}

// groupStrategy adapts a GroupStrategy to the merging engine.
type groupStrategy struct{ GroupStrategy }

func (g groupStrategy) MergeGroup(ctx context.Context, m *merging.Merge, group *merging.Group) error {
	merge := mergeOf(m)
	return g.GroupStrategy.MergeGroup(ctx, merge, &Group{Name: group.Name, in: group, conflict: merge.conflict})
}

func (g groupStrategy) Finish(ctx context.Context, m *merging.Merge) error {
	return g.GroupStrategy.Finish(ctx, mergeOf(m))
}

// mergeOf returns the Merge of m, which it stores in m.State.
func mergeOf(m *merging.Merge) *Merge {
	if m.State == nil {
		m.State = &Merge{
			Prefix: m.Prefix,
			Base:   bridge.NewSnapshot(m.Base).(*ledger.Snapshot),
			Left:   bridge.NewSnapshot(m.Left).(*ledger.Snapshot),
			Right:  bridge.NewSnapshot(m.Right).(*ledger.Snapshot),
			Result: bridge.NewTx(m.Result).(*ledger.Tx),
			in:     m, conflict: bridge.Conflicts(m.Pair),
		}
	}
	return m.State.(*Merge)
}

// Group is a set of changed keys that a GroupStrategy merges together.
type Group struct {
	// Name is the result of GroupStrategy.Group.
	Name []byte

	in       *merging.Group
	conflict func(*merging.Conflict) any
}

// Changes yields the keys of the group that a side has changed, in order. Their values can be read
// until the merge ends. The last pair has the error, if any: ErrTxDone, ErrClosed, ErrCorrupt,
// those of ctx.
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

// Take gives the changed keys of the group their entries of one side, with their priorities; no
// value is read. It reports, under the name of the strategy, the keys whose change on another side
// is lost. Errors: ErrInvalid, ErrTxDone, ErrClosed, ErrCorrupt, those of ctx.
func (g *Group) Take(ctx context.Context, s Side) error { return g.in.Take(ctx, s) }

// TakeThose is Take for those changed keys of the group for which want returns true. The key is
// borrowed. Errors: as Take.
func (g *Group) TakeThose(ctx context.Context, s Side, want func(key []byte) bool) error {
	return g.in.TakeThose(ctx, s, want)
}

// Newest returns the side, SideLeft or SideRight, with the last write to a changed key of the
// group, by the rule of LastOneWins. Errors: as Take.
func (g *Group) Newest(ctx context.Context) (Side, error) { return g.in.Newest(ctx) }

// Newest returns the side, SideLeft or SideRight, with the last write to one of keys, by the rule
// of LastOneWins. Keys are in ascending order, and a side has changed at least one. Errors:
// ErrCorrupt, those of ctx.
func (m *Merge) Newest(ctx context.Context, keys [][]byte) (Side, error) {
	return m.in.Newest(ctx, keys)
}
