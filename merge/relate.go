package merge

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// NearGetter is a commit.Getter that finds the nearest kept ancestors of commits with a parent that
// was given up. A merge uses these in place of the parents. So all devices find the same bases,
// whether or not they still have the given-up commits.
type NearGetter interface {
	commit.Getter
	// Near returns the nearest kept ancestors of a commit; ok is false if its parents are these. It
	// may wait for a disk.
	Near(ctx context.Context, id commit.ID) (near []commit.ID, ok bool, err error)
}

// Relation is the relation of two commits.
type Relation struct {
	// Bases are the maximal common ancestors, in the order of commit.Compare: at least one. When
	// one of the commits is an ancestor of the other, it is the only one.
	Bases []*commit.Commit
	// LeftOwn and RightOwn say whether a side has, or may have had before pruning, a non-merge
	// commit that the other side lacks.
	LeftOwn, RightOwn bool
	// hidden counts the sides with given-up history above the bases: with any, a base may have been
	// given up.
	hidden int
	// ClockBack says that a commit which only one side has was made by a clock behind that of one
	// of its parents.
	ClockBack bool
}

// Relate is relate where no tree is lost.
func Relate(ctx context.Context, g commit.Getter, left, right *commit.Commit) (Relation, error) {
	return relate(ctx, g, nil, left, right)
}

// relate finds the common ancestors of two commits. It reads the commits between them and their
// bases, and few more. Pruned parents are skipped, with everything below them. Commits whose trees
// are lost are no bases, and the search continues below them. When no common history is left, the
// base is the first commit of the page, whose tree is empty: a key that both have with different
// values is then in conflict, and a key that only one has stays. Errors: those of the Getter,
// *base.CorruptError, that of ctx.
func relate(ctx context.Context, g commit.Getter, lost func(commit.ID) bool, left, right *commit.Commit) (Relation, error) {
	w := walkSides(g, left, right)
	var r Relation
	var hidden marks // the sides with given-up history above the bases
	for w.count[ofLeft]+w.count[ofRight]+w.count[ofBoth] > 0 {
		if err := ctx.Err(); err != nil {
			return Relation{}, fmt.Errorf("relate commits %s and %s: %w", left.ID, right.ID, err)
		}
		// The greatest generation is first, so all relevant children of v have been visited: its
		// marks are final.
		c, m := w.next()
		if m == ofBoth && (lost == nil || !lost(c.ID)) {
			r.Bases = append(r.Bases, c)
			m |= stale
			if w.count[ofLeft]+w.count[ofRight]+w.count[ofBoth] == 0 {
				break // what is below is stale and changes nothing
			}
		}
		ids, pruned, err := near(ctx, g, c)
		if err != nil {
			return Relation{}, fmt.Errorf("relate commits: %w", err)
		}
		side := m
		for _, id := range ids {
			parent, err := w.queue.Find(ctx, g, id, c)
			if errors.Is(err, base.ErrGone) {
				pruned, side = true, ofBoth // the other side may have the commits below, too
				continue
			}
			if err != nil {
				return Relation{}, fmt.Errorf("relate commits: %w", err)
			}
			r.ClockBack = r.ClockBack || (m == ofLeft || m == ofRight) && parent.Timestamp > c.Timestamp
			w.mark(parent, m)
		}
		// Pruned history may contain anything: a side that shows only merges may have had commits
		// of its own there.
		own := pruned || len(c.Parents) < 2
		r.LeftOwn, r.RightOwn = r.LeftOwn || own && m == ofLeft, r.RightOwn || own && m == ofRight
		if pruned && m&stale == 0 {
			hidden |= side
		}
	}
	r.hidden = bits.OnesCount8(uint8(hidden))
	if len(r.Bases) == 0 && hidden > 0 {
		r.Bases = []*commit.Commit{commit.First()}
	}
	if len(r.Bases) == 0 {
		return Relation{}, corruptCommit(right, "no ancestor in common with "+left.ID.String())
	}
	slices.SortFunc(r.Bases, commit.Compare)
	return r, nil
}

// near returns the ids of the parents of a commit, or of its nearest kept ancestors if a parent was
// given up, and reports whether one was.
func near(ctx context.Context, g commit.Getter, c *commit.Commit) (ids []commit.ID, gaveUp bool, err error) {
	if n, is := g.(NearGetter); is {
		if ids, gaveUp, err = n.Near(ctx, c.ID); err != nil {
			return nil, false, fmt.Errorf("nearest ancestors of commit %s: %w", c.ID, err)
		}
	}
	if !gaveUp {
		ids = c.Parents
	}
	return ids, gaveUp, nil
}

// marks say which of two commits descend from a commit, and whether it is below a common ancestor.
type marks uint8

const (
	ofLeft marks = 1 << iota
	ofRight
	stale
	ofBoth = ofLeft | ofRight
)

// sidesWalk takes two commits and their ancestors out of a queue. A commit leaves the queue after
// all its descendants, so that it is known then which sides have it. Timestamps have no part in
// that: a child may have a lesser one.
type sidesWalk struct {
	getter commit.Getter
	queue  commit.Queue[marks]
	count  [2 * stale]int // number of commits in the queue by marks
}

func walkSides(g commit.Getter, left, right *commit.Commit) *sidesWalk {
	w := &sidesWalk{getter: g}
	w.mark(left, ofLeft)
	w.mark(right, ofRight)
	return w
}

// mark puts a commit into the queue, or adds to its marks when it is there.
func (w *sidesWalk) mark(c *commit.Commit, m marks) {
	v := w.queue.Add(c)
	w.count[v.Marks]-- // for a new commit that of none, which is not read
	v.Marks |= m
	w.count[v.Marks]++
}

func (w *sidesWalk) next() (*commit.Commit, marks) {
	v := w.queue.Next()
	w.count[v.Marks]--
	return v.Commit, v.Marks
}

func corruptCommit(c *commit.Commit, got string) error {
	return &base.CorruptError{Where: "commit", Key: c.ID.String(), Got: got}
}
