package gc

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

// Policy says which commits of a page are kept. A commit stays when any of its rules keeps it. The
// zero value keeps all.
type Policy struct {
	// Commits keeps the newest so many, in the order of commit.Walk from the heads; 0: the rule is
	// not there.
	Commits int
	// Age keeps commits whose timestamp is at most so long ago, and what is built on them; 0: the
	// rule is not there. A commit with a timestamp of the future stays as long as a head reaches
	// it.
	Age time.Duration
}

// KeepsAll reports whether nothing is ever given up.
func (p Policy) KeepsAll() bool { return p.Commits == 0 && p.Age == 0 }

// Check returns an error that matches base.ErrInvalid for a policy that says nothing sensible.
func (p Policy) Check() error {
	if p.Commits < 0 || p.Age < 0 {
		return fmt.Errorf("keep %d commits and those of the last %v: %w", p.Commits, p.Age, base.ErrInvalid)
	}
	return nil
}

// Page is what is decided about.
type Page struct {
	// History finds commits, durable ones.
	History commit.Getter
	// Heads are the heads of the page. Of several, what merging them needs is kept: their common
	// ancestors, those of these where two heads have several, and everything above.
	Heads []*commit.Commit
	// All are all commits of the page, in any order: those that no head reaches any more, since
	// what was between is pruned, go as others do.
	All []commit.ID
	// Keep are further commits that stay: tagged ones, positions of handles, snapshots.
	Keep []commit.ID
	// Unsynced are commits that are still to be sent to the cloud. They stay with their parents,
	// whose trees say what is sent, and with all that is above these: it tells which of them the
	// cloud's other commits stand on.
	Unsynced []commit.ID
}

// Prune returns the commits that the policy gives up: the newest first, then those that no head
// reaches. It holds two ids for each commit of the page. Errors: those of History and of ctx.
func Prune(ctx context.Context, p Page, policy Policy, now time.Time) ([]commit.ID, error) {
	if err := policy.Check(); err != nil || policy.KeepsAll() {
		return nil, err
	}
	keep := map[commit.ID]struct{}{}
	for _, id := range p.Keep {
		keep[id] = struct{}{}
	}
	above, err := mergeFloor(ctx, p)
	if err != nil {
		return nil, err
	}
	sent, err := keepUnsent(ctx, p, keep)
	if err != nil {
		return nil, err
	}
	above = min(above, sent)
	oldest := now.Add(-policy.Age)
	isOld := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).Before(oldest) } // oldest may be no number of nanoseconds
	ofFuture := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).After(now.Add(limits.MaxAhead)) }
	below := map[commit.ID]struct{}{} // parents of gone commits that have not come yet
	young := map[commit.ID]struct{}{} // commits that are kept for their age, and are parents of gone ones
	ids := make([]commit.ID, len(p.Heads))
	for i, h := range p.Heads {
		keep[h.ID] = struct{}{}
		ids[i] = h.ID
	}
	var gone []commit.ID
	reached := map[commit.ID]struct{}{}
	n := 0
	for c, err := range commit.Walk(ctx, p.History, ids) {
		if err != nil {
			return nil, fmt.Errorf("decide what to keep: %w", err)
		}
		n++
		reached[c.ID] = struct{}{}
		_, kept := keep[c.ID]
		_, isBelow := below[c.ID]
		delete(below, c.ID)
		switch {
		case kept, c.IsFirst(), c.Generation >= above:
		case policy.Commits > 0 && n <= policy.Commits:
		case policy.Age > 0 && !isOld(c):
			if isBelow && !ofFuture(c) {
				young[c.ID] = struct{}{}
			}
		default:
			gone = append(gone, c.ID)
			for _, id := range c.Parents {
				below[id] = struct{}{}
			}
		}
	}
	if gone, err = keepAbove(ctx, p, gone, young); err != nil {
		return nil, err
	}
	for _, id := range p.All {
		if _, ok := reached[id]; ok || id == commit.First().ID {
			continue
		}
		if _, ok := keep[id]; ok {
			continue
		}
		c, err := p.History.Commit(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("decide what to keep: %w", err)
		}
		if policy.Age == 0 || isOld(c) || ofFuture(c) {
			gone = append(gone, id)
		}
	}
	return gone, nil
}

// keepAbove takes those commits out of gone that are built on young ones: they look older only
// because the clock that made them was behind, and without them nothing reaches what is below. gone
// has the greatest generation first.
func keepAbove(ctx context.Context, p Page, gone []commit.ID, young map[commit.ID]struct{}) ([]commit.ID, error) {
	if len(young) == 0 {
		return gone, nil
	}
	isYoung := func(id commit.ID) bool { _, ok := young[id]; return ok }
	for _, id := range slices.Backward(gone) {
		c, err := p.History.Commit(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("decide what to keep: %w", err)
		}
		if slices.ContainsFunc(c.Parents, isYoung) {
			young[id] = struct{}{}
		}
	}
	return slices.DeleteFunc(gone, isYoung), nil
}

