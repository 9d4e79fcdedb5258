package session

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// Decision is the result of a merge for one key in conflict.
type Decision struct {
	merge.Decision
	// Left, Right and Result are the entries of the merge's parents, Left of the lesser one, and of
	// the merge; nil where the key is absent.
	Left, Right, Result *fb.Entry
	// Pruned says that a parent was given up, so that only the entry of the side that the merge
	// took is known.
	Pruned bool
}

// Conflicts yields the decisions of a merge commit about the keys that begin with prefix, in order
// of keys; nothing for a merge without conflicts. The slices are borrowed. Errors, as the last
// element: base.ErrNotFound, base.ErrInvalid (the commit is no merge), base.ErrClosed,
// base.ErrCorrupt, those of ctx.
func (p *Page) Conflicts(ctx context.Context, id commit.ID, prefix []byte) iter.Seq2[Decision, error] {
	return Sequence("read the conflicts of merge "+id.Short(), func(yield func(Decision) bool) error {
		c, release, err := p.Pin(ctx, id)
		if err != nil {
			return err
		}
		defer release()
		left, right, err := p.sides(ctx, c)
		pruned := errors.Is(err, base.ErrGone)
		if err != nil && !pruned {
			return err
		}
		root, ok, err := p.explanation(ctx, c.ID)
		if err != nil || !ok {
			return err
		}
		for d, err := range merge.Decisions(ctx, p.mergeView(), root, prefix) {
			out := Decision{Decision: d, Pruned: pruned}
			if err == nil {
				out.Result, err = p.entryIn(ctx, c, d.Key)
			}
			switch {
			case err != nil:
			case !pruned:
				out.Left, err = p.entryIn(ctx, left, d.Key)
				if err == nil {
					out.Right, err = p.entryIn(ctx, right, d.Key)
				}
			case d.Outcome == merge.TakeLeft:
				out.Left = out.Result
			case d.Outcome == merge.TakeRight:
				out.Right = out.Result
			}
			if err != nil || !yield(out) {
				return err
			}
		}
		return nil
	})
}

// entryIn returns the entry of a key in a commit, nil where the key is absent.
func (p *Page) entryIn(ctx context.Context, c *commit.Commit, key []byte) (*fb.Entry, error) {
	e, ok, err := p.Tree(c).Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	return &e, nil
}

// explanation returns the root of the decisions of a merge. The caller need not have entered.
func (p *Page) explanation(ctx context.Context, id commit.ID) (root object.Digest, ok bool, err error) {
	if err := p.enter(); err != nil {
		return root, false, err
	}
	defer p.leave()
	root, ok, err = p.env.Store.Explanation(ctx, id)
	if err != nil {
		p.note(err)
	}
	return root, ok, err
}

// mergeView returns the page for package merge. The caller need not stay entered.
func (p *Page) mergeView() *merge.View {
	return &merge.View{
		Page: p.env.Store.Page(), Commits: nearCommits{getter(p.durable), p}, Tree: p.Tree,
		Nodes: enteredNodes{p}, Explanation: p.explanation,
	}
}

// nearCommits returns the nearest kept ancestors of a commit with a parent that was given up. The
// caller need not stay entered.
type nearCommits struct {
	commit.Getter
	p *Page
}

// Near implements merge.NearGetter.
func (n nearCommits) Near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	if err := n.p.enter(); err != nil {
		return nil, false, err
	}
	defer n.p.leave()
	return n.p.env.Near(ctx, id)
}

// sides returns the parents of a merge commit, the lesser first. Errors: base.ErrInvalid (the
// commit is no merge), base.ErrGone (a parent was given up).
func (p *Page) sides(ctx context.Context, c *commit.Commit) (left, right *commit.Commit, err error) {
	if len(c.Parents) != 2 {
		return nil, nil, fmt.Errorf("the commit has %d parents: %w", len(c.Parents), base.ErrInvalid)
	}
	if left, err = p.Commit(ctx, c.Parents[0]); err != nil {
		return nil, nil, err
	}
	if right, err = p.Commit(ctx, c.Parents[1]); err != nil {
		return nil, nil, err
	}
	if commit.Compare(left, right) > 0 {
		left, right = right, left
	}
	return left, right, nil
}
