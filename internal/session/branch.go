package session

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// A session follows its own branch. Its position is the commit that it saw last; a reader sees the
// newest head that is that commit or descends from it. Invariants:
//
//	B1: the position is durable.
//	B2: it moves to descendants only, except to commits of the session itself, and by Refresh.
//	B3: with one head, every commit is an ancestor of that head: no commit is read.

// getter reads commits that are named by heads and other commits, with a method of Page.
type getter func(context.Context, commit.ID) (*commit.Commit, error)

// Commit implements commit.Getter.
func (g getter) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) { return g(ctx, id) }

// Commits returns a getter of commits that are named by heads and other commits. The caller of the
// getter has entered.
func (p *Page) Commits() commit.Getter { return getter(p.stored) }

// stored returns a commit, which need not be durable. The caller has entered.
func (p *Page) stored(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	c, err := p.env.Store.Known(ctx, id)
	if err != nil {
		p.note(err)
	}
	return c, err
}

// chained is stored for a caller that does not stay entered, so that Close waits for one call only.
func (p *Page) chained(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.stored(ctx, id)
}

// durable is chained, and waits until the commit is durable.
func (p *Page) durable(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	c, err := p.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	return c, p.env.Store.WaitDurable(c)
}

// newestAbove returns the newest of the heads, durable or chained ones, that is from or descends
// from it. The caller has entered the page. Errors match ErrNotFound when there is no such head,
// which happens only for a commit that this page does not have.
func (p *Page) newestAbove(ctx context.Context, from *commit.Commit, heads []*commit.Commit) (*commit.Commit, error) {
	if len(heads) == 1 {
		return heads[0], nil
	}
	for _, h := range heads { // no head descends from another
		if h.ID == from.ID {
			return h, nil
		}
	}
	for i := len(heads) - 1; i >= 0; i-- {
		above, err := commit.IsAncestor(ctx, p.Commits(), from, heads[i])
		if err != nil {
			return nil, fmt.Errorf("look for the branch of commit %s: %w", from.ID.Short(), err)
		}
		if above {
			return heads[i], nil
		}
	}
	return nil, fmt.Errorf("no head descends from commit %s: %w", from.ID.Short(), base.ErrNotFound)
}

// head returns the newest durable head of the session's branch and moves the position to it. The
// caller has entered the page.
func (p *Page) head(ctx context.Context) (*commit.Commit, error) {
	for {
		from := p.position.Load() // read before the heads, so that one of them is or descends from it
		c, err := p.newestAbove(ctx, from, p.env.Store.Heads())
		if err != nil {
			return nil, err
		}
		if c == from || p.position.CompareAndSwap(from, c) {
			return c, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// advance moves the position to a durable commit that this session has made or read, unless the
// position is already beyond it. The caller has entered the page.
func (p *Page) advance(c *commit.Commit) {
	for {
		from := p.position.Load()
		if from.ID == c.ID || from.Generation > c.Generation && p.descends(from, c) {
			return
		}
		if p.position.CompareAndSwap(from, c) {
			return
		}
	}
}

// descends reports whether c descends from a, which is durable. It returns false when the history
// cannot be read.
func (p *Page) descends(c, a *commit.Commit) bool {
	if len(p.env.Store.Heads()) == 1 {
		return true // if not, the next reader moves to the head anyway
	}
	// The walk is as long as this session's recent commits. The commit is already made, so that the
	// walk must not be cancelled.
	above, err := commit.IsAncestor(context.Background(), p.Commits(), a, c)
	return err == nil && above
}

// Refresh moves the session to the newest durable head of the page, on any branch, and returns it.
// Without Refresh a session stays on its own branch until the branches are merged. Errors:
// ErrClosed, those of ctx.
func (p *Page) Refresh(ctx context.Context) (commit.ID, error) {
	if err := p.enter(); err != nil {
		return commit.ID{}, err
	}
	defer p.leave()
	if err := ctx.Err(); err != nil {
		return commit.ID{}, fmt.Errorf("refresh: %w", err)
	}
	for {
		from := p.position.Load()
		heads := p.env.Store.Heads()
		if c := heads[len(heads)-1]; p.position.CompareAndSwap(from, c) {
			return c.ID, nil
		}
	}
}
