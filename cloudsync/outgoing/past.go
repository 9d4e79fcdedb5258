package outgoing

import (
	"context"
	"fmt"
	"maps"
	"math"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// Past are unsynced commits that are no heads though nobody may see their children: another log had
// them, the present one does not, and what was built on them is in it, or was given up.
type Past struct {
	// Covered are ancestors of commits that the log has.
	Covered map[commit.ID]bool
	// Islands are reached from no head any more, since what was between was given up here. They go
	// up behind all others: then what stands for them is in the log.
	Islands map[commit.ID]bool
}

// Has reports whether a commit is one of them.
func (p Past) Has(id commit.ID) bool { return p.Covered[id] || p.Islands[id] }

// IsEmpty reports whether there are none.
func (p Past) IsEmpty() bool { return len(p.Covered)+len(p.Islands) == 0 }

// FindPast finds them. It reads the unsynced commits, and history as far down as the oldest of
// them. Errors are those of the store and of ctx.
func FindPast(ctx context.Context, store *storage.Store) (past Past, err error) {
	before, err := store.Unsynced(ctx)
	if err != nil || len(before) == 0 {
		return past, err
	}
	heads := store.Heads()
	chained := store.ChainedHeads()
	after, err := store.Unsynced(ctx)
	if err != nil {
		return past, err
	}
	unsynced := make(map[commit.ID]bool, len(after))
	for _, id := range after { // what is reached from heads and not among these is in the log
		unsynced[id] = true
	}
	look := map[commit.ID]bool{} // what was there before the heads were read, and is still unsynced
	oldest := uint64(math.MaxUint64)
	for _, id := range before {
		if !unsynced[id] {
			continue
		}
		c, err := store.Known(ctx, id)
		if err != nil {
			return past, fmt.Errorf("read unsynced commit: %w", err)
		}
		look[id], oldest = true, min(oldest, c.Generation)
	}
	tops, seen, err := syncedTops(ctx, store, heads, unsynced)
	if err != nil {
		return past, err
	}
	past.Covered, err = reached(ctx, store, tops, oldest, look)
	if err != nil {
		return past, err
	}
	rest := map[commit.ID]bool{}
	for id := range look {
		if !seen[id] && !past.Covered[id] {
			rest[id] = true
		}
	}
	if len(rest) == 0 {
		return past, nil
	}
	// What is being written counts here, too: it is unsynced before it is a head.
	led, err := reached(ctx, store, append(heads, chained...), oldest, rest)
	if err != nil {
		return past, err
	}
	maps.DeleteFunc(rest, func(id commit.ID, _ bool) bool { return led[id] })
	past.Islands = rest
	return past, nil
}

// reached returns which of some commits are those that are given, or ancestors of them. All are of
// generation oldest or later.
func reached(ctx context.Context, store *storage.Store, from []*commit.Commit, oldest uint64, some map[commit.ID]bool) (map[commit.ID]bool, error) {
	ids := make([]commit.ID, len(from))
	for i, c := range from {
		ids[i] = c.ID
	}
	found := map[commit.ID]bool{}
	for c, err := range commit.Walk(ctx, knownCommits{store}, ids) {
		if err != nil {
			return nil, fmt.Errorf("look for what is built on unsynced commits: %w", err)
		}
		if c.Generation < oldest {
			break
		}
		if some[c.ID] {
			found[c.ID] = true
		}
	}
	return found, nil
}
