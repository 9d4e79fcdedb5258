package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// maxBases bounds the number of heads from which a difference is tried.
const maxBases = 8

// logHeads are the heads of the log at the position, as far as known says so.
type logHeads struct {
	known bool
	heads epoch.Set
}

// follow takes the heads over an entry. They must be searched for if the entry does more than add
// commits to the log.
func (h *logHeads) follow(b *bodyStep) {
	if h.known = h.known && !b.mixed; !h.known {
		return
	}
	for id := range b.short {
		h.heads = h.heads.Union(epoch.Set{id})
	}
	for _, c := range b.short {
		h.heads = h.heads.Without(parentsOf(c))
	}
}

// HeadsOfLog returns the heads of the log, in the order of commit.Compare. Errors: those of the
// store.
func (p *Page) HeadsOfLog(ctx context.Context) ([]*commit.Commit, error) {
	if !p.heads.known {
		g, unsynced, err := p.graph(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for the heads of the log: %w", err)
		}
		p.heads = logHeads{true, p.logState(g, unsynced, wire.Retention{}).Heads()}
	}
	heads, err := p.load(ctx, p.heads.heads)
	slices.SortFunc(heads, commit.Compare)
	return heads, err
}

// isPruned reports whether a commit was not found because it was given up.
func isPruned(err error) bool {
	return errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone)
}

// bases are the commits from whose trees the differences of a body may lead: heads of the log, and
// commits that the body has with their trees.
type bases struct {
	p     *Page
	heads []*commit.Commit
	body  map[commit.ID]bool
}

// of returns the trees from which the difference of c can lead: those of its parents that are in
// the body or heads of the log. If there are none, it returns all heads of the log, and the empty
// tree: a device that begins with the newest checkpoint has these.
func (b *bases) of(ctx context.Context, c *commit.Commit) (found []candidate, err error) {
	empty := candidate{tree: b.p.tree(btree.EmptyRoot)}
	for _, id := range c.Parents {
		isHead := slices.ContainsFunc(b.heads, func(h *commit.Commit) bool { return h.ID == id })
		if !isHead && !b.body[id] && id != commit.First().ID {
			continue
		}
		parent, err := b.p.o.Store.Commit(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read parent of commit %s: %w", c.ID.Short(), err)
		}
		if parent.Root == btree.EmptyRoot {
			found = append(found, empty)
		} else if found, err = b.p.addHeld(ctx, found, parent); err != nil {
			return nil, err
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	for _, h := range b.heads[max(0, len(b.heads)-maxBases):] {
		if found, err = b.p.addHeld(ctx, found, h); err != nil {
			return nil, err
		}
	}
	return append(found, empty), nil
}

// addHeld appends the tree of a commit if the tree is here and not empty.
func (p *Page) addHeld(ctx context.Context, to []candidate, c *commit.Commit) ([]candidate, error) {
	if c.Root == btree.EmptyRoot {
		return to, nil
	}
	held, err := p.o.Store.TreeHeld(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("look at the tree of commit %s: %w", c.ID.Short(), err)
	}
	if held {
		to = append(to, candidate{c.ID, p.tree(c.Root)})
	}
	return to, nil
}
