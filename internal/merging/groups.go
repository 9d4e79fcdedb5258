package merging

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
)

// GroupStrategy merges a namespace as a whole. A merge calls Group for every key of the namespace
// that a side has changed, then MergeGroup for every group, in bytewise order of the groups' names,
// and at last Finish, all on one goroutine.
type GroupStrategy interface {
	Name() string
	Group(key []byte) []byte
	MergeGroup(ctx context.Context, m *Merge, g *Group) error
	Finish(ctx context.Context, m *Merge) error
}

// Merge is a merge of a namespace by a GroupStrategy. It and everything read from it are valid
// until Finish returns.
type Merge struct {
	// Prefix is the common prefix of the namespace.
	Prefix []byte
	// Base, Left and Right are the whole page in the common ancestor and on both sides. If there
	// are several common ancestors, Base is made of them, and its commit has the zero id.
	Base, Left, Right *session.Snapshot
	// Result receives the strategy's writes. It begins with the content of Left, but with that of
	// Base for each key that a side has changed.
	Result *session.Tx
	// Pair are the merged commits.
	Pair *merge.Pair
	// State is for the strategy's own use, from one group to the next. It is nil at first.
	State any
}

// Side names the source of a group or key.
type Side uint8

// The sides of a merge.
const (
	SideBase Side = iota
	SideLeft
	SideRight
)

