package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
)

// Step is a commit that has a part in the value of a key.
type Step struct {
	Commit *commit.Commit
	// Entry is the entry of the key in Commit, if there is one.
	Entry fb.Entry
	Has   bool
	// Outcome and Rule are a merge's decision; Rule is "" when only one side had changed the key,
	// and in merges that took one side whole.
	Outcome Outcome
	Rule    string
	// Pruned says that the history below Commit was given up, so that the writer of the value is
	// unknown: the value is as old as Commit, or older. This is the last step.
	Pruned bool
	// Lost are the replaced values: for a commit with one parent the previous value, if there was
	// one. For a merge those of the parents that it did not take, absence included, but not a value
	// unchanged since before both sides.
	Lost []Lost
}

// Lost is a replaced value.
type Lost struct {
	// Parent is the parent that had it, Writer the commit that wrote it. Where older history was
	// given up, Writer is the oldest commit known to have it. It is nil when the key never had a
	// value there.
	Parent, Writer *commit.Commit
	Entry          fb.Entry
	Has            bool
}

// Why yields the commits that made the value of key in head, newest first: the merges that took it
// from one side, and last the commit that wrote it (for a value that a merge made, the merge; for
// an absent key the commit that deleted it). Where both parents of a merge have the value, it
// continues with the greater one. It yields nothing for a key that never had a value.
//
// It reads the commits down to the writer, and those down to the writers of lost values, and holds
// none of them. The last pair holds the error, if there is one. Errors: those of the sources of v,
// *base.CorruptError, *base.FormatError, that of ctx.
func Why(ctx context.Context, v *View, head *commit.Commit, key []byte) iter.Seq2[Step, error] {
	key = bytes.Clone(key)
	return func(yield func(Step, error) bool) {
		for at := head; at != nil; {
			step, from, err := why(ctx, v, at, key)
			if err != nil {
				yield(Step{}, fmt.Errorf("find why the key has what it has: commit %s: %w", at.ID, err))
				return
			}
			if step != nil && !yield(*step, nil) {
				return
			}
			at = from
		}
	}
}

// why returns the part of a commit in the value of key, nil if it has none, and the parent from
// which the value is taken, nil when there is none.
func why(ctx context.Context, v *View, c *commit.Commit, key []byte) (*Step, *commit.Commit, error) {
	at, err := v.hold(ctx, c, key)
	if err != nil {
		return nil, nil, err
	}
	parents, err := v.holdParents(ctx, &at, key)
	if err != nil || len(c.Parents) == 0 {
		return nil, nil, err
	}
	step := &Step{Commit: c, Entry: at.entry, Has: at.has}
	if len(parents) < len(c.Parents) {
		if from := at.origin(parents); from >= 0 {
			return nil, parents[from].commit, nil
		}
		if !at.has {
			return nil, nil, nil
		}
		step.Pruned = true
		return step, nil, nil
	}
	from := at.origin(parents)
	if len(parents) == 1 {
		if from >= 0 {
			return nil, parents[0].commit, nil
		}
		err = step.lose(ctx, v, &parents[0], key, commit.ID{})
		if !parents[0].has {
			step.Lost = nil
		}
		return step, nil, err
	}
	if from >= 0 && at.same(&parents[1-from]) {
		return nil, parents[from].commit, nil
	}
	if err := step.explain(ctx, v, parents, from, key); err != nil || from < 0 {
		return step, nil, err
	}
	return step, parents[from].commit, nil
}

// explain sets the decision of a merge with the given parents. from is the index of the parent
// whose value it took, negative for none.
func (s *Step) explain(ctx context.Context, v *View, parents []held, from int, key []byte) error {
	d, explained, err := v.decision(ctx, s.Commit.ID, key)
	if err != nil {
		return err
	}
	s.Rule = d.Rule
	switch {
	case from >= 0:
		s.Outcome = [...]Outcome{TakeLeft, TakeRight}[from]
	case s.Has:
		s.Outcome = TakeNew
	default:
		s.Outcome = TakeNone
	}
	writers := [...]commit.ID{d.LeftWriter, d.RightWriter}
	for i := range parents {
		if i == from {
			continue
		}
		if from >= 0 && !explained {
			changed, err := v.changedSince(ctx, parents, &parents[i], key)
			if err != nil {
				return err
			}
			if !changed {
				continue
			}
		}
		if err := s.lose(ctx, v, &parents[i], key, writers[i]); err != nil {
			return err
		}
	}
	return nil
}

