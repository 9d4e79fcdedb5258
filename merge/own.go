package merge

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
)

// own yields the changes of a range's owner in it. The owner runs at its first range; its changes
// wait in memory, since ranges of rules with longer prefixes may lie between.
func (j *joiner) own(ctx context.Context, r *keyRange, yield take) bool {
	changes, ran := j.owners[r.rule]
	if !ran {
		var err error
		if changes, err = j.runOwner(ctx, r.rule); err != nil {
			yield(btree.Change{}, fmt.Errorf("merge the keys with prefix %s: %w", keyText(j.rules.rules[r.rule].Prefix), err))
			return false
		}
	}
	for len(changes) > 0 && !r.behind(changes[0].Entry.Key) {
		if !yield(changes[0], nil) {
			return false
		}
		changes = changes[1:]
	}
	j.owners[r.rule] = changes
	return true
}

// runOwner returns copies of all changes of a rule's owner.
func (j *joiner) runOwner(ctx context.Context, rule int) (changes []btree.Change, err error) {
	j.p.owner = rule
	defer func() { j.p.owner = noOwner }()
	r := &j.rules.rules[rule]
	for c, err := range r.Owner.Own(ctx, j.p, r.Prefix) {
		if err == nil && !j.p.owns(c.Entry.Key) {
			err = fmt.Errorf("change key %s, for which another rule counts: %w", keyText(c.Entry.Key), base.ErrInvalid)
		}
		if err == nil && !c.Delete {
			err = j.p.adopt(ctx, &c.Entry)
		}
		if err != nil {
			return nil, err
		}
		c.Entry.Key, c.Entry.Value = bytes.Clone(c.Entry.Key), bytes.Clone(c.Entry.Value)
		changes = append(changes, c)
	}
	return changes, nil
}
