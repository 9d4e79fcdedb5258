package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// NearGetter is a commit.Getter that knows the nearest ancestors of commits of which a parent was
// given up. Relate goes by these in the place of parents, so that all devices find the same bases,
// whether they have what was given up or not.
type NearGetter interface {
	commit.Getter
	// Near returns the nearest ancestors of a commit that are here; ok is false where its parents
	// say it. It may wait for a disk.
	Near(ctx context.Context, id commit.ID) (near []commit.ID, ok bool, err error)
}

// Relation says how two commits are related.
type Relation struct {
	// Bases are the maximal common ancestors, in the order of commit.Compare: at least one. When
	// one of the commits is an ancestor of the other, it is the only one.
	Bases []*commit.Commit
	// LeftOwn and RightOwn tell whether a side has, or may have had before it was pruned, a commit
	// that the other has not and that is no merge.
	LeftOwn, RightOwn bool
	// apart tells that nothing is left that both have.
	apart bool
	// ClockBack tells that a commit which only one side has was made by a clock that was behind
	// that of one of its parents.
	ClockBack bool
}

// Relate finds the common ancestors of two commits. It reads the commits between them and their
// bases, and few more. Parents that were pruned are passed over, with what is below them. When
// nothing is left that both have, the base is the first commit of the page, whose tree is empty:
// then a key that both have with different values is in conflict, and one that only one has stays.
// Errors: those of the Getter, *base.CorruptError, that of ctx.
func Relate(ctx context.Context, g commit.Getter, left, right *commit.Commit) (Relation, error) {
	return relate(ctx, g, nil, left, right)
}

// relate is Relate with commits whose trees are lost: they are no bases, and lower ones are looked
// for instead.
func relate(ctx context.Context, g commit.Getter, lost func(commit.ID) bool, left, right *commit.Commit) (Relation, error) {
	w := walkSides(g, left, right)
	var r Relation
	anyPruned := false
	for w.count[ofLeft]+w.count[ofRight]+w.count[ofBoth] > 0 {
		if err := ctx.Err(); err != nil {
			return Relation{}, fmt.Errorf("relate commits %s and %s: %w", left.ID, right.ID, err)
		}
		// The greatest generation comes first, so all children of v that matter have been here: its
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
		for _, id := range ids {
			parent, err := w.queue.Find(ctx, g, id, c)
			if errors.Is(err, base.ErrGone) {
				pruned = true
				continue
			}
			if err != nil {
				return Relation{}, fmt.Errorf("relate commits: %w", err)
			}
			r.ClockBack = r.ClockBack || (m == ofLeft || m == ofRight) && parent.Timestamp > c.Timestamp
			w.mark(parent, m)
		}
		// Below a commit whose parents were pruned may be anything: a side that shows nothing but
		// merges may have commits of its own there.
		own := pruned || len(c.Parents) < 2
		r.LeftOwn, r.RightOwn = r.LeftOwn || own && m == ofLeft, r.RightOwn || own && m == ofRight
		anyPruned = anyPruned || pruned
	}
	if len(r.Bases) == 0 && anyPruned {
		r.Bases, r.apart = []*commit.Commit{commit.First()}, true
	}
	if len(r.Bases) == 0 {
		return Relation{}, corruptCommit(right, "no ancestor in common with "+left.ID.String())
	}
	slices.SortFunc(r.Bases, commit.Compare)
	return r, nil
}

// near returns the ids of the parents of a commit, or where one was given up those of its nearest
// ancestors, and whether it was.
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

// marks say of which of two commits a commit is an ancestor, and whether it is below a common one.
type marks uint8

const (
	ofLeft marks = 1 << iota
	ofRight
	stale
	ofBoth = ofLeft | ofRight
)

// sidesWalk takes two commits and their ancestors out of a queue. A commit leaves the queue after
// all that descend from it, and it is then known which sides have it. Timestamps have no part in
// that: a child may have a lesser one.
type sidesWalk struct {
	getter commit.Getter
	queue  commit.Queue[marks]
	count  [2 * stale]int // how many commits in the queue have which marks
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
	w.count[v.Marks]-- // of none, for one that is new: that is not read
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