// Report records for Page.Conflicts that a rule has decided about a key: for side, or with SideBase
// for neither, so that the key has its present value in Result. A later report of a key replaces an
// earlier one. Group.Take makes its own reports. Errors: ErrInvalid, ErrTooLarge, those of ctx.
func (m *Merge) Report(ctx context.Context, key []byte, rule string, side Side) error {
	if err := checkRuleName(rule); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	c := merge.Conflict{Key: bytes.Clone(key), Rule: rule}
	switch side {
	case SideLeft:
		c.Outcome = merge.TakeLeft
	case SideRight:
		c.Outcome = merge.TakeRight
	case SideBase:
		c.Outcome = merge.TakeNone
		e, ok, err := session.Find(ctx, m.Result.Origin(), key)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if ok {
			c.Outcome, c.New = merge.TakeNew, e
		}
	default:
		return fmt.Errorf("report for side %d: %w", side, base.ErrInvalid)
	}
	if err := m.Pair.Report(ctx, &c); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Group is a set of changed keys that a GroupStrategy merges together.
type Group struct {
	// Name is the result of GroupStrategy.Group.
	Name []byte

	owner *groupMerge
	keys  []changedKey
}

// groupOwner merges a namespace by a GroupStrategy.
type groupOwner struct {
	run      *run
	strategy GroupStrategy
}

// groupMerge is the merge of one namespace in one merge of two commits.
type groupMerge struct {
	*groupOwner
	*Merge
	name    string
	changed []changedKey // by group, then key
	ended   []func()
}

// changedKey is a key that a side has changed.
type changedKey struct {
	group, key  []byte
	baseUnknown bool // the bases differ
}

// Own implements merge.Owner.
func (o *groupOwner) Own(ctx context.Context, p *merge.Pair, prefix []byte) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		g := o.begin(p, bytes.Clone(prefix))
		defer g.end()
		if err := g.merge(ctx); err != nil {
			yield(btree.Change{}, &merge.Error{Left: p.Left.ID, Right: p.Right.ID, Err: err})
			return
		}
		for c, err := range g.Result.Changes(ctx) {
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// begin makes the snapshots and the result for the strategy.
func (o *groupOwner) begin(p *merge.Pair, prefix []byte) *groupMerge {
	g := &groupMerge{groupOwner: o, Merge: &Merge{Prefix: prefix, Pair: p}}
	base := &commit.Commit{Root: p.Base.Root}
	if len(p.Bases) == 1 {
		base = p.Bases[0]
	}
	page, sink := o.run.m.page, o.run.sink
	var ends [3]func()
	g.Base, ends[0] = page.Version(base, p.Base, sink)
	g.Left, ends[1] = page.Version(p.Left, p.LeftTree, sink)
	g.Right, ends[2] = page.Version(p.Right, p.RightTree, sink)
	g.Result = page.Draft(p.Left, sink, &session.Namespace{Prefix: prefix, Holds: p.Owns})
	g.ended = append(ends[:], g.Result.Freeze)
	return g
}

// end makes everything unusable that the strategy received.
func (g *groupMerge) end() {
	for _, end := range g.ended {
		end()
	}
}

// merge calls the strategy to write the result.
func (g *groupMerge) merge(ctx context.Context) error {
	if err := g.call(func() error { g.name = g.strategy.Name(); return checkRuleName(g.name) }); err != nil {
		return err
	}
	if err := g.collect(ctx); err != nil {
		return fmt.Errorf("collect the changes of group strategy %s: %w", g.name, err)
	}
	for rest := g.changed; len(rest) > 0; {
		group := &Group{Name: rest[0].group, owner: g}
		n := slices.IndexFunc(rest, func(k changedKey) bool { return !bytes.Equal(k.group, group.Name) })
		if n < 0 {
			n = len(rest)
		}
		group.keys, rest = rest[:n], rest[n:]
		err := ctx.Err()
		if err == nil {
			err = g.call(func() error { return g.strategy.MergeGroup(ctx, g.Merge, group) })
		}
		if err != nil {
			return fmt.Errorf("merge a group by strategy %s: %w", g.name, err)
		}
	}
	if err := g.call(func() error { return g.strategy.Finish(ctx, g.Merge) }); err != nil {
		return fmt.Errorf("finish group strategy %s: %w", g.name, err)
	}
	g.Result.Freeze() // the changes yielded next must not change
	return nil
}

func (g *groupMerge) call(fn func() error) error {
	return g.run.protect("group strategy", fn)
}

// collect sorts the changed keys by group, and gives them their base entries in the result.
func (g *groupMerge) collect(ctx context.Context) error {
	for c, err := range g.Pair.Changes(ctx, g.Prefix) {
		if err != nil {
			return err
		}
		var name []byte
		err := g.call(func() error { name = g.strategy.Group(c.Key); return nil })
		if err != nil {
			return err
		}
		if len(name) > limits.MaxKeyBytes {
			return fmt.Errorf("name of a group has %d bytes, at most %d are allowed: %w", len(name), limits.MaxKeyBytes, base.ErrTooLarge)
		}
		g.changed = append(g.changed, changedKey{bytes.Clone(name), bytes.Clone(c.Key), c.BaseUnknown})
		if err := g.Result.Record(ctx, c.Key, &c.Base, c.HasBase); err != nil {
			return err
		}
	}
	slices.SortStableFunc(g.changed, func(a, b changedKey) int { return bytes.Compare(a.group, b.group) })
	return nil
}

// changes yields the changed keys of the group with their entries.
func (g *Group) changes(ctx context.Context) iter.Seq2[merge.Conflict, error] {
	return func(yield func(merge.Conflict, error) bool) {
		p := g.owner.Pair
		for _, k := range g.keys {
			c := merge.Conflict{Key: k.key, BaseUnknown: k.baseUnknown}
			var err error
			c.Base, c.HasBase, err = p.Base.Get(ctx, c.Key)
			if err == nil {
				c.Left, c.HasLeft, err = p.LeftTree.Get(ctx, c.Key)
			}
			if err == nil {
				c.Right, c.HasRight, err = p.RightTree.Get(ctx, c.Key)
			}
			if err != nil {
				yield(merge.Conflict{}, fmt.Errorf("read the changes of a group: %w", err))
				return
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Changes yields the keys of the group that a side has changed, in order. Their values can be read
// until the merge ends. The last pair has the error, if any: ErrTxDone, ErrClosed, ErrCorrupt,
// those of ctx.
func (g *Group) Changes(ctx context.Context) iter.Seq2[Conflict, error] {
	return func(yield func(Conflict, error) bool) {
		if err := session.Usable(g.owner.Result.Origin()); err != nil {
			yield(Conflict{}, err)
			return
		}
		for c, err := range g.changes(ctx) {
			if err != nil {
				yield(Conflict{}, err)
				return
			}
			if !yield(Conflict{Conflict: &c, Pair: g.owner.Pair, Origin: g.owner.Result.Origin()}, nil) {
				return
			}
		}
	}
}

// Take gives the changed keys of the group their entries of one side, with their priorities; no
// value is read. It reports, under the name of the strategy, the keys whose change on another side
// is lost. Errors: ErrInvalid, ErrTxDone, ErrClosed, ErrCorrupt, those of ctx.
func (g *Group) Take(ctx context.Context, s Side) error {
	return g.TakeThose(ctx, s, func([]byte) bool { return true })
}

// TakeThose is Take for those changed keys of the group for which want returns true. The key is
// borrowed. Errors: as Take.
func (g *Group) TakeThose(ctx context.Context, s Side, want func(key []byte) bool) error {
	if s > SideRight {
		return fmt.Errorf("take side %d: %w", s, base.ErrInvalid)
	}
	if err := session.Usable(g.owner.Result.Origin()); err != nil {
		return err
	}
	for c, err := range g.changes(ctx) {
		if err != nil {
			return err
		}
		if !want(c.Key) {
			continue
		}
		sides := [...]struct {
			e   *fb.Entry
			has bool
		}{{&c.Base, c.HasBase}, {&c.Left, c.HasLeft}, {&c.Right, c.HasRight}}
		if err := g.owner.Result.Record(ctx, c.Key, sides[s].e, sides[s].has); err != nil {
			return fmt.Errorf("take a side of a group: %w", err)
		}
		lost := false
		for _, o := range []Side{SideLeft, SideRight} {
			changed := c.BaseUnknown || !merge.SameEntry(sides[o].e, sides[o].has, &c.Base, c.HasBase)
			lost = lost || changed && !merge.SameEntry(sides[o].e, sides[o].has, sides[s].e, sides[s].has)
		}
		if !lost {
			continue
		}
		if err := g.owner.Report(ctx, c.Key, g.owner.name, s); err != nil {
			return err
		}
	}
	return nil
}

// Newest returns the side, SideLeft or SideRight, with the last write to a changed key of the
// group, by the rule of LastOneWins. Errors: as Take.
func (g *Group) Newest(ctx context.Context) (Side, error) {
	if err := session.Usable(g.owner.Result.Origin()); err != nil {
		return SideBase, err
	}
	keys := make([][]byte, 0, len(g.keys))
	for _, k := range g.keys {
		keys = append(keys, k.key)
	}
	return newestSide(ctx, g.owner.Pair, keys)
}

// Newest returns the side, SideLeft or SideRight, with the last write to one of keys, by the rule
// of LastOneWins. Keys are in ascending order, and a side has changed at least one. Errors:
// ErrCorrupt, those of ctx.
func (m *Merge) Newest(ctx context.Context, keys [][]byte) (Side, error) {
	return newestSide(ctx, m.Pair, keys)
}

func newestSide(ctx context.Context, p *merge.Pair, keys [][]byte) (Side, error) {
	o, err := p.Newest(ctx, keys)
	if err != nil {
		return SideBase, fmt.Errorf("find the newest side: %w", err)
	}
	if o == merge.TakeLeft {
		return SideLeft, nil
	}
	return SideRight, nil
}
