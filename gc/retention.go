package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// Policy says which commits of a page are kept. A commit stays when any of its rules keeps it. The zero value keeps all.
type Policy struct {
	// Commits keeps the newest so many, in the order of commit.Walk from the heads; 0: the rule is not there.
	Commits int
	// Age keeps commits whose timestamp is at most so long ago; 0: the rule is not there.
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
	// Heads are the heads of the page. Of several, the common ancestors are kept, with everything between: merging needs them.
	Heads []*commit.Commit
	// All are all commits of the page, in any order: those that no head reaches any more, since what was between is pruned, go as others do.
	All []commit.ID
	// Keep are further commits that stay: tagged ones, positions of handles, snapshots.
	Keep []commit.ID
	// Unsynced are commits that are still to be sent to the cloud. They stay with their parents, whose trees say what is sent, and with all that is above these: it tells which of
	// them the cloud's other commits stand on.
	Unsynced []commit.ID
}

// Prune returns the commits that the policy gives up: the newest first, then those that no head reaches. It holds two ids for each commit of the page. Errors: those of History and of ctx.
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
	oldest := now.Add(-policy.Age).UnixNano()
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
		switch {
		case kept, c.IsFirst(), c.Generation >= above:
		case policy.Commits > 0 && n <= policy.Commits:
		case policy.Age > 0 && c.Timestamp >= oldest:
		default:
			gone = append(gone, c.ID)
		}
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
		if policy.Age == 0 || c.Timestamp < oldest {
			gone = append(gone, id)
		}
	}
	return gone, nil
}

// keepUnsent adds to keep what is to be sent, and returns the generation from which on everything is kept for it: that of the oldest commit on which any of it stands.
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

// mergeFloor returns the generation from which on everything is kept, because the heads have still to be merged: that of their oldest common ancestor.
func mergeFloor(ctx context.Context, p Page) (uint64, error) {
	above := ^uint64(0)
	for i := 1; i < len(p.Heads); i++ {
		g, err := commonGeneration(ctx, p.History, p.Heads[0], p.Heads[i])
		if err != nil {
			return 0, fmt.Errorf("look for what merging needs: %w", err)
		}
		above = min(above, g)
	}
	return above, nil
}

// commonGeneration returns a generation at or below those of all latest common ancestors of two commits: it walks down from both until one of the two histories has
// nothing left of its own.
func commonGeneration(ctx context.Context, g commit.Getter, a, b *commit.Commit) (uint64, error) {
	const left, right = 1, 2
	marks := map[commit.ID]uint8{a.ID: left, b.ID: right}
	open := 0 // commits in the walk that only one side has
	count := func(m uint8, d int) {
		if m == left || m == right {
			open += d
		}
	}
	count(left, 1)
	count(right, 1)
	lowest := min(a.Generation, b.Generation)
	for c, err := range commit.Walk(ctx, g, []commit.ID{a.ID, b.ID}) {
		if err != nil {
			return 0, err
		}
		m := marks[c.ID]
		count(m, -1)
		delete(marks, c.ID)
		lowest = min(lowest, c.Generation)
		if m == left|right && open == 0 {
			return lowestOf(ctx, g, marks, lowest)
		}
		for _, parent := range c.Parents {
			old := marks[parent]
			if old == 0 {
				marks[parent] = m
				count(m, 1)
				continue
			}
			count(old, -1)
			marks[parent] = old | m
			count(old|m, 1)
		}
	}
	return 0, nil // the histories have nothing in common but what was pruned
}

// lowestOf returns the least of generation and those of the commits with marks: with several ways to merge, several of them are latest common ancestors.
func lowestOf(ctx context.Context, g commit.Getter, marks map[commit.ID]uint8, generation uint64) (uint64, error) {
	for id := range marks {
		if id == commit.First().ID {
			return 0, nil
		}
		c, err := g.Commit(ctx, id)
		if errors.Is(err, base.ErrGone) {
			continue // it cannot be kept any more
		}
		if err != nil {
			return 0, err
		}
		generation = min(generation, c.Generation)
	}
	return generation, nil
}
