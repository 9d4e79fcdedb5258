package pages

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ordered/pages"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/merging"
	"github.com/ledgerd/ledger/rules"
)

// Rule is the name under which merges report lost changes.
const Rule = "permazen"

// MergeRule returns the rule for databases whose keys begin with prefix; see permazen/merging. Rows
// of the app merge key by key, and the last write wins. One rule serves any number of pages.
func MergeRule(prefix []byte) ledger.MergeRule {
	prefix = bytes.Clone(prefix)
	return ledger.MergeRule{Prefix: prefix, Strategy: rules.Grouped(strategy{prefix})}
}

// strategy is a rules.GroupStrategy. The group of a row is the object to which it may belong. The
// groups of index rows have no meaning.
type strategy struct{ prefix []byte }

// running is the state of a running merge.
type running struct {
	merge *merging.Merge
	// leftNewer covers the objects that both sides have changed.
	leftNewer map[encoding.ObjID]bool
}

func (s strategy) Name() string { return Rule }

// Group implements rules.GroupStrategy.
func (s strategy) Group(key []byte) []byte {
	key = key[len(s.prefix):]
	if len(key) > 0 && key[0] == 0 {
		if bytes.HasPrefix(key, layout.UserRows[:]) {
			return key
		}
		return key[:min(len(key), 2)]
	}
	return key[:min(len(key), layout.IDBytes)]
}

// MergeGroup implements rules.GroupStrategy.
func (s strategy) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	if bytes.HasPrefix(g.Name, layout.UserRows[:]) {
		return takeLast(ctx, g)
	}
	run, err := s.of(ctx, m)
	if err != nil {
		return err
	}
	var changed [2]bool // by left, by right
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		which := [3]bool{c.Base != nil, c.Left != nil, c.Right != nil}
		if err := run.merge.Changed(ctx, c.Key[len(s.prefix):], which); err != nil {
			return err
		}
		for i, e := range []*ledger.Entry{c.Left, c.Right} {
			if changed[i] {
				continue
			}
			d, err := pages.Differ(ctx, c.Base, e)
			if err != nil {
				return err
			}
			changed[i] = d || c.BaseUnknown
		}
	}
	id, ok := run.merge.IsObject(g.Name)
	if !ok || !changed[0] || !changed[1] {
		return nil
	}
	side, err := g.Newest(ctx)
	run.leftNewer[id] = side == rules.SideLeft
	return err
}

// takeLast keeps the row of the side that wrote last.
func takeLast(ctx context.Context, g *rules.Group) error {
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}

// of returns the state of a merge.
func (s strategy) of(ctx context.Context, m *rules.Merge) (*running, error) {
	if run, ok := m.State.(*running); ok {
		return run, nil
	}
	run := &running{leftNewer: map[encoding.ObjID]bool{}}
	var err error
	run.merge, err = merging.New(ctx, merging.Versions{
		Base: Reader(m.Base.Reader, s.prefix), Left: Reader(m.Left.Reader, s.prefix), Right: Reader(m.Right.Reader, s.prefix),
		Result:    Writer(m.Result, s.prefix),
		LeftNewer: func(id encoding.ObjID) bool { return run.leftNewer[id] },
		Report: func(ctx context.Context, key []byte, left bool) error {
			side := rules.SideRight
			if left {
				side = rules.SideLeft
			}
			return m.Report(ctx, append(bytes.Clone(s.prefix), key...), Rule, side)
		},
	})
	if err != nil {
		return nil, err
	}
	m.State = run
	return run, nil
}

// Finish implements rules.GroupStrategy.
func (s strategy) Finish(ctx context.Context, m *rules.Merge) error {
	run, ok := m.State.(*running)
	if !ok {
		return nil // only rows of the app have changed
	}
	return run.merge.Finish(ctx)
}
