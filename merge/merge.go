package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// View gives read access to a page: its commits, trees and values.
type View struct {
	// Page is the id of the page, which keys the levels of its trees.
	Page [16]byte
	// Commits finds commits.
	Commits commit.Getter
	// Tree returns the tree of a commit. Reading an absent part of it may fetch that part.
	Tree func(c *commit.Commit) btree.Tree
	// Nodes reads the nodes of explanations. Heads does not use it, nor Explanation.
	Nodes btree.Source
	// Explanation returns the root of the tree of decisions of a merge commit, and whether there is
	// one.
	Explanation func(ctx context.Context, merge commit.ID) (object.Digest, bool, error)
	// Lost reports commits whose trees are lost everywhere. They count as pruned, except that the
	// search for bases continues below them. Nil: there are none.
	Lost func(commit.ID) bool
}

// Sink stores the nodes and pieces that a merge makes, and reads them again. A *storage.Journal is
// one.
type Sink interface {
	btree.Sink
	btree.Source
	split.Source
}

// Env is the page in which merges are made. Its View also reads the content of Sink, so that a
// merge sees the results of the previous merge in the same pass.
type Env struct {
	View
	// Sink stores what commits will reach, and the virtual bases on the way.
	Sink Sink
	// Pieces reads the pieces of values.
	Pieces split.Source
	// Table cuts new values into pieces.
	Table *split.Table
}

// How is the way in which a merge got its content.
type How uint8

// The ways of merging. Values are only ever added.
const (
	// Equal: both sides have the same content.
	Equal How = iota + 1
	// Subset: one side has no non-merge commit of its own; the other is taken whole.
	Subset
	// Rest: neither side has one; the greater is taken whole (I5).
	Rest
	// ThreeWay: key by key.
	ThreeWay
)

// Merged is one merge of two commits.
type Merged struct {
	// Commit is the merge commit; Left and Right are its parents, Left the lesser in the order of
	// commit.Compare.
	Commit, Left, Right *commit.Commit
	How                 How
	// Conflicts counts the decisions in Explanation, the root of a tree, see Decision. It is zero
	// when there are none.
	Conflicts   int
	Explanation object.Digest
}

// Heads merges heads into one, two at a time in the order of commit.Compare, and returns the merges
// in order: N-1 for N heads, none for one. Those between which least history was given up are
// merged first, and of these those with the latest common version. No head may be an ancestor of
// another. The content of the commits is in e.Sink; the commits are not stored. When Heads fails,
// the content of e.Sink is of no use.
//
// Errors: base.ErrInvalid for invalid heads and rules, and for answers of deciders and owners that
// violate their contract; errors of deciders and owners, wrapped; those of reading and storing;
// that of ctx. A panic of a decider or an owner is not caught.
func Heads(ctx context.Context, e *Env, rules Rules, heads []*commit.Commit) ([]Merged, error) {
	if len(heads) == 0 || slices.Contains(heads, nil) {
		return nil, fmt.Errorf("merge %d heads, some may be nil: %w", len(heads), base.ErrInvalid)
	}
	set, err := newRuleSet(rules)
	if err != nil {
		return nil, err
	}
	heads = slices.Clone(heads)
	slices.SortFunc(heads, commit.Compare)
	for tries := 1; ; tries++ {
		merged, at, err := inOrder(ctx, e, set, heads)
		if at < 2 || !errors.Is(err, errAncestor) || tries == len(heads) {
			return merged, err
		}
		// This head descends from the merge of those before it, which was given up: so these became
		// heads again, and are merged with it one by one.
		h := heads[at]
		heads = slices.Insert(slices.Delete(heads, at, at+1), 0, h)
	}
}

// errAncestor reports an attempt to merge a commit with its ancestor.
var errAncestor = fmt.Errorf("%w", base.ErrInvalid)