// keepUnsent adds to keep what is to be sent, and returns the generation from which on everything
// is kept for it: that of the oldest commit on which any of it stands.
func keepUnsent(ctx context.Context, p Page, keep map[commit.ID]struct{}) (uint64, error) {
	above := ^uint64(0)
	unsynced := map[commit.ID]bool{}
	for _, id := range p.Unsynced {
		unsynced[id] = true
	}
	for _, id := range p.Unsynced {
		keep[id] = struct{}{}
		c, err := p.History.Commit(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("look for what is to be sent: %w", err)
		}
		for _, id := range c.Parents {
			keep[id] = struct{}{}
			if unsynced[id] {
				continue
			}
			if id == commit.First().ID {
				return 0, nil
			}
			parent, err := p.History.Commit(ctx, id)
			if errors.Is(err, base.ErrGone) {
				continue // it cannot be kept any more
			}
			if err != nil {
				return 0, fmt.Errorf("look for what is to be sent: %w", err)
			}
			above = min(above, parent.Generation)
		}
	}
	return above, nil
}

// baseLevels is how often common ancestors of common ancestors are looked for: as deep as package
// merge goes to make one base of several (maxVirtualDepth), and their own bases.
const baseLevels = 33

// mergeFloor returns the generation from which on everything is kept, because the heads have still
// to be merged: that of the oldest latest common ancestor of any two of them. Where there are
// several, merging makes one base of them, and needs their common ancestors for that, and so on:
// who has given these up would make another base, and another merge, than who has them.
func mergeFloor(ctx context.Context, p Page) (uint64, error) {
	above := ^uint64(0)
	tops := p.Heads
	for range baseLevels {
		if len(tops) < 2 {
			break
		}
		lowest, bases, err := latestCommon(ctx, p.History, tops)
		if err != nil {
			return 0, fmt.Errorf("look for what merging needs: %w", err)
		}
		above, tops = min(above, lowest), bases
	}
	return above, nil
}

// ancestry is what is known of an ancestor of several commits, the tops, before the walk comes to
// it.
type ancestry struct {
	tops *big.Int   // those that it is, or is an ancestor of, as bits
	ways []*big.Int // the tops of each of its children, and itself if it is one
	told bool       // it tells what a child changed that not all tops have: who wrote what is asked in merges
}

// stale reports whether all tops come to it by one way, so that it is below a common ancestor of
// all, as everything below it is.
func (a *ancestry) stale(all *big.Int) bool {
	return slices.ContainsFunc(a.ways, func(w *big.Int) bool { return w.Cmp(all) == 0 })
}

// latest reports whether two tops come to it by no way together: it is one of their latest common
// ancestors.
func (a *ancestry) latest() bool {
	for i := range a.tops.BitLen() {
		if a.tops.Bit(i) == 0 {
			continue
		}
		beside := new(big.Int)
		for _, w := range a.ways {
			if w.Bit(i) == 1 {
				beside.Or(beside, w)
			}
		}
		if beside.Cmp(a.tops) != 0 {
			return true
		}
	}
	return false
}

// latestCommon returns the latest common ancestors of any two of some commits, the tops, which may
// be ancestors of each other, and a generation at or below these, all that is between them and the
// tops, and the parents of what not all tops have. It walks down from all of them until nothing is
// left that is no ancestor of a commit which all have.
func latestCommon(ctx context.Context, g commit.Getter, tops []*commit.Commit) (lowest uint64, bases []*commit.Commit, err error) {
	all, ids := new(big.Int), []commit.ID{}
	walked := map[commit.ID]*ancestry{}
	fresh := 0 // how many of walked are not stale
	reach := func(id commit.ID, way *big.Int) {
		a := walked[id]
		if a == nil {
			a = &ancestry{tops: new(big.Int)}
			walked[id] = a
			fresh++
		}
		if a.stale(all) {
			return
		}
		a.tops.Or(a.tops, way)
		if a.ways = append(a.ways, way); a.stale(all) {
			fresh--
		}
	}
	for _, c := range tops {
		if !slices.Contains(ids, c.ID) {
			all.SetBit(all, len(ids), 1)
			ids = append(ids, c.ID)
		}
	}
	for i, id := range ids {
		reach(id, new(big.Int).SetBit(new(big.Int), i, 1))
	}
	lowest = ^uint64(0)
	for c, err := range commit.Walk(ctx, g, ids) {
		if err != nil {
			return 0, nil, err
		}
		if fresh == 0 {
			break
		}
		a := walked[c.ID]
		delete(walked, c.ID)
		lowest = c.Generation
		if !a.stale(all) {
			fresh--
			if a.latest() {
				bases = append(bases, c)
			}
		}
		for _, id := range c.Parents {
			reach(id, a.tops)
			walked[id].told = walked[id].told || a.tops.Cmp(all) != 0
		}
	}
	for id, a := range walked {
		if !a.told {
			continue
		}
		if id == commit.First().ID {
			return 0, bases, nil
		}
		c, err := g.Commit(ctx, id)
		if errors.Is(err, base.ErrGone) {
			continue // it cannot be kept any more
		}
		if err != nil {
			return 0, nil, err
		}
		lowest = min(lowest, c.Generation)
	}
	return lowest, bases, nil
}
