package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// maxBases bounds the number of heads from which a difference is tried.
const maxBases = 8

// logHeads finds the heads of the log. For commits of tips outside the log it takes their nearest
// ancestors in the log, and drops ancestors of others. It reads no further down.
func (p *Page) logHeads(ctx context.Context, tips []*commit.Commit, outside func(commit.ID) bool) ([]*commit.Commit, error) {
	tops, err := p.passing(ctx, tips, outside)
	if err != nil {
		return nil, fmt.Errorf("look for the heads of the log: %w", err)
	}
	if len(tops) < 2 {
		return tops, nil
	}
	var heads []*commit.Commit
	for _, c := range tops {
		covered := false
		for _, other := range tops {
			if covered || c.ID == other.ID {
				continue
			}
			var err error
			covered, err = commit.IsAncestor(ctx, p.o.Store, c, other)
			if errors.Is(err, base.ErrGone) { // the commits between were given up, since no head needs them
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

// passing returns cs, with each commit that outside reports replaced by its nearest ancestors that
// are not outside. It leaves out the first commit.
func (p *Page) passing(ctx context.Context, cs []*commit.Commit, outside func(commit.ID) bool) (out []*commit.Commit, err error) {
	seen := map[commit.ID]bool{}
	for queue := cs; len(queue) > 0; {
		c := queue[0]
		queue = queue[1:]
		if c.IsFirst() || seen[c.ID] {
			continue
		}
		seen[c.ID] = true
		if !outside(c.ID) {
			out = append(out, c)
			continue
		}
		near, err := p.nearest(ctx, c)
		if err != nil {
			return nil, err
		}
		queue = append(queue, near...)
	}
	return out, nil
}

// nearest returns the nearest ancestors of a commit that are here, without the first commit.
func (p *Page) nearest(ctx context.Context, c *commit.Commit) (out []*commit.Commit, err error) {
	if near, ok := p.state.Near[short(c.ID)]; ok {
		return p.load(ctx, near)
	}
	for _, id := range c.Parents {
		a, err := p.o.Store.Commit(ctx, id)
		switch {
		case isPruned(err):
		case err != nil:
			return nil, fmt.Errorf("read commit %s: %w", id.Short(), err)
		case !a.IsFirst():
			out = append(out, a)
		}
	}
	return out, nil
}

// isPruned reports whether a commit was not found because it was given up.
func isPruned(err error) bool {
	return errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone)
}

// bases are the commits from whose trees the differences of a body may lead.
type bases struct {
	p *Page
	// outside reports commits that are not in the log. body are those of them that the body has
	// with their trees.
	outside func(commit.ID) bool
	body    map[commit.ID]bool
	tips    []*commit.Commit // from which heads are found
	asked   bool
	heads   []*commit.Commit
}

// of returns the trees from which the difference of c can lead: those of its parents that are in
// the body or heads of the log. If there are none, it returns all heads of the log, and the empty
// tree: a device that begins with the newest checkpoint has these.
func (b *bases) of(ctx context.Context, c *commit.Commit) (found []candidate, err error) {
	empty := candidate{tree: b.p.tree(btree.EmptyRoot)}
	for _, id := range c.Parents {
		if ok, err := b.allowed(ctx, id); err != nil || !ok {
			if err != nil {
				return nil, err
			}
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
	if err := b.ask(ctx); err != nil {
		return nil, err
	}
	for _, h := range b.heads[max(0, len(b.heads)-maxBases):] {
		if found, err = b.p.addHeld(ctx, found, h); err != nil {
			return nil, err
		}
	}
	return append(found, empty), nil
}

// allowed reports whether a parent is in the body or a head of the log.
func (b *bases) allowed(ctx context.Context, id commit.ID) (bool, error) {
	if b.body[id] || id == commit.First().ID {
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
		b.heads, err = b.p.logHeads(ctx, b.tips, b.outside)
		b.asked = err == nil
	}
	return err
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