// inOrder merges heads in their order. at is the index of the head at which it failed.
func inOrder(ctx context.Context, e *Env, rules *ruleSet, heads []*commit.Commit) (merged []Merged, at int, err error) {
	s := newPass(e, rules)
	result, rest := heads[0], slices.Clone(heads[1:])
	for len(rest) > 0 {
		i, err := s.nearest(ctx, result, rest)
		if err != nil {
			return nil, 0, err
		}
		h := rest[i]
		m, err := s.merge(ctx, result, h)
		if err != nil {
			return nil, slices.Index(heads, h), fmt.Errorf("merge commits %s and %s: %w", result.ID, h.ID, err)
		}
		merged = append(merged, m)
		result, rest = m.Commit, slices.Delete(rest, i, i+1)
	}
	return merged, 0, nil
}

// nearest returns the index of the head that is merged with c: the first one without given-up
// history above the bases, else one with such history on one side, else any; of these the one with
// the latest base. For where the true base of two heads was given up, another head stands on both
// sides of it: both have a later base with that one.
func (s *pass) nearest(ctx context.Context, c *commit.Commit, heads []*commit.Commit) (best int, err error) {
	if len(heads) == 1 {
		return 0, nil
	}
	least, latest := 2, uint64(0)
	for i := range heads {
		r, err := relate(ctx, s.env.Commits, s.env.Lost, c, heads[i])
		if err != nil || r.hidden == 0 {
			return i, err
		}
		for _, b := range r.Bases {
			if r.hidden < least || r.hidden == least && b.Generation > latest {
				best, least, latest = i, r.hidden, b.Generation
			}
		}
	}
	return best, nil
}

// pass is one call of Heads.
type pass struct {
	// env is the caller's, except that its Getter also finds the commits of the pass.
	env   *Env
	made  *madeCommits
	rules *ruleSet
}

func newPass(e *Env, rules *ruleSet) *pass {
	made := &madeCommits{Getter: e.Commits, commits: map[commit.ID]*commit.Commit{}}
	own := *e
	own.Commits = made
	return &pass{env: &own, made: made, rules: rules}
}

// madeCommits is a Getter that also finds commits that are not stored: merges of the same pass, and
// those of virtual bases.
type madeCommits struct {
	commit.Getter
	commits map[commit.ID]*commit.Commit
}

// Commit implements commit.Getter.
func (m *madeCommits) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if c, ok := m.commits[id]; ok {
		return c, nil
	}
	return m.Getter.Commit(ctx, id)
}

// Near implements NearGetter.
func (m *madeCommits) Near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	if g, ok := m.Getter.(NearGetter); ok {
		return g.Near(ctx, id)
	}
	return nil, false, nil
}

// merge merges two commits.
func (s *pass) merge(ctx context.Context, a, b *commit.Commit) (Merged, error) {
	if err := ctx.Err(); err != nil {
		return Merged{}, err
	}
	switch c := commit.Compare(a, b); {
	case c == 0:
		return Merged{}, fmt.Errorf("a head twice: %w", base.ErrInvalid)
	case c > 0:
		a, b = b, a
	}
	m := Merged{Left: a, Right: b}
	root, err := s.root(ctx, &m)
	if err != nil {
		return Merged{}, err
	}
	if m.Commit, err = commit.NewMerge(root, a, b); err != nil {
		return Merged{}, err
	}
	s.made.commits[m.Commit.ID] = m.Commit
	return m, nil
}

// root makes the content of a merge and returns its root.
func (s *pass) root(ctx context.Context, m *Merged) (object.Digest, error) {
	if m.Left.Root == m.Right.Root && !s.rules.asksEqual {
		m.How = Equal
		return m.Left.Root, nil
	}
	r, err := relate(ctx, s.env.Commits, s.env.Lost, m.Left, m.Right)
	if err != nil {
		return object.Digest{}, err
	}
	if id := r.Bases[0].ID; id == m.Left.ID || id == m.Right.ID {
		return object.Digest{}, fmt.Errorf("commit %s is an ancestor of the other: %w", id, errAncestor)
	}
	switch {
	case !r.LeftOwn && !r.RightOwn: // I5
		m.How = Rest
		return m.Right.Root, nil
	case !r.LeftOwn:
		m.How = Subset
		return m.Right.Root, nil
	case !r.RightOwn:
		m.How = Subset
		return m.Left.Root, nil
	}
	m.How = ThreeWay
	return s.threeWay(ctx, m, &r)
}
