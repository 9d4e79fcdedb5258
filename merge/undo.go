package merge

import (
	"bytes"
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
	// Kept tells that the key was written again since, so that it stays as it is. Of Change only
	// the key is set then.
	Kept   bool
	Change btree.Change
}

// Undo yields, in order of keys, what c changed against its parent, and what each key would be in
// head if c had not changed it: what the parent has, or where c's value won over others in a later
// merge, the newest of those. Keys that already have that are left out. c is head or an ancestor of
// it, and parent is one of c's parents.
//
// A key was written since when head has something else there than c, or when a commit between them
// wrote it: a commit that descends from c, that head descends from or is, and that has under the
// key what none of its parents has. The values do not matter, so a key that was changed twice and
// has c's value again stays, too. A commit whose tree was given up counts as one that wrote all.
//
// A value won if a merge between c and head has an explanation with the key and took what c has
// from a side that has c. Of values that lost the one with the greatest writer is the newest.
//
// Undo reads the commits between c and head, and of their trees what differs near the keys. Memory
// follows the number of these commits, of which little more than the id is held, and not the number
// of keys.
//
// The last pair has the error, if there is one. Errors: base.ErrInvalid for a parent that is none;
// those of the sources of v, *base.CorruptError, *base.FormatError, that of ctx.
func Undo(ctx context.Context, v *View, head, c, parent *commit.Commit) iter.Seq2[Undone, error] {
	return func(yield func(Undone, error) bool) {
		if !slices.Contains(c.Parents, parent.ID) {
			yield(Undone{}, fmt.Errorf("undo commit %s: %s is none of its parents: %w", c.ID, parent.ID, base.ErrInvalid))
			return
		}
		u := undoer{view: v, head: head, commit: c}
		more, err := u.differences(ctx, parent, yield)
		if err == nil && more {
			_, err = u.settle(ctx, yield)
		}
		if err != nil {
			yield(Undone{}, fmt.Errorf("undo commit %s: %w", c.ID, err))
		}
	}
}

// undoer undoes a commit in head.
type undoer struct {
	view         *View
	head, commit *commit.Commit

	window []candidate
	looked bool    // later and joins are complete
	later  []later // the oldest first
	joins  []settled
}

// candidate is a key that the commit changed. Its slices are owned.
type candidate struct {
	key          []byte
	before, done held // in the parent and in the commit
	kept         bool
}

