package merge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// Undone is a key that a commit changed, with the result of Undo.
type Undone struct {
	// Kept says that the key was written again since, so that it stays unchanged. Change then has
	// only the key.
	Kept   bool
	Change btree.Change
}

// Undo yields, in order of keys, the changes of c against its parent, and what each key would be in
// head without them: the parent's entry, or, where c's value won over others in a later merge, the
// newest of those. Keys that already have that entry are left out. c is head or an ancestor of
// head, and parent is one of c's parents.
//
// A key was written since when head has another entry than c, or when a commit between them wrote
// it: a commit that descends from c, is head or an ancestor of head, and has an entry that none of
// its parents has. The values do not matter, so a key that was changed twice and has c's value
// again is kept, too. A commit whose tree was given up counts as a writer of all keys.
//
// A value won if a merge between c and head has an explanation with the key and took c's entry from
// a side that has c. Of the values that lost, the one with the greatest writer is the newest.
//
// Undo reads the commits between c and head, and in each of them every key that c changed. It holds
// little more of these commits than their ids, and one key at a time.
//
// The last pair holds the error, if there is one. Errors: base.ErrInvalid for a parent that is not
// c's; those of the sources of v, *base.CorruptError, *base.FormatError, that of ctx.
func Undo(ctx context.Context, v *View, head, c, parent *commit.Commit) iter.Seq2[Undone, error] {
	return func(yield func(Undone, error) bool) {
		u := undoer{view: v, head: head, commit: c}
		if err := u.run(ctx, parent, yield); err != nil {
			yield(Undone{}, fmt.Errorf("undo commit %s: %w", c.ID, err))
		}
	}
}

// undoer undoes a commit in head.
type undoer struct {
	view         *View
	head, commit *commit.Commit

	// look fills these: later has the descendants of the commit up to head, the oldest first, and
	// has also the commit itself.
	later []commit.ID
	has   map[commit.ID]bool
}

// run yields the results, until the caller stops.
func (u *undoer) run(ctx context.Context, parent *commit.Commit, yield func(Undone, error) bool) error {
	if !slices.Contains(u.commit.Parents, parent.ID) {
		return fmt.Errorf("%s is none of its parents: %w", parent.ID, base.ErrInvalid)
	}
	for d, err := range btree.Diff(ctx, u.view.Tree(parent), u.view.Tree(u.commit), nil) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		x, done, err := u.key(ctx, &d)
		if err != nil {
			return err
		}
		if !done && !yield(x, nil) {
			return nil
		}
	}
	return nil
}

// key returns the result for a key that the commit changed; done says that head has the parent's
// entry.
func (u *undoer) key(ctx context.Context, d *btree.DiffEntry) (x Undone, done bool, err error) {
	x.Change.Entry.Key = d.Key
	before, after := held{entry: d.Left, has: d.HasLeft}, held{entry: d.Right, has: d.HasRight}
	now, err := u.view.hold(ctx, u.head, d.Key)
	if err != nil || now.same(&before) {
		return x, true, err
	}
	if x.Kept = !now.same(&after); x.Kept {
		return x, false, nil
	}
	lost, written, err := u.above(ctx, d.Key, &after)
	if x.Kept = written; err != nil || written {
		return x, false, err
	}
	if lost != nil {
		before = *lost
	}
	x.Change = btree.Change{Delete: !before.has, Entry: before.entry}
	x.Change.Entry.Key = d.Key
	return x, false, nil
}

// above goes through the commits above the commit that have it. It returns the newest value that
// lost to the commit's value of a key, nil if there is none. written says that one of them wrote
// the key, or that nobody knows that any more.
func (u *undoer) above(ctx context.Context, key []byte, done *held) (newest *held, written bool, err error) {
	if err := u.look(ctx); err != nil {
		return nil, false, err
	}
	var writer *commit.Commit
	for _, id := range u.later {
		at, parents, err := u.read(ctx, id, key)
		if errors.Is(err, base.ErrGone) || err == nil && at.origin(parents) < 0 {
			return nil, true, nil
		}
		var lost *held
		var w *commit.Commit
		if err == nil && len(parents) == 2 && at.same(done) {
			lost, w, err = u.loser(ctx, id, parents, key, done)
		}
		if err != nil {
			return nil, false, fmt.Errorf("look at commit %s: %w", id, err)
		}
		if lost != nil && (newest == nil || w != nil && (writer == nil || commit.Compare(w, writer) > 0)) {
			newest, writer = lost, w
		}
	}
	return newest, false, nil
}

// read returns the entries of a key in a commit and in its parents; see View.holdParents.
func (u *undoer) read(ctx context.Context, id commit.ID, key []byte) (at held, parents []held, err error) {
	c, err := u.view.commit(ctx, id)
	if err == nil {
		at, err = u.view.hold(ctx, c, key)
	}
	if err == nil {
		parents, err = u.view.holdParents(ctx, &at, key)
	}
	return at, parents, err
}

// look finds the commits above the commit.
func (u *undoer) look(ctx context.Context) error {
	if u.has != nil {
		return nil
	}
	type between struct {
		id      commit.ID
		parents []commit.ID
	}
	var all []between
	for c, err := range commit.Walk(ctx, u.view.Commits, []commit.ID{u.head.ID}) {
		if err != nil {
			return err
		}
		if c.Generation <= u.commit.Generation {
			break // as do all that follow
		}
		all = append(all, between{c.ID, c.Parents})
	}
	u.has = map[commit.ID]bool{u.commit.ID: true}
	for _, b := range slices.Backward(all) { // parents precede their children
		if slices.ContainsFunc(b.parents, func(id commit.ID) bool { return u.has[id] }) {
			u.has[b.id] = true
			u.later = append(u.later, b.id)
		}
	}
	return nil
}

// loser returns the value of a key that lost in a merge of parents to the commit's value, and its
// writer; nil if there is none.
func (u *undoer) loser(ctx context.Context, merge commit.ID, parents []held, key []byte, done *held) (*held, *commit.Commit, error) {
	d, _, err := u.view.decision(ctx, merge, key)
	winner, known := leftSide, d.RightWriter
	if d.Outcome == TakeRight {
		winner, known = rightSide, d.LeftWriter
	}
	lost := &parents[1-winner]
	if err != nil || d.Outcome != TakeLeft && d.Outcome != TakeRight || !u.has[parents[winner].commit.ID] || lost.same(done) {
		return nil, nil, err
	}
	// The writer does not descend from the commit, or the key would have been kept.
	w, err := u.view.writer(ctx, lost, key, known)
	return lost, w, err
}
