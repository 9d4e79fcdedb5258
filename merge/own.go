package merge

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
)

// owned holds the changes and reports of an owner that are not passed on yet. They are in memory,
// since ranges of rules with longer prefixes may lie between.
type owned struct {
	changes  []btree.Change
	reports  map[string][]byte // encoded decisions by key
	reported []string          // the keys of reports, in order
}

// own yields the changes of a range's owner in it, and notes the decisions. The owner runs at its
// first range.
func (j *joiner) own(ctx context.Context, r *keyRange, yield take) bool {
	o := j.owners[r.rule]
	if o == nil {
		var err error
		if o, err = j.runOwner(ctx, r.rule); err != nil {
			yield(btree.Change{}, fmt.Errorf("merge the keys with prefix %s: %w", keyText(j.rules.rules[r.rule].Prefix), err))
			return false
		}
		j.owners[r.rule] = o
	}
	for ; len(o.reported) > 0 && !r.behind([]byte(o.reported[0])); o.reported = o.reported[1:] {
		key := o.reported[0]
		if err := j.note(ctx, []byte(key), o.reports[key]); err != nil {
			yield(btree.Change{}, err)
			return false
		}
	}
	for ; len(o.changes) > 0 && !r.behind(o.changes[0].Entry.Key); o.changes = o.changes[1:] {
		if !yield(o.changes[0], nil) {
			return false
		}
	}
	return true
}

// runOwner returns copies of all changes and decisions of a rule's owner.
func (j *joiner) runOwner(ctx context.Context, rule int) (*owned, error) {
	o := &owned{reports: map[string][]byte{}}
	j.p.owner, j.p.reports = rule, o.reports
	defer func() { j.p.owner, j.p.reports = noOwner, nil }()
	r := &j.rules.rules[rule]
	for c, err := range r.Owner.Own(ctx, j.p, r.Prefix) {
		if err == nil && !j.p.Owns(c.Entry.Key) {
			err = fmt.Errorf("change key %s, for which another rule counts: %w", keyText(c.Entry.Key), base.ErrInvalid)
		}
		if err != nil {
			return nil, err
		}
		c.Entry.Key, c.Entry.Value = bytes.Clone(c.Entry.Key), bytes.Clone(c.Entry.Value)
		o.changes = append(o.changes, c)
	}
	o.reported = slices.Sorted(maps.Keys(o.reports))
	return o, nil
}