// later is a commit between the commit and head, head included, that descends from the commit.
type later struct {
	id      commit.ID
	parents []commit.ID
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

// differences fills the window with what the commit changed, and settles it as often as it is full.
// It returns false when the caller wants no more.
func (u *undoer) differences(ctx context.Context, parent *commit.Commit, yield func(Undone, error) bool) (bool, error) {
	for d, err := range btree.Diff(ctx, u.view.tree(parent.Root), u.view.tree(u.commit.Root), nil) {
		if err == nil {
			err = u.take(ctx, &d)
		}
		if err != nil {
			return false, err
		}
		if len(u.window) < windowItems {
			continue
		}
		if more, err := u.settle(ctx, yield); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// take adds a key to the window unless head has under it what the parent has.
func (u *undoer) take(ctx context.Context, d *btree.DiffEntry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now, err := u.view.hold(ctx, u.head, d.Key)
	if err != nil {
		return err
	}
	before, done := held{entry: d.Left, has: d.HasLeft}, held{entry: d.Right, has: d.HasRight}
	if now.same(&before) {
		return nil
	}
	key := bytes.Clone(d.Key)
	for _, h := range []*held{&before, &done} { // a borrowed slice pins its whole node
		h.entry.Key, h.entry.Value = key, bytes.Clone(h.entry.Value)
	}
	u.window = append(u.window, candidate{key: key, before: before, done: done, kept: !now.same(&done)})
	return nil
}

// settle yields what becomes of the keys of the window, and empties it. It returns false when the
// caller wants no more.
func (u *undoer) settle(ctx context.Context, yield func(Undone, error) bool) (bool, error) {
	if err := u.keepWritten(ctx); err != nil {
		return false, err
	}
	for i := range u.window {
		c := &u.window[i]
		if c.kept {
			if !yield(Undone{Kept: true, Change: btree.Change{Entry: fb.Entry{Key: c.key}}}, nil) {
				return false, nil
			}
			continue
		}
		before := c.before
		lost, err := u.loser(ctx, c.key, &c.done)
		if err != nil {
			return false, err
		}
		if lost != nil {
			before = *lost
		}
		x := Undone{Change: btree.Change{Delete: !before.has, Entry: before.entry}}
		x.Change.Entry.Key = c.key
		if !yield(x, nil) {
			return false, nil
		}
	}
	clear(u.window)
	u.window = u.window[:0]
	return true, nil
}

// keepWritten marks those keys of the window that commits between the commit and head wrote.
func (u *undoer) keepWritten(ctx context.Context) error {
	var open []wanted
	for i := range u.window {
		if c := &u.window[i]; !c.kept {
			open = append(open, wanted{key: c.key, any: true, at: i})
		}
	}
	if len(open) == 0 {
		return nil
	}
	if err := u.look(ctx); err != nil {
		return err
	}
	for i := range u.later {
		if len(open) == 0 {
			return nil
		}
		hits, err := u.written(ctx, &u.later[i], open)
		if err != nil {
			return fmt.Errorf("look what commit %s wrote: %w", u.later[i].id, err)
		}
		for _, h := range hits {
			u.window[open[h].at].kept = true
		}
		if len(hits) > 0 {
			open = slices.DeleteFunc(open, func(w wanted) bool { return u.window[w.at].kept })
		}
	}
	return nil
}

// written returns the indexes of the open keys that a commit wrote.
func (u *undoer) written(ctx context.Context, l *later, open []wanted) ([]int, error) {
	c, err := u.view.commit(ctx, l.id)
	if err != nil {
		return nil, err
	}
	roots := make([]object.Digest, 0, len(l.parents))
	for _, id := range l.parents {
		p, err := u.view.commit(ctx, id)
		if errors.Is(err, base.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		roots = append(roots, p.Root)
	}
	switch {
	case len(roots) == 0:
		return everyIndex(open), nil
	case slices.Contains(roots, c.Root):
		return nil, nil
	}
	hits, err := ownChanges(ctx, u.view, c.Root, roots, open)
	if errors.Is(err, base.ErrGone) { // nobody knows what it wrote
		return everyIndex(open), nil
	}
	return hits, err
}

// loser returns the newest value that has lost to what the commit gave a key, nil if there is none.
func (u *undoer) loser(ctx context.Context, key []byte, done *held) (*held, error) {
	var newest *held
	var writer *commit.Commit
	for i := range u.joins {
		lost, w, err := u.loserIn(ctx, &u.joins[i], key, done)
		if err != nil {
			return nil, fmt.Errorf("look at merge %s: %w", u.joins[i].merge.ID, err)
		}
		if lost != nil && (newest == nil || w != nil && (writer == nil || commit.Compare(w, writer) > 0)) {
			newest, writer = lost, w
		}
	}
	return newest, nil
}

func everyIndex(keys []wanted) []int {
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	return all
}

// look finds the commits between the commit and head: those that descend from it, and the merges
// that have an explanation.
func (u *undoer) look(ctx context.Context) error {
	if u.looked {
		return nil
	}
	var all []later
	for c, err := range commit.Walk(ctx, u.view.Commits, []commit.ID{u.head.ID}) {
		if err != nil {
			return err
		}
		if c.Generation <= u.commit.Generation {
			break // so are all that follow
		}
		all = append(all, later{c.ID, c.Parents})
		if len(c.Parents) < 2 || u.view.Explanation == nil {
			continue
		}
		root, ok, err := u.view.Explanation(ctx, c.ID)
		if err != nil {
			return fmt.Errorf("find the explanation of merge %s: %w", c.ID, err)
		}
		if ok && !root.IsZero() {
			u.joins = append(u.joins, settled{merge: c, explanation: root})
		}
	}
	has := map[commit.ID]bool{u.commit.ID: true}
	for _, l := range slices.Backward(all) { // parents come before their children
		if slices.ContainsFunc(l.parents, func(id commit.ID) bool { return has[id] }) {
			has[l.id] = true
			u.later = append(u.later, l)
		}
	}
	u.looked = true
	return nil
}

// loserIn returns the value of a key that has lost in m to what the commit gave it, and who wrote
// that; nil if there is none.
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
	// The writer does not descend from the commit, or the key would have been kept.
	w, err := u.view.writer(ctx, &lost, key, known)
	return &lost, w, err
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
