package outgoing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// SyncedHeads returns the heads of what the log holds up to the page's position, in the order of
// heads: where commits are not synced, those of their ancestors that are, but for what is an
// ancestor of another one. It reads the unsynced commits, and history as far down as the oldest of
// what it finds. Errors are those of the store and of ctx.
func SyncedHeads(ctx context.Context, store *storage.Store) ([]*commit.Commit, error) {
	heads := store.Heads() // before the unsynced ones are read: what is committed in between counts there
	ids, err := store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what is not synced: %w", err)
	}
	return syncedHeads(ctx, store, heads, ids)
}

// syncedHeads is SyncedHeads for heads that were read before the unsynced commits.
func syncedHeads(ctx context.Context, store *storage.Store, heads []*commit.Commit, ids []commit.ID) ([]*commit.Commit, error) {
	if len(ids) == 0 {
		return heads, nil
	}
	unsynced := make(map[commit.ID]bool, len(ids))
	for _, id := range ids {
		unsynced[id] = true
	}
	tops, _, err := syncedTops(ctx, store, heads, unsynced)
	if err != nil {
		return nil, err
	}
	return withoutAncestors(ctx, store, tops)
}

// syncedTops returns the synced commits at which one comes from heads, through unsynced ones alone,
// and all that it has seen on the way.
func syncedTops(ctx context.Context, store *storage.Store, heads []*commit.Commit, unsynced map[commit.ID]bool) (found []*commit.Commit, seen map[commit.ID]bool, err error) {
	seen = map[commit.ID]bool{}
	for queue := heads; len(queue) > 0; {
		c := queue[0]
		queue = queue[1:]
		if seen[c.ID] {
			continue
		}
		seen[c.ID] = true
		if !unsynced[c.ID] {
			found = append(found, c)
			continue
		}
		for _, id := range c.Parents {
			parent, err := store.Known(ctx, id)
			if isPruned(err) {
				continue
			}
			if err != nil {
				return nil, nil, fmt.Errorf("look for the heads of the log: %w", err)
			}
			queue = append(queue, parent)
		}
	}
	return found, seen, nil
}

// isPruned reports whether a commit was not found since history gave it up.
func isPruned(err error) bool {
	return errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone)
}

// withoutAncestors leaves out commits that are ancestors of others, and sorts the rest as heads
// are.
func withoutAncestors(ctx context.Context, store *storage.Store, cs []*commit.Commit) ([]*commit.Commit, error) {
	var heads []*commit.Commit
	for _, c := range cs {
		covered := false
		for _, other := range cs {
			if covered || c.ID == other.ID {
				continue
			}
			var err error
			covered, err = commit.IsAncestor(ctx, knownCommits{store}, c, other)
			if errors.Is(err, base.ErrGone) { // what is between was given up, as it is of no head
				covered, err = c.Generation < other.Generation, nil
			}
			if err != nil {
				return nil, fmt.Errorf("look for the heads of the log: %w", err)
			}
		}
		if !covered {
			heads = append(heads, c)
		}
	}
	slices.SortFunc(heads, commit.Compare)
	return heads, nil
}

type knownCommits struct{ store *storage.Store }

func (k knownCommits) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	return k.store.Known(ctx, id)
}

// maxBases bounds how many heads a diff is tried from.
const maxBases = 8

// bases are the commits from whose trees the diffs of a body may lead (I1).
type bases struct {
	p *Page
	// body are the commits of the body, heads those that the log had when it was begun. unsynced
	// and tips, the heads of the page, are what heads are found from.
	body     map[commit.ID]bool
	tips     []*commit.Commit
	unsynced []commit.ID
	asked    bool
	heads    []*commit.Commit
}

// candidate is a tree from which a diff may lead.
type candidate struct {
	base format.Base
	tree btree.Tree
}

// of returns from where the diff of c can lead: its parents that are in the body or heads of the
// log. When there are none, all heads of the log, and the empty tree: these are what a device has
// that begins with the newest checkpoint.
func (b *bases) of(ctx context.Context, c *commit.Commit) ([]candidate, error) {
	if q, ok := b.p.pendingDiffOf(c.ID); ok { // it is uploaded: another base would upload it again
		if k, ok, err := b.stillGood(ctx, q.key.base); err != nil || ok {
			return []candidate{k}, err
		}
	}
	empty := candidate{format.Base{Empty: true}, b.p.tree(btree.EmptyRoot)}
	var found []candidate
	for _, id := range c.Parents {
		ok, err := b.allowed(ctx, id)
		if err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		parent, err := b.p.o.Store.Commit(ctx, id)
		if isPruned(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read parent of commit %s: %w", c.ID.Short(), err)
		}
		if parent.Root == btree.EmptyRoot {
			found = append(found, empty)
			continue
		}
		if found, err = b.add(ctx, found, parent); err != nil {
			return nil, err
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	if err := b.ask(ctx); err != nil {
		return nil, err
	}
	var err error
	for _, h := range b.heads[max(0, len(b.heads)-maxBases):] {
		if found, err = b.add(ctx, found, h); err != nil {
			return nil, err
		}
	}
	return append(found, empty), nil
}

// allowed reports whether a parent is in the body, or a head of the log.
func (b *bases) allowed(ctx context.Context, id commit.ID) (bool, error) {
	if b.body[id] {
		return true, nil
	}
	if err := b.ask(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(b.heads, func(h *commit.Commit) bool { return h.ID == id }), nil
}

// ask finds the heads of the log.
func (b *bases) ask(ctx context.Context) (err error) {
	if !b.asked {
		b.heads, err = syncedHeads(ctx, b.p.o.Store, b.tips, b.unsynced)
		b.asked = err == nil
	}
	return err
}

// add adds the tree of a commit, if it is here and not empty.
func (b *bases) add(ctx context.Context, to []candidate, c *commit.Commit) ([]candidate, error) {
	if c.Root == btree.EmptyRoot {
		return to, nil
	}
	held, err := b.p.o.Store.TreeHeld(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("look at the tree of commit %s: %w", c.ID.Short(), err)
	}
	if held {
		to = append(to, candidate{format.Base{Commit: c.ID}, b.p.tree(c.Root)})
	}
	return to, nil
}

// stillGood is uploaded, but for a base that the bucket may have given up since.
func (b *bases) stillGood(ctx context.Context, from format.Base) (k candidate, ok bool, err error) {
	if _, shallow := b.p.at(); shallow && !from.Empty {
		if ok, err := b.allowed(ctx, from.Commit); err != nil || !ok {
			return k, false, err
		}
	}
	return b.uploaded(ctx, from)
}

// uploaded returns the tree from which an uploaded diff leads, if it is here.
func (b *bases) uploaded(ctx context.Context, from format.Base) (k candidate, ok bool, err error) {
	if from.Empty {
		return candidate{from, b.p.tree(btree.EmptyRoot)}, true, nil
	}
	c, err := b.p.o.Store.Commit(ctx, from.Commit)
	if isPruned(err) {
		return k, false, nil
	}
	if err != nil {
		return k, false, fmt.Errorf("read base of a diff: %w", err)
	}
	found, err := b.add(ctx, nil, c)
	if err != nil || len(found) == 0 {
		return k, false, err
	}
	return found[0], true, nil
}