// lose adds the entry of a parent to the lost values. writer is its writer, zero when unknown.
func (s *Step) lose(ctx context.Context, v *View, parent *held, key []byte, writer commit.ID) error {
	w, err := v.writer(ctx, parent, key, writer)
	if err != nil {
		return err
	}
	s.Lost = append(s.Lost, Lost{Parent: parent.commit, Writer: w, Entry: parent.entry, Has: parent.has})
	return nil
}

// held is the entry of a key in a commit.
type held struct {
	commit *commit.Commit
	entry  fb.Entry
	has    bool
}

// same reports whether both have the same entry.
func (h *held) same(o *held) bool {
	return SameEntry(&h.entry, h.has, &o.entry, o.has)
}

// origin returns the index of the parent with the same entry as h, of two such parents the greater
// one, and -1 if none has it.
func (h *held) origin(parents []held) int {
	for i := len(parents) - 1; i >= 0; i-- {
		if h.same(&parents[i]) {
			return i
		}
	}
	return -1
}

// hold returns the entry of a key in a commit.
func (v *View) hold(ctx context.Context, c *commit.Commit, key []byte) (held, error) {
	e, has, err := v.Tree(c).Get(ctx, key)
	if err != nil {
		return held{}, fmt.Errorf("read the tree of commit %s: %w", c.ID, err)
	}
	return held{c, e, has}, nil
}

// holdParents returns the entries of a key in the parents of a commit: the lesser parent first.
// Parents that were given up, or whose trees were, are left out.
func (v *View) holdParents(ctx context.Context, h *held, key []byte) ([]held, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	commits, err := v.parents(ctx, h.commit)
	if err != nil {
		return nil, err
	}
	parents := make([]held, 0, len(commits))
	for _, c := range commits {
		p := held{c, h.entry, h.has}
		if c.Root != h.commit.Root {
			p, err = v.hold(ctx, c, key)
		}
		switch {
		case errors.Is(err, base.ErrGone):
		case err != nil:
			return nil, err
		default:
			parents = append(parents, p)
		}
	}
	return parents, nil
}

// parents returns the parents of a commit, the lesser one first: left and right in a merge. Parents
// that were given up are left out.
func (v *View) parents(ctx context.Context, c *commit.Commit) ([]*commit.Commit, error) {
	parents := make([]*commit.Commit, 0, len(c.Parents))
	for _, id := range c.Parents {
		p, err := v.parent(ctx, id, c)
		if errors.Is(err, base.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parents = append(parents, p)
	}
	if len(parents) == 2 && commit.Compare(parents[0], parents[1]) > 0 {
		parents[0], parents[1] = parents[1], parents[0]
	}
	return parents, nil
}

// writer returns the commit with the given id. If the id is zero or was given up, it returns the
// last commit that Why would yield: the commit that gave the key h's entry, or the oldest one known
// to have it. It is nil when the key never had a value there.
func (v *View) writer(ctx context.Context, h *held, key []byte, known commit.ID) (*commit.Commit, error) {
	if !known.IsZero() {
		if c, err := v.commit(ctx, known); !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
			return c, err
		}
	}
	at := *h
	for !at.commit.IsFirst() {
		parents, err := v.holdParents(ctx, &at, key)
		if err != nil {
			return nil, err
		}
		from := at.origin(parents)
		switch {
		case from < 0 && len(parents) < len(at.commit.Parents) && !at.has:
			return nil, nil
		case from < 0:
			return at.commit, nil
		}
		at = parents[from]
	}
	return nil, nil
}

// decision returns the decision of a merge about a key, and whether it has one.
func (v *View) decision(ctx context.Context, merge commit.ID, key []byte) (d Decision, has bool, err error) {
	root, has, err := v.Explanation(ctx, merge)
	if err != nil || !has {
		return d, false, err
	}
	e, has, err := v.decisions(root).Get(ctx, key)
	if err == nil && has {
		d, err = DecodeDecision(e.Key, e.Value)
	}
	if err != nil {
		return d, false, fmt.Errorf("read the explanation of merge %s: %w", merge, err)
	}
	return d, has, nil
}

// changedSince reports whether a side of a merge has changed a key: it has not if all bases of the
// sides have the side's entry.
func (v *View) changedSince(ctx context.Context, sides []held, side *held, key []byte) (bool, error) {
	r, err := relate(ctx, v.Commits, v.Lost, sides[0].commit, sides[1].commit)
	if err != nil {
		return false, err
	}
	for _, b := range r.Bases {
		h, err := v.hold(ctx, b, key)
		if err != nil {
			return false, err
		}
		if !h.same(side) {
			return true, nil
		}
	}
	return false, nil
}
