package storage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// pruning keeps commits from being pruned.
type pruning struct {
	parents []*parentsSeen    // guarded by mu; one for each Prune in progress
	prunes  uint64            // guarded by mu; counts prunes: a caller that relies on a parent looks again when it has changed
	pins    map[commit.ID]int // guarded by mu
}

// parentsSeen are the parents of commits that became durable during a Prune.
type parentsSeen struct{ ids map[commit.ID]bool }

// Prune removes commits from the history. What only they reach becomes garbage (see Collector). A
// commit whose parent is pruned stays; for the parent, Commit and Known return an error that
// matches base.ErrGone. Prune skips and returns, in any order: heads, commits that a tag or a Pin
// names, the heads at the beginning of each open journal, parents of commits that are being
// submitted, and the first commit. If it skips any, err matches base.ErrConflict, and the others
// are pruned all the same. Ids that the page lacks are ignored. Unsynced commits are pruned like
// others: sync must not name them. Prune writes batches of 1024 ids and returns when they are
// durable. It reads all commits once, and takes memory in proportion to the number of ids and of
// their children. Other errors match base.ErrClosed, base.ErrReadOnly or base.ErrCorrupt, or are
// those of the disk or of ctx; some of the commits may then be pruned.
func (s *Store) Prune(ctx context.Context, ids []commit.ID) (kept []commit.ID, err error) {
	if err := s.writable(); err != nil {
		return nil, fmt.Errorf("prune commits: %w", err)
	}
	seen := &parentsSeen{map[commit.ID]bool{}}
	defer s.noteParents(seen)()
	err = s.WithReserve(ctx, func(bool) (err error) {
		kept, err = s.pruneAll(ctx, ids, seen)
		return err
	})
	if err == nil && len(kept) > 0 {
		err = fmt.Errorf("%d commits are heads, tagged or in use: %w", len(kept), base.ErrConflict)
	}
	if err != nil {
		return kept, fmt.Errorf("prune commits: %w", err)
	}
	return nil, nil
}

// pruneAll prunes commits in batches, and returns those that it skipped.
func (s *Store) pruneAll(ctx context.Context, ids []commit.ID, seen *parentsSeen) (kept []commit.ID, err error) {
	asked := make(map[commit.ID][]commit.ID, len(ids)) // with their children
	for _, id := range ids {
		asked[id] = nil
	}
	if err := s.findChildren(ctx, asked); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(asked), commit.ID.Compare), maxRecordEntries) {
		skipped, err := s.pruneSome(ctx, some, asked, seen)
		if kept = append(kept, skipped...); err != nil {
			return kept, err
		}
	}
	return kept, s.Fold(ctx)
}

// noteParents records the parents of commits that become durable, until end is called.
func (s *Store) noteParents(in *parentsSeen) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parents = append(s.parents, in)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parents = slices.DeleteFunc(s.parents, func(p *parentsSeen) bool { return p == in })
	}
}

// findChildren finds the children of each commit, and removes commits that the page lacks.
func (s *Store) findChildren(ctx context.Context, of map[commit.ID][]commit.ID) error {
	here := make(map[commit.ID]bool, len(of))
	err := s.eachRow(ctx, bucketCommits, func(_ index.Tx, k, v []byte) error {
		c, err := parseCommitRow(k, v)
		if err != nil {
			return err
		}
		if _, ok := of[c.ID]; ok {
			here[c.ID] = true
		}
		for _, p := range c.Parents {
			if list, ok := of[p]; ok && !slices.Contains(list[max(0, len(list)-1):], c.ID) {
				of[p] = append(list, c.ID)
			}
		}
		return nil
	}, nil)
	for id := range of {
		if !here[id] {
			delete(of, id)
		}
	}
	return err
}

// pruneSome prunes commits with one batch and returns those that it skipped.
func (s *Store) pruneSome(ctx context.Context, ids []commit.ID, children map[commit.ID][]commit.ID, seen *parentsSeen) (kept []commit.ID, err error) {
	if err := s.waitRoom(ctx); err != nil {
		return nil, err
	}
	if _, err := s.readTags(); err != nil { // rebuilds a damaged index, for which the append turn must not wait
		return nil, err
	}
	if err := s.appendTurn.Take(ctx); err != nil {
		return nil, err
	}
	defer s.appendTurn.Give()
	s.appendGroup() // earlier submissions count as before
	ts, err := s.readTags()
	if err != nil {
		return nil, err
	}
	err = s.appendAloneOps(func() []op {
		used := s.usedCommitsLocked()
		for _, id := range ts.tags {
			used[id] = true
		}
		maps.Copy(used, seen.ids) // they have children that were not found
		y := &syncOp{}
		named := map[commit.ID]bool{}
		for _, id := range ids {
			n := len(y.children) + len(children[id])
			if used[id] || s.pins[id] > 0 || n > maxPrunedChildren {
				kept = append(kept, id)
				continue
			}
			y.ids = append(y.ids, id)
			for _, c := range children[id] {
				if !named[c] {
					named[c] = true
					y.children = append(y.children, c)
				}
			}
		}
		if len(y.ids) == 0 {
			return nil
		}
		s.prunes++
		s.counters.wastes.Add(1)
		ops := []op{{kind: recPruned, sync: y}}
		s.over.showLocked(ops) // a later submission of a child no longer finds them
		return ops
	})
	return kept, err
}

