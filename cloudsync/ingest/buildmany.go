package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// fewTrees is how many trees are built one by one, each from the newest checkpoint before it. More
// are built together, from the first entry on.
const fewTrees = 2

// BuildTrees makes the trees of treeless commits, as BuildTree does, but of many of them with the
// log read twice in all, four times when places of values are not known. Trees on the way to them
// are stored too. What the log does not lead to from its first entry on is built one by one. It
// holds 24 bytes for each commit in the log. Errors: those of BuildTree; when a tree is gone, all
// others that are not have been built.
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID, log Past) error {
	m := &manyTrees{p: p, log: log, bases: map[uint64]uint64{}, wanted: map[uint64]*commit.Commit{}, needed: map[uint64]bool{}}
	for _, id := range ids {
		c, err := p.o.Store.Commit(ctx, id)
		if err != nil {
			return fmt.Errorf("build the tree of commit %s: %w", id, err)
		}
		held, err := p.treeHeld(ctx, c)
		if err != nil {
			return err
		}
		if !held {
			m.wanted[prefix(c.ID)] = c
		}
	}
	if len(m.wanted) > fewTrees {
		if err := m.build(ctx); err != nil && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) && !errors.Is(err, base.ErrCorrupt) {
			return err
		}
	}
	var gone error
	for _, id := range ids { // those that are left
		switch err := p.BuildTree(ctx, id, log); {
		case errors.Is(err, base.ErrGone):
			gone = err
		case err != nil:
			return err
		}
	}
	return gone
}

// manyTrees builds trees while the log passes by. Commits go by the first 8 bytes of their ids.
type manyTrees struct {
	p      *Page
	log    Past
	wanted map[uint64]*commit.Commit
	bases  map[uint64]uint64 // of commits in the log; 0: the empty tree
	needed map[uint64]bool   // commits whose diffs are applied
	s      *step             // has what is not submitted yet
	built  map[uint64]object.Digest
	put    int // bytes of nodes in s
	places bool
}

func (m *manyTrees) build(ctx context.Context) error {
	err := m.log.Entries(format.Position{}, func(e *format.Entry) error {
		for i := range e.Body.Commits {
			cc := &e.Body.Commits[i]
			if _, ok := m.bases[prefix(cc.Commit.ID)]; ok {
				continue
			}
			m.bases[prefix(cc.Commit.ID)] = 0
			if !cc.Base.Empty {
				m.bases[prefix(cc.Commit.ID)] = prefix(cc.Base.Commit)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for at := range m.wanted {
		if err := m.need(ctx, at); err != nil {
			return err
		}
	}
	if err := m.follow(ctx); err != nil {
		return err
	}
	if !m.places {
		return nil
	}
	return m.p.FindPlaces(ctx, m.log)
}

// need notes which diffs lead to a commit, unless there is one that the log does not have.
func (m *manyTrees) need(ctx context.Context, at uint64) error {
	var chain []uint64
	for at != 0 && at != prefix(commit.First().ID) && !m.needed[at] {
		_, held, err := (&builder{p: m.p}).treeful(ctx, at)
		if err != nil {
			return err
		}
		if held {
			break
		}
		next, ok := m.bases[at]
		if !ok || len(chain) > len(m.bases) {
			return nil
		}
		chain = append(chain, at)
		at = next
	}
	for _, c := range chain {
		m.needed[c] = true
	}
	return nil
}

// follow applies the diffs that are needed, in the order of the log, in which a base comes before
// what is based on it.
func (m *manyTrees) follow(ctx context.Context) error {
	m.begin()
	defer func() { m.s.end() }()
	err := m.log.Entries(format.Position{}, func(e *format.Entry) error {
		for i := range e.Body.Commits {
			if len(m.needed) == 0 {
				return errEnough
			}
			cc := &e.Body.Commits[i]
			if !m.needed[prefix(cc.Commit.ID)] {
				continue
			}
			delete(m.needed, prefix(cc.Commit.ID))
			if err := m.step(ctx, cc); err != nil {
				return nameFault(m.p.o.Names.Entry(e.Number), fmt.Errorf("commit %s: %w", cc.Commit.ID, err))
			}
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("read the log: %w", err)
	}
	return m.submit(ctx)
}

func (m *manyTrees) begin() {
	m.s, m.built, m.put = m.p.begin(rows{}), map[uint64]object.Digest{}, 0
}

// submit stores what has been built.
func (m *manyTrees) submit(ctx context.Context) error {
	if len(m.s.b.Commits) == 0 {
		return nil
	}
	if err := m.s.submit(ctx, nil); err != nil {
		return err
	}
	m.begin()
	return nil
}

// step builds the tree of a commit, if it is here without one, and the tree that its diff leads
// from is.
func (m *manyTrees) step(ctx context.Context, cc *format.CommitChange) error {
	from, ok, err := m.root(ctx, cc.Base)
	if err != nil || !ok {
		return err
	}
	c, err := m.p.o.Store.Commit(ctx, cc.Commit.ID)
	if isPruned(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := m.p.openDiff(ctx, &cc.Diff)
	if err != nil {
		return err
	}
	defer r.close()
	root, err := m.s.tree(from).Apply(ctx, &countingSink{m.s, &m.put}, changes(r, nil))
	if err != nil {
		return treeError(err)
	}
	if root != c.Root {
		return bad("the diff leads to the tree %s, the commit has %s", root, c.Root)
	}
	if err := m.look(ctx, from, root); err != nil {
		return err
	}
	m.built[prefix(c.ID)] = root
	m.s.b.Commits = append(m.s.b.Commits, storage.ReceivedCommit{Commit: c})
	if m.put < m.p.bounds.scratch && len(m.s.b.Commits) < groupCommits {
		return nil
	}
	return m.submit(ctx)
}

// root returns the root of the tree from which a diff leads, if that is here.
func (m *manyTrees) root(ctx context.Context, from format.Base) (object.Digest, bool, error) {
	if from.Empty || from.Commit == commit.First().ID {
		return btree.EmptyRoot, true, nil
	}
	if root, ok := m.built[prefix(from.Commit)]; ok {
		return root, true, nil
	}
	c, held, err := (&builder{p: m.p}).treeful(ctx, prefix(from.Commit))
	if err != nil || !held {
		return object.Digest{}, false, err
	}
	return c.Root, true, nil
}

// look looks whether there is a value of which nobody here knows where it is.
func (m *manyTrees) look(ctx context.Context, from, to object.Digest) error {
	if m.places {
		return nil
	}
	for d, err := range btree.Diff(ctx, m.s.tree(from), m.s.tree(to), nil) {
		if err != nil {
			return err
		}
		if !d.HasRight || d.Right.Inline {
			continue
		}
		st, err := m.s.look(d.Right.Digest)
		if err != nil {
			return err
		}
		if !st.held && !st.placed {
			m.places = true
			return nil
		}
	}
	return nil
}
