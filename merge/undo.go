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
// Undo reads the commits between c and head, and of their trees what differs near the keys. Memory
// is proportional to the number of these commits, of which little more than the id is held, not to
// the number of keys.
//
// The last pair holds the error, if there is one. Errors: base.ErrInvalid for a parent that is not
// c's; those of the sources of v, *base.CorruptError, *base.FormatError, that of ctx.
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
	// look fills these from the commits between the commit and head, head included. later has the
	// descendants of the commit, the oldest first; has also includes the commit itself; joins has
	// the merges.
	later []commit.ID
	has   map[commit.ID]bool
	joins []settled
}

// candidate is a key that the commit changed. It owns its slices.
type candidate struct {
	key          []byte
	before, done held // in the parent and in the commit
	kept         bool
}

// settled is a merge between the commit and head that has an explanation.
type settled struct {
	merge       *commit.Commit
	explanation object.Digest
	parents     []*commit.Commit // the lesser first; nil before they are needed
}

// differences fills the window with the commit's changes, and settles it whenever it is full. It
// returns false when the caller stops.
func (u *undoer) differences(ctx context.Context, parent *commit.Commit, yield func(Undone, error) bool) (bool, error) {
	for d, err := range btree.Diff(ctx, u.view.Tree(parent), u.view.Tree(u.commit), nil) {
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

// take adds a key to the window unless head has the parent's entry.
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

// settle yields the results for the keys of the window, and empties it. It returns false when the
// caller stops.
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
	for _, id := range u.later {
		if len(open) == 0 {
			return nil
		}
		hits, err := u.written(ctx, id, open)
		if err != nil {
			return fmt.Errorf("look what commit %s wrote: %w", id, err)
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

// written returns the indexes of the open keys that a commit wrote: all of them where that can no
// longer be found.
func (u *undoer) written(ctx context.Context, id commit.ID, open []wanted) (hits []int, err error) {
	var trees []btree.Tree
	c, err := u.view.commit(ctx, id)
	if err == nil {
		var parents []*commit.Commit
		parents, err = u.view.parents(ctx, c)
		for _, p := range parents {
			trees = append(trees, u.view.Tree(p))
		}
	}
	if err == nil && len(trees) > 0 {
		hits, err = ownChanges(ctx, u.view.Tree(c), trees, open)
	}
	if errors.Is(err, base.ErrGone) || err == nil && len(trees) == 0 {
		hits, err = make([]int, len(open)), nil
		for i := range hits {
			hits[i] = i
		}
	}
	return hits, err
}

// loser returns the newest value that lost to the commit's value of a key, nil if there is none.
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

// look finds the commits between the commit and head: its descendants, and the merges that have an
// explanation.
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
		if len(c.Parents) < 2 {
			continue
		}
		root, err := u.view.explanation(ctx, c.ID)
		if err != nil {
			return err
		}
		if !root.IsZero() {
			u.joins = append(u.joins, settled{merge: c, explanation: root})
		}
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

// loserIn returns the value of a key that lost in m to the commit's value, and its writer; nil if
// there is none.
func (u *undoer) loserIn(ctx context.Context, m *settled, key []byte, done *held) (*held, *commit.Commit, error) {
	d, ok, err := u.view.decision(ctx, m.explanation, key)
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
	if m.parents == nil {
		if m.parents, err = u.view.parents(ctx, m.merge); err != nil {
			return nil, nil, err
		}
	}
	if len(m.parents) < 2 || !u.has[m.parents[winner].ID] { // one was given up, and its entry with it
		return nil, nil, nil
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
