package pages

import (
	"bytes"
	"context"
	"iter"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/merging"
	"github.com/ledgerd/ledger/ordered/pages"
	"github.com/ledgerd/ledger/rules"
)

// MergeRule returns the rule that merges rows of IndexedDB on a page as package indexeddb/merging
// describes. It is valid for any number of pages, also without such rows. A page must have the
// rule, from ledger.Options.MergeRules or by ledger.Page.SetMergeRules: without it a merge works
// key by key, and index rows no longer match the records.
func MergeRule() ledger.MergeRule {
	return ledger.MergeRule{Prefix: indexeddb.PagePrefix(), Strategy: rules.Grouped(strategy{})}
}

// strategy is a rules.GroupStrategy.
type strategy struct{}

func (strategy) Name() string { return merging.RuleNewest }

func (strategy) Group(key []byte) []byte { return merging.GroupOf(key) }

// MergeGroup implements rules.GroupStrategy.
func (strategy) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	run, err := of(ctx, m)
	if err != nil {
		return err
	}
	return run.Group(ctx, g.Name, group{g})
}

// of returns the Merge for m. The first call for m begins it.
func of(ctx context.Context, m *rules.Merge) (*merging.Merge, error) {
	if run, ok := m.State.(*merging.Merge); ok {
		return run, nil
	}
	run, err := merging.New(ctx, merging.Versions{
		Base: Reader(m.Base.Reader), Left: Reader(m.Left.Reader), Right: Reader(m.Right.Reader), Result: pages.Writer(m.Result, ledger.Eager),
		Newest: func(ctx context.Context, keys [][]byte) (merging.Side, error) {
			side, err := m.Newest(ctx, keys)
			if side == rules.SideLeft {
				return merging.Left, err
			}
			return merging.Right, err
		},
		Report: func(ctx context.Context, key []byte, rule string) error {
			return m.Report(ctx, key, rule, rules.SideBase)
		},
	})
	if err != nil {
		return nil, err
	}
	m.State = run
	return run, nil
}

// Finish implements rules.GroupStrategy.
func (strategy) Finish(ctx context.Context, m *rules.Merge) error {
	run, ok := m.State.(*merging.Merge)
	if !ok {
		return nil // no changes
	}
	return run.Finish(ctx)
}

// group adapts a rules.Group to merging.Group.
type group struct{ *rules.Group }

// Take implements merging.Group.
func (g group) Take(ctx context.Context, s merging.Side, want func(key []byte) bool) error {
	side := rules.SideLeft
	if s == merging.Right {
		side = rules.SideRight
	}
	return g.TakeThose(ctx, side, want)
}

// Changes implements merging.Group.
func (g group) Changes(ctx context.Context) iter.Seq2[merging.Change, error] {
	return func(yield func(merging.Change, error) bool) {
		for c, err := range g.Group.Changes(ctx) {
			if err != nil {
				yield(merging.Change{}, err)
				return
			}
			out := merging.Change{Key: bytes.Clone(c.Key), InBase: c.Base != nil, BaseUnknown: c.BaseUnknown}
			sides := [2]*ledger.Entry{c.Left, c.Right}
			for i, e := range sides {
				out.In[i] = e != nil
				differs, err := pages.Differ(ctx, c.Base, e)
				if err != nil {
					yield(out, err)
					return
				}
				out.By[i] = differs || c.BaseUnknown
			}
			differs, err := pages.Differ(ctx, c.Left, c.Right)
			out.Same = !differs
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}
