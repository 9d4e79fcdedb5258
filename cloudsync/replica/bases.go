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

// maxBases bounds how many heads a difference is tried from.
const maxBases = 8

// logHeads finds the heads of the log: where commits of the page are not of the log, those of their
// ancestors that are, but for what is an ancestor of another one. It reads no further down than
// that.
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

// passing returns commits without those that outside reports: their nearest ancestors stand for
// these. The first commit is left out.
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

// nearest returns the nearest ancestors of a commit that are here, but for the first commit.
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

// isPruned reports whether a commit was not found since it was given up.
func isPruned(err error) bool {
	return errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone)
}

// bases are the commits from whose trees the differences of a body may lead.
type bases struct {
	p *Page
	// outside reports commits that are none of the log, and body those of them that the body has
	// with their trees.
	outside func(commit.ID) bool
	body    map[commit.ID]bool
	tips    []*commit.Commit // from which heads are found
	asked   bool
	heads   []*commit.Commit
}

// of returns from where the difference of c can lead: its parents that are in the body or heads of
// the log. When there are none, all heads of the log, and the empty tree: these are what a device
// has that begins with the newest checkpoint.
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

// allowed reports whether a parent is in the body, or a head of the log.
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

// addHeld adds the tree of a commit, if it is here and not empty.
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