// usedCommitsLocked returns the commits that in-memory state needs.
func (s *Store) usedCommitsLocked() map[commit.ID]bool {
	used := map[commit.ID]bool{commit.First().ID: true}
	note := func(cs []*commit.Commit) {
		for _, c := range cs {
			used[c.ID] = true
		}
	}
	note(s.heads)
	note(s.chained)
	for j := range s.journals {
		note(j.heads[0])
		note(j.heads[1])
	}
	if g := s.group; g != nil {
		for _, j := range g.journals {
			note(j.heads[0])
			note(j.heads[1])
		}
		for _, ops := range g.parts {
			for i := range ops {
				switch o := &ops[i]; {
				case o.kind == recCommit:
					used[o.commit.ID] = true
					for _, p := range o.commit.Parents {
						used[p] = true
					}
				case o.tag != nil && !o.tag.Removed:
					used[o.tag.Commit] = true
				}
			}
		}
	}
	return used
}

// pruneRows removes the rows of pruned commits, and skips commits that are not there. A pruned
// commit may be a head in a fold from the beginning of a log: compaction has then removed its
// children, which were pruned too.
func pruneRows(tx index.Tx, st *state, y *syncOp) error {
	commits := tx.Bucket(bucketCommits)
	if err := dropHeads(tx, st, y.ids); err != nil {
		return err
	}
	for _, id := range y.ids {
		v := commits.Get(id[:])
		if v == nil {
			continue
		}
		c, err := parseCommitRow(id[:], v)
		if err != nil {
			return err
		}
		if err := pruneCommit(tx, c); err != nil {
			return err
		}
	}
	for _, id := range y.children {
		v := commits.Get(id[:])
		if v == nil {
			continue
		}
		c, err := parseCommitRow(id[:], v)
		if err != nil {
			return err
		}
		for _, p := range c.Parents {
			if p != commit.First().ID && commits.Get(p[:]) == nil {
				if err := tx.Bucket(bucketShallow).Put(shallowKey(p, c.ID), nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func pruneCommit(tx index.Tx, c *commit.Commit) error {
	roots := []object.Digest{c.Root}
	if v := tx.Bucket(bucketConflicts).Get(c.ID[:]); v != nil {
		root, err := parseConflictRow(c.ID[:], v)
		if err != nil {
			return err
		}
		roots = append(roots, root)
	}
	for i := range roots {
		row, ok, err := readObjectRow(tx, &roots[i])
		if err != nil || !ok {
			return cmp.Or(err, badRow(bucketObjects, roots[i].String(), "the root of a commit has no row"))
		}
		if err := dropCommitRef(tx, row.number, c.ID); err != nil {
			return err
		}
	}
	for _, p := range c.Parents {
		if err := tx.Bucket(bucketShallow).Delete(shallowKey(p, c.ID)); err != nil {
			return err
		}
	}
	if len(c.Parents) == 2 {
		if err := tx.Bucket(bucketMerges).Delete(mergeKey(c.Parents[0], c.Parents[1], c.ID)); err != nil {
			return err
		}
	}
	for _, bucket := range []string{bucketCommits, bucketConflicts, bucketUnsynced, bucketTreeless} {
		if err := tx.Bucket(bucket).Delete(slices.Clone(c.ID[:])); err != nil {
			return err
		}
	}
	return nil
}

// dropShallow removes the rows that mark a commit as pruned, when it is received again.
func dropShallow(tx index.Tx, parent commit.ID) error {
	b := tx.Bucket(bucketShallow)
	c := b.Cursor()
	for k, _ := c.Seek(parent[:]); bytes.HasPrefix(k, parent[:]); k, _ = c.Next() {
		if err := b.Delete(bytes.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// shallowKey is the key of the row of a commit that stays although its parent was pruned.
func shallowKey(parent, child commit.ID) []byte {
	return append(parent[:len(parent):len(parent)], child[:]...)
}

// prunedParent reports whether id is a pruned parent of a commit that stays.
func prunedParent(tx index.Tx, id commit.ID) bool {
	return hasPrefix(tx.Bucket(bucketShallow).Cursor(), id[:])
}
