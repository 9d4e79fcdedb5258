package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/ordered/pages"
	"github.com/ledgerd/ledger/rules"
)

// Read returns the catalogue in a snapshot or transaction, in the given epoch. It is valid as long
// as r. Errors: those of metabase.Read.
func Read(ctx context.Context, r ledger.Reader, epoch uint64) (*metabase.View, error) {
	return metabase.Read(ctx, pages.Reader(r), epoch)
}

// Write returns the catalogue in a transaction and creates an absent one. Errors: those of
// metabase.Write.
func Write(ctx context.Context, tx *ledger.Tx, epoch uint64) (*metabase.Tx, error) {
	return metabase.Write(ctx, pages.Writer(tx, ledger.Eager), epoch)
}

// Rule returns the merge rule of a catalogue. A page without a catalogue may have the rule too.
func Rule() ledger.MergeRule {
	return ledger.MergeRule{Prefix: metabase.RowsPrefix(), Strategy: rules.Grouped(strategy{})}
}

// strategy merges objects, marks and locks as sets, and derives the other rows.
type strategy struct{}

func (strategy) Name() string { return "catalogue" }

func (strategy) Group(key []byte) []byte { return metabase.GroupOf(key) }

func (strategy) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	changes := func(yield func(metabase.Change, error) bool) {
		for c, err := range g.Changes(ctx) {
			change := metabase.Change{Key: c.Key, BaseUnknown: c.BaseUnknown}
			for _, v := range []struct {
				to   *[]byte
				from *ledger.Entry
			}{{&change.Base, c.Base}, {&change.Left, c.Left}, {&change.Right, c.Right}} {
				if err == nil && v.from != nil {
					*v.to, err = v.from.Value(ctx)
					*v.to = append([]byte{}, *v.to...) // an empty value is not nil
				}
			}
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
	var reports []func() error
	merge := metabase.GroupMerge{
		Name: g.Name, SeveralBases: m.Base.Commit().ID == ledger.CommitID{}, Changes: changes,
		Report: func(key []byte, rule string) {
			reports = append(reports, func() error { return m.Report(ctx, key, rule, rules.SideBase) })
		},
	}
	known, err := merge.Merge(ctx, pages.Writer(m.Result, ledger.Eager))
	if err == nil && !known {
		return newest(ctx, g)
	}
	for _, report := range reports { // after the rows are written, because a report includes their values
		err = errors.Join(err, report())
	}
	if err != nil {
		return fmt.Errorf("merge group: %w", err)
	}
	return nil
}

// newest takes the side with the later write.
func newest(ctx context.Context, g *rules.Group) error {
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}

func (strategy) Finish(context.Context, *rules.Merge) error { return nil }
