package merge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Undone is a key that a commit changed, and what Undo makes of it.
type Undone struct {
	// Kept tells that the key has been changed since, so that it stays as it is; Change is then without meaning but for its key.
	Kept   bool
	Change btree.Change
}

// Undo yields, in order of keys, what c changed against its parent, and what each key would be in head if it had not: what the parent
// has, or where c's value won over others in a later merge, the newest of those. Keys that are already so are left out. c is head or
// an ancestor of it, and parent one of c's parents.
//
// A key has been changed since when it has in head something else than in c. A value won if a merge between c and head has an
// explanation with the key and took what c has from a side that has c; what was written on top of c did not lose to it. Of values
// that lost the one with the greatest writer is the newest. Memory follows the number of merges with an explanation between c and head.
//
// The last pair has the error, if there is one. Errors: base.ErrInvalid for a parent that is none; those of the sources of v,
// *base.CorruptError, *base.FormatError, that of ctx.
func Undo(ctx context.Context, v *View, head, c, parent *commit.Commit) iter.Seq2[Undone, error] {
	return func(yield func(Undone, error) bool) {
		if !slices.Contains(c.Parents, parent.ID) {
			yield(Undone{}, fmt.Errorf("undo commit %s: %s is none of its parents: %w", c.ID, parent.ID, base.ErrInvalid))
			return
		}
		u := undoer{view: v, head: head, commit: c}
		for d, err := range btree.Diff(ctx, v.tree(parent.Root), v.tree(c.Root), nil) {
			var x Undone
			ok := false
			if err == nil {
				x, ok, err = u.key(ctx, &d)
			}
			if err != nil {
				yield(Undone{}, fmt.Errorf("undo commit %s: %w", c.ID, err))
				return
			}
			if ok && !yield(x, nil) {
				return
			}
		}
	}
}

// undoer undoes a commit in head.
type undoer struct {
	view         *View
	head, commit *commit.Commit

	settled []settled
	looked  bool // settled is complete
}

// settled is a merge between the commit and head that has an explanation.
type settled struct {
	merge       *commit.Commit
	explanation object.Digest
	parents     []*commit.Commit // the lesser first; nil before they are needed
	has         [2]ancestry      // whether the parents have the commit
}

// ancestry is what is known of whether a commit descends from another or is it.
type ancestry uint8

const (
	notKnown ancestry = iota
	descends
	strange
)

// key returns what becomes of a key, d being what the commit changed; ok is false for nothing.
func (u *undoer) key(ctx context.Context, d *btree.DiffEntry) (x Undone, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return Undone{}, false, err
	}
	now, err := u.view.hold(ctx, u.head, d.Key)
	if err != nil {
		return Undone{}, false, err
	}
	before, done := held{entry: d.Left, has: d.HasLeft}, held{entry: d.Right, has: d.HasRight}
	if !now.same(&done) {
		kept := Undone{Kept: true, Change: btree.Change{Entry: fb.Entry{Key: d.Key}}}
		return kept, !now.same(&before), nil
	}
	lost, err := u.loser(ctx, d.Key, &done)
	if err != nil {
		return Undone{}, false, err
	}
	if lost != nil {
		before = *lost
	}
	x.Change = btree.Change{Delete: !before.has, Entry: before.entry}
	x.Change.Entry.Key = d.Key
	return x, !now.same(&before), nil
}

// loser returns the newest value that has lost to what the commit gave a key, nil if there is none.
func (u *undoer) loser(ctx context.Context, key []byte, done *held) (*held, error) {
	if err := u.look(ctx); err != nil {
		return nil, err
	}
	var newest *held
	var writer *commit.Commit
	for i := range u.settled {
		lost, w, err := u.loserIn(ctx, &u.settled[i], key, done)
		if err != nil {
			return nil, fmt.Errorf("look at merge %s: %w", u.settled[i].merge.ID, err)
		}
		if lost != nil && (newest == nil || w != nil && (writer == nil || commit.Compare(w, writer) > 0)) {
			newest, writer = lost, w
		}
	}
	return newest, nil
}

// look finds the merges between the commit and head that have an explanation.
func (u *undoer) look(ctx context.Context) error {
	if u.looked || u.view.Explanation == nil {
		return nil
	}
	for c, err := range commit.Walk(ctx, u.view.Commits, []commit.ID{u.head.ID}) {
		if err != nil {
			return err
		}
		if c.Generation <= u.commit.Generation {
			break // so are all that follow
		}
		if len(c.Parents) < 2 {
			continue
		}
		root, ok, err := u.view.Explanation(ctx, c.ID)
		if err != nil {
			return fmt.Errorf("find the explanation of merge %s: %w", c.ID, err)
		}
		if ok && !root.IsZero() {
			u.settled = append(u.settled, settled{merge: c, explanation: root})
		}
	}
	u.looked = true
	return nil
}

// loserIn returns the value of a key that has lost in m to what the commit gave it, and who wrote that; nil if there is none.
func (u *undoer) loserIn(ctx context.Context, m *settled, key []byte, done *held) (*held, *commit.Commit, error) {
	d, ok, err := u.view.decisionIn(ctx, m.explanation, key)
	if err != nil || !ok || d.Outcome != TakeLeft && d.Outcome != TakeRight {
		return nil, nil, err
	}
	result, err := u.view.hold(ctx, m.merge, key)
	if err != nil || !result.same(done) {
		return nil, nil, err
	}
	winner, known := leftSide, d.RightWriter
	if d.Outcome == TakeRight {
		winner, known = rightSide, d.LeftWriter
	}
	if ok, err := u.descends(ctx, m, winner); err != nil || !ok {
		return nil, nil, err
	}
	lost, err := u.view.hold(ctx, m.parents[1-winner], key)
	if errors.Is(err, base.ErrGone) {
		return nil, nil, nil
	}
	if err != nil || lost.same(done) {
		return nil, nil, err
	}
	w, err := u.view.writer(ctx, &lost, key, known)
	if err != nil || w == nil {
		return &lost, nil, err
	}
	onTop, err := commit.IsAncestor(ctx, u.view.Commits, u.commit, w)
	if errors.Is(err, base.ErrGone) {
		return &lost, w, nil // as far as is known, it is not
	}
	if err != nil || onTop {
		return nil, nil, err
	}
	return &lost, w, nil
}

// descends reports whether a parent of m has the commit. It loads m.parents.
func (u *undoer) descends(ctx context.Context, m *settled, side int) (bool, error) {
	if m.parents == nil {
		parents, err := u.view.parents(ctx, m.merge)
		if err != nil {
			return false, err
		}
		m.parents = parents
	}
	if len(m.parents) < 2 { // one was given up, and what it had with it
		return false, nil
	}
	if m.has[side] == notKnown {
		ok, err := commit.IsAncestor(ctx, u.view.Commits, u.commit, m.parents[side])
		if err != nil && !errors.Is(err, base.ErrGone) {
			return false, err
		}
		if m.has[side] = strange; ok {
			m.has[side] = descends
		}
	}
	return m.has[side] == descends, nil
}
