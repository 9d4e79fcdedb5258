package gc

import (
	"context"
	"fmt"
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
	// Heads are the heads of the page. If there are several, all commits stay down to the newest
	// one through which every way from a head leads: merging needs nothing below it.
	Heads []*commit.Commit
	// All are all commits of the page, in any order. It includes commits that no head reaches any
	// more, since a commit between was pruned; they are given up like others.
	All []commit.ID
	// Keep are further commits that stay: tagged ones, positions of handles, snapshots.
	Keep []commit.ID
}

// Prune returns the commits that the policy gives up: the newest first, then those that no head
// reaches. It holds two ids for each commit of the page. Errors: those of History and of ctx.
func Prune(ctx context.Context, p Page, policy Policy, now time.Time) ([]commit.ID, error) {
	if err := policy.Check(); err != nil || policy.KeepsAll() {
		return nil, err
	}
	keep := map[commit.ID]bool{}
	for _, id := range p.Keep {
		keep[id] = true
	}
	oldest := now.Add(-policy.Age)
	isOld := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).Before(oldest) } // oldest may lie outside the range of nanoseconds
	ofFuture := func(c *commit.Commit) bool { return time.Unix(0, c.Timestamp).After(now.Add(limits.MaxAhead)) }
	below := map[commit.ID]bool{}   // parents of given-up commits that the walk has not reached
	young := map[commit.ID]bool{}   // commits kept for their age that are parents of given-up ones
	waiting := map[commit.ID]bool{} // heads and parents that the walk has not reached; one that was pruned stays
	ids := make([]commit.ID, len(p.Heads))
	for i, h := range p.Heads {
		keep[h.ID], waiting[h.ID] = true, true
		ids[i] = h.ID
	}
	var gone []commit.ID
	reached := map[commit.ID]bool{}
	n, forked := 0, true // forked until all ways from the heads lead through one commit
	for c, err := range commit.Walk(ctx, p.History, ids) {
		if err != nil {
			return nil, fmt.Errorf("decide what to keep: %w", err)
		}
		n++
		reached[c.ID] = true
		isBelow := below[c.ID]
		delete(below, c.ID)
		delete(waiting, c.ID)
		wasForked := forked
		forked = forked && len(waiting) > 0
		for _, id := range c.Parents {
			waiting[id] = true
		}
		switch {
		case keep[c.ID], wasForked, c.IsFirst():
		case policy.Commits > 0 && n <= policy.Commits:
		case policy.Age > 0 && !isOld(c):
			if isBelow && !ofFuture(c) {
				young[c.ID] = true
			}
		default:
			gone = append(gone, c.ID)
			for _, id := range c.Parents {
				below[id] = true
			}
		}
	}
	gone, err := keepAbove(ctx, p, gone, young)
	if err != nil {
		return nil, err
	}
	for _, id := range p.All {
		if reached[id] || keep[id] || id == commit.First().ID {
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
func keepAbove(ctx context.Context, p Page, gone []commit.ID, young map[commit.ID]bool) ([]commit.ID, error) {
	if len(young) == 0 {
		return gone, nil
	}
	isYoung := func(id commit.ID) bool { return young[id] }
	for _, id := range slices.Backward(gone) {
		c, err := p.History.Commit(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("decide what to keep: %w", err)
		}
		if slices.ContainsFunc(c.Parents, isYoung) {
			young[id] = true
		}
	}
	return slices.DeleteFunc(gone, isYoung), nil
}
