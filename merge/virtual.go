package merge

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
)

// Bounds of the work for the virtual base of one merge. Histories that need more are made by
// devices whose rules disagree again and again, or by an attacker. Beyond the bounds every key in
// which two bases differ is unknown, whatever its history. That is safe, since no side can then win
// without a rule, and the same on every device.
const (
	maxVirtualDepth  = 32
	maxVirtualMerges = 256
)

// version is a commit and its content, or a merge of bases in the form of a commit.
type version struct {
	commit *commit.Commit
	tree   btree.Tree
	// unknown has the keys about which the bases disagree; they are not in tree.
	unknown btree.Tree
}

// virtuals makes the virtual base of one merge. It caches what it has made. Its counts are its own,
// so that the base does not depend on what else the pass merges (I1).
type virtuals struct {
	pass *pass
	memo map[[2]commit.ID]version
	left int // merges that may still be made with bases of their own
}

// version returns the version of a stored commit.
func (v *virtuals) version(c *commit.Commit) version {
	return version{commit: c, tree: v.pass.env.Tree(c), unknown: btree.Tree{Root: btree.EmptyRoot}}
}

// of returns the common base that replaces bases, which are in order. Bases of bases are found at a
// greater depth.
func (v *virtuals) of(ctx context.Context, bases []*commit.Commit, depth int) (version, error) {
	all := v.version(bases[0])
	for _, b := range bases[1:] {
		var err error
		if all, err = v.join(ctx, all, b, depth); err != nil {
			return version{}, err
		}
	}
	return all, nil
}

// join merges a commit into the virtual merge of others.
func (v *virtuals) join(ctx context.Context, all version, c *commit.Commit, depth int) (version, error) {
	key := [2]commit.ID{all.commit.ID, c.ID}
	if done, ok := v.memo[key]; ok {
		return done, nil
	}
	if err := ctx.Err(); err != nil {
		return version{}, err
	}
	p, blind, err := v.pair(ctx, all, v.version(c), depth)
	if err != nil {
		return version{}, err
	}
	unknown := btree.Tree{Page: p.env.Page, Source: p.env.Sink, Root: all.unknown.Root}
	j := newJoiner(p, v.pass.rules, unknown)
	j.base = &baseJoin{known: newKeySet(unknown), blind: blind}
	root, err := p.LeftTree.Apply(ctx, p.env.Sink, j.changes(ctx))
	if err != nil {
		return version{}, err
	}
	joined := version{tree: p.LeftTree}
	if root != p.LeftTree.Root { // else it may be a tree that is not here, and only LeftTree can get it
		joined.tree = btree.Tree{Page: p.env.Page, Source: p.env.Sink, Root: root}
	}
	joined.unknown = unknown
	if joined.unknown.Root, err = j.notes.Finish(ctx); err != nil {
		return version{}, fmt.Errorf("note unknown keys of a base: %w", err)
	}
	if joined.commit, err = commit.NewMerge(root, p.Left, p.Right); err != nil {
		return version{}, err
	}
	v.pass.made.commits[joined.commit.ID] = joined.commit
	v.memo[key] = joined
	return joined, nil
}

// pair readies the merge of two versions. blind says that there is no base, so that every key that
// differs is unknown.
func (v *virtuals) pair(ctx context.Context, a, b version, depth int) (p *Pair, blind bool, err error) {
	if commit.Compare(a.commit, b.commit) > 0 {
		a, b = b, a
	}
	env := v.pass.env
	p = &Pair{Left: a.commit, Right: b.commit, LeftTree: a.tree, RightTree: b.tree, env: env, owner: noOwner}
	if depth >= maxVirtualDepth || v.left == 0 {
		p.Base = p.LeftTree
		return p, true, nil
	}
	v.left--
	r, err := relate(ctx, env.Commits, env.Lost, a.commit, b.commit)
	if err != nil {
		return nil, false, err
	}
	below, err := v.of(ctx, r.Bases, depth+1)
	if err != nil {
		return nil, false, err
	}
	p.clockBack, p.Bases, p.Base, p.Unknown = r.ClockBack, r.Bases, below.tree, below.unknown
	return p, false, nil
}

// baseJoin finds the unknown keys of a virtual base.
type baseJoin struct {
	known keySet // the keys unknown before
	blind bool   // every key that differs is unknown
}

// lost reports whether a key that differs is unknown in any case.
func (b *baseJoin) lost(ctx context.Context, key []byte) (bool, error) {
	if b.blind {
		return true, nil
	}
	return b.known.has(ctx, key)
}
