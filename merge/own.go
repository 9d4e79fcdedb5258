package merge

import (
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
)

// ownerRun is a running owner. Its changes are pulled, since ranges of rules with longer prefixes
// may lie between.
type ownerRun struct {
	next func() (btree.Change, error, bool)
	stop func()
	head btree.Change
	held bool // head was pulled and is not used yet
}

// own yields the changes of a range's owner in it.
func (j *joiner) own(ctx context.Context, r *keyRange, yield take) bool {
	run, ok := j.owners[r.rule]
	if !ok {
		run = j.startOwner(ctx, r.rule)
	}
	for {
		more, err := j.pull(run, r.rule)
		if err == nil && more && j.rules.ranges[j.rules.find(run.head.Entry.Key)].rule != r.rule {
			err = fmt.Errorf("change key %s, for which another rule counts: %w", keyText(run.head.Entry.Key), base.ErrInvalid)
		}
		if err == nil && more && r.behind(run.head.Entry.Key) {
			return true // it belongs to a later range
		}
		if err == nil && more && !run.head.Delete {
			err = j.p.adopt(ctx, &run.head.Entry)
		}
		if err != nil {
			yield(btree.Change{}, fmt.Errorf("merge the keys with prefix %s: %w", keyText(j.rules.rules[r.rule].Prefix), err))
			return false
		}
		if !more {
			return true
		}
		run.held = false
		if !yield(run.head, nil) {
			return false
		}
	}
}

func (j *joiner) startOwner(ctx context.Context, rule int) *ownerRun {
	j.p.owner = rule
	defer func() { j.p.owner = noOwner }()
	r := &j.rules.rules[rule]
	run := &ownerRun{}
	run.next, run.stop = iter.Pull2(r.Owner.Own(ctx, j.p, r.Prefix))
	j.owners[rule] = run
	return run
}

// pull ensures that the head of run is the next change, and reports whether there is one.
func (j *joiner) pull(run *ownerRun, rule int) (bool, error) {
	if run.held {
		return true, nil
	}
	j.p.owner = rule
	defer func() { j.p.owner = noOwner }()
	c, err, ok := run.next()
	if !ok || err != nil {
		return false, err
	}
	run.head, run.held = c, true
	return true, nil
}

// stopOwners stops the owners that have not finished.
func (j *joiner) stopOwners() {
	for rule, run := range j.owners {
		j.p.owner = rule
		run.stop()
	}
	j.p.owner = noOwner
}
