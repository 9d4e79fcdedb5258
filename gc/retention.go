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
// zero value keeps all commits.
type Policy struct {
	// Commits keeps that many of the newest commits, in the order of commit.Walk from the heads; 0:
	// no such rule.
	Commits int
	// Age keeps commits whose timestamp is at most this old, and their descendants; 0: no such
	// rule. A commit with a timestamp in the future stays as long as a head reaches it.
	Age time.Duration
}

// KeepsAll reports whether the policy never gives up a commit.
func (p Policy) KeepsAll() bool { return p.Commits == 0 && p.Age == 0 }

// Check returns an error that matches base.ErrInvalid for an invalid policy.
func (p Policy) Check() error {
	if p.Commits < 0 || p.Age < 0 {
		return fmt.Errorf("keep %d commits and those of the last %v: %w", p.Commits, p.Age, base.ErrInvalid)
	}
	return nil
}

// Page is the input of a decision.
type Page struct {
	// History finds durable commits.
	History commit.Getter
	// Heads are the heads of the page. If there are several, the commits that merging them needs
	// are kept: their common ancestors, the common ancestors of those where two heads have several,
	// and everything above.
	Heads []*commit.Commit
	// All are all commits of the page, in any order. It includes commits that no head reaches any
	// more, since a commit between was pruned; they are given up like others.
	All []commit.ID
	// Keep are further commits that stay: tagged ones, positions of handles, snapshots.
	Keep []commit.ID
	// Unsynced are commits that are still to be sent to the cloud. They stay, with their parents,
	// whose trees are needed for the differences to send. Everything above the parents stays too:
	// it relates them to the cloud's other commits.
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
	isOld := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).Before(oldest) } // oldest may lie outside the range of nanoseconds
	ofFuture := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).After(now.Add(limits.MaxAhead)) }
	below := map[commit.ID]struct{}{} // parents of given-up commits that the walk has not reached
	young := map[commit.ID]struct{}{} // commits kept for their age that are parents of given-up ones
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

// keepAbove removes from gone the commits that descend from young ones: they only look older,
// because their clock was slow, and without them no head reaches the young commits. gone is sorted
// by descending generation.
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

// keepUnsent adds the unsent commits and their parents to keep, and returns the generation from
// which on everything is kept for them: that of the oldest commit on which any of them is built.
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

// baseLevels bounds the levels of common ancestors of common ancestors: the depth to which package
// merge makes one base of several (maxVirtualDepth), and the bases of the last level.
const baseLevels = 33

// mergeFloor returns the generation from which on everything is kept because the heads are still to
// be merged: that of the oldest latest common ancestor of any two of them. Of several such
// ancestors merging makes one base, for which it needs their common ancestors, and so on. A device
// that had given these up would make another base, and so another merge, than the other devices.
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

// ancestry is what is known of an ancestor of several commits, the tops, before the walk reaches
// it.
type ancestry struct {
	tops *big.Int   // the tops that it is, or is an ancestor of, as bits
	ways []*big.Int // the tops of each of its children, and itself if it is one
	told bool       // not all tops have a child of it: merges need it to find what that child wrote
}

// stale reports whether all tops reach it through one child: it is then below a common ancestor of
// all tops, and so is everything below it.
func (a *ancestry) stale(all *big.Int) bool {
	return slices.ContainsFunc(a.ways, func(w *big.Int) bool { return w.Cmp(all) == 0 })
}

// latest reports whether two tops reach it through no common child: it is one of their latest
// common ancestors.
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
// be ancestors of each other. lowest is a generation at or below these ancestors, all commits
// between them and the tops, and the parents of commits that not all tops have. It walks down from
// the tops until only ancestors of a commit that all tops have are left.
func latestCommon(ctx context.Context, g commit.Getter, tops []*commit.Commit) (lowest uint64, bases []*commit.Commit, err error) {
	all, ids := new(big.Int), []commit.ID{}
	walked := map[commit.ID]*ancestry{}
	fresh := 0 // number of commits in walked that are not stale
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
