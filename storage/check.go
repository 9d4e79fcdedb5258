package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// maxProblems bounds each list in the reports of Check and Salvage.
const maxProblems = 1000

// CheckOptions control Check.
type CheckOptions struct {
	// Progress, if not nil, receives the bytes of segments verified so far and their total. It must
	// not block.
	Progress func(done, total int64)
}

// CheckReport is the result of Check.
type CheckReport struct {
	// Numbers of verified items.
	Pieces, Nodes, Commits, Explanations, Rows int
	// Bytes is the length of the segments.
	Bytes int64
	// Problems are errors that match base.ErrCorrupt and name a row, an object or a place. More
	// says that the list is truncated.
	Problems []error
	More     bool
	// Missing counts missing pieces: values need them, the page lacks them, and no device has sent
	// them to the bucket (see MissingPieces). MissingPieces are the first of them, at most 1000.
	// That is no damage of this page.
	Missing       int
	MissingPieces []object.Digest
	// Away counts pieces of values that the page lacks and the bucket has. They were not verified.
	Away int
	// Holes are commits whose trees lack a part that was damaged, as a repair has recorded, and
	// heads and unsynced commits without trees. They count as damage no more.
	Holes []commit.ID
	// Recovery is what Open had to repair.
	Recovery Recovery
}

// Clean reports whether there are no problems.
func (r *CheckReport) Clean() bool { return len(r.Problems) == 0 }

// Check verifies everything: each batch, record and digest of the log; each row of page.db against
// the rows of an index that is folded from the log again, except those that are only about garbage;
// each commit, its tree, the explanation of
// a merge, and the values in these trees, with their references. If page.db cannot be
// brought up to date, as in a page open for reading, its rows are not compared. Check folds first,
// and needs space for a second index in the system's directory for temporary files, or in memory
// for a page whose index is there. Problems are in the report; an error is returned when the check
// itself cannot continue: that of ctx or of the disk.
func (s *Store) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := &checker{s: s, o: o, ctx: ctx, report: &CheckReport{Recovery: s.Recovery()}}
	if s.foldable() && s.writable() == nil {
		err := s.Fold(ctx)
		if err != nil && !errors.Is(err, base.ErrCorrupt) {
			return nil, err
		}
		c.folded = err == nil
	}
	db, remove, err := s.scratchIndex()
	if err != nil {
		return nil, err
	}
	defer remove()
	c.fresh = db
	if err := c.run(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.report.Recovery = s.Recovery() // the index may have been rebuilt meanwhile
	return c.report, db.Close()
}

// scratchIndex opens an empty index. After it is closed, remove deletes its files.
func (s *Store) scratchIndex() (db index.DB, remove func(), err error) {
	if s.o.MemoryIndex != nil {
		return index.NewMemory(), func() {}, nil
	}
	dir, err := os.MkdirTemp("", "ledger-check-")
	if err != nil {
		return nil, nil, fmt.Errorf("make room for a second index: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) } // errors are ignored: nothing can be done about them
	db, err = index.OpenFile(filepath.Join(dir, indexName), index.Options{NoSync: true})
	if err != nil {
		remove()
		return nil, nil, err
	}
	remove() // where an open file can be removed: a kill of the process then leaves nothing
	return db, remove, nil
}

type checker struct {
	s      *Store
	o      CheckOptions
	ctx    context.Context
	report *CheckReport
	fresh  index.DB // folded from scratch
	tx     index.Tx // of fresh, once it has all of the log
	build  *rebuilder
	walk   treeWalk         // of the trees of the commits
	folded bool             // page.db has all that was durable at the beginning: no unfinished fold
	heads  []*commit.Commit // durable when the check began
}

// problem records err when it is about corrupt data, and returns it otherwise.
func (c *checker) problem(err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrNotFound) && !errors.Is(err, base.ErrUnsupported) {
		return err
	}
	c.record(err)
	return nil
}

// record records an error about corrupt data.
func (c *checker) record(err error) {
	if len(c.report.Problems) >= maxProblems {
		c.report.More = true
		return
	}
	c.report.Problems = append(c.report.Problems, err)
}

func (c *checker) run() error {
	s := c.s
	st, err := initIndex(c.fresh, s.o.Identity)
	if err != nil {
		return err
	}
	c.build = newRebuilder(s, c.fresh, &st)
	c.heads = s.Heads()
	s.foldTurn.Wait() // no fold runs while rows are compared
	defer s.foldTurn.Give()
	reflected := s.state.position.Number
	compared := false
	compare := func() error {
		compared = true
		if err := c.build.end(c.ctx); err != nil {
			return err
		}
		return c.compareRows()
	}
	// Batches that are appended from now on do not count: their nodes are not surveyed.
	ends := map[uint32]uint64{}
	err = c.build.survey(c.ctx, reflected, func(fn func(segment.BatchInfo, []op) error) error {
		return s.eachBatch(c.ctx, math.MaxUint64)(func(info segment.BatchInfo, ops []op) error {
			ends[info.Segment] = info.End
			return fn(info, ops)
		})
	})
	if err != nil {
		return c.problem(err)
	}
	for _, g := range s.log.Segments() {
		c.report.Bytes += int64(g.SyncedEnd)
	}
	var done int64
	err = s.log.Verify(c.ctx, func(info segment.BatchInfo, records []segment.Record) error {
		if info.End > ends[info.Segment] {
			return nil
		}
		if info.Number > reflected && !compared {
			// After an unfinished fold page.db may have some rows of later batches.
			if compared = !c.folded; !compared {
				if err := compare(); err != nil {
					return err
				}
			}
		}
		done += int64(info.End - info.Start)
		if c.o.Progress != nil {
			c.o.Progress(done, c.report.Bytes)
		}
		return c.batch(info, records)
	})
	if err == nil && !compared {
		err = compare()
	}
	if err == nil {
		err = c.build.end(c.ctx)
	}
	if err != nil {
		// Without the whole log there is nothing to compare with: the problem says where the log is
		// damaged.
		return c.problem(err)
	}
	return c.fresh.View(func(tx index.Tx) error {
		c.tx = tx
		c.walk = treeWalk{s: s, ctx: c.ctx, from: c.build, tx: tx, away: c.away, bad: c.problem}
		err := c.history()
		c.report.Nodes = c.walk.nodes
		return err
	})
}

// batch verifies the records of a batch and adds them to the fresh index.
func (c *checker) batch(info segment.BatchInfo, records []segment.Record) error {
	for _, r := range records {
		o, err := parseRecord(r)
		if err != nil {
			return err
		}
		switch o.kind {
		case recPiece, recNode:
			c.report.Pieces++
			if err := c.problem(o.digest.Verify(o.content)); err != nil {
				return err
			}
		case recDelta:
			c.report.Pieces++
		}
	}
	ops, err := parseRecords(records, info)
	if err != nil {
		return err
	}
	return c.build.add(c.ctx, ops, info)
}

// history verifies the commits, and the trees and values that they reach.
func (c *checker) history() error {
	var ids []commit.ID
	for k := range rowsOf(c.tx, bucketCommits) {
		ids = append(ids, commit.ID(k))
	}
	// Commits with holes come first: commits made on them have the same holes.
	for _, holes := range []bool{true, false} {
		for _, id := range ids {
			if err := c.ctx.Err(); err != nil {
				return fmt.Errorf("check: %w", err)
			}
			if c.treeless(id) != holes {
				continue
			}
			if err := c.problem(c.commit(id)); err != nil {
				return err
			}
		}
	}
	if err := c.explanations(); err != nil {
		return err
	}
	c.tags()
	for _, h := range c.heads {
		if _, err := lookUpCommit(c.tx, h.ID); err != nil {
			c.record(fmt.Errorf("head %s: %w", h.ID, err))
		}
	}
	return nil
}

// explanations verifies that explanations are about merges, and the trees of decisions.
func (c *checker) explanations() error {
	for k, v := range rowsOf(c.tx, bucketConflicts) {
		if err := c.ctx.Err(); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		root, err := parseConflictRow(k, v)
		if err != nil {
			return err
		}
		c.report.Explanations++
		id := commit.ID(k)
		cm, err := lookUpCommit(c.tx, id)
		if err == nil && len(cm.Parents) != 2 {
			err = &base.CorruptError{Where: "commit", Key: id.String(), Got: "an explanation of a commit that is no merge"}
		}
		if err == nil {
			err = c.walk.tree(root, false)
		}
		if err != nil {
			if err := c.problem(fmt.Errorf("check explanation of commit %s: %w", id, err)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tags verifies that the commits of the tags exist.
func (c *checker) tags() {
	for k, v := range rowsOf(c.tx, bucketTags) {
		id, err := parseTagRow(string(k), v)
		if err == nil {
			_, err = lookUpCommit(c.tx, id)
		}
		if err != nil {
			c.record(fmt.Errorf("tag %q: %w", k, err))
		}
	}
}

// lookUpCommit returns a commit from the fresh index. The page's own index may be damaged: reading
// it would trigger a rebuild, which waits for the fold turn that the check holds.
func lookUpCommit(tx index.Tx, id commit.ID) (*commit.Commit, error) {
	if first := commit.First(); id == first.ID {
		return first, nil
	}
	v := tx.Bucket(bucketCommits).Get(id[:])
	if v == nil {
		return nil, &base.CorruptError{Where: "commit", Key: id.String(), Got: "the commit is missing"}
	}
	return parseCommitRow(id[:], v)
}

// commit verifies one commit: that it follows from its parents, its tree, and the values in it.
func (c *checker) commit(id commit.ID) error {
	cm, err := lookUpCommit(c.tx, id)
	if err != nil {
		return fmt.Errorf("check commit %s: %w", id, err)
	}
	c.report.Commits++
	parents, shallow := make([]*commit.Commit, len(cm.Parents)), false
	for i, p := range cm.Parents {
		if c.pruned(p, id) {
			shallow = true
			continue
		}
		if parents[i], err = lookUpCommit(c.tx, p); err != nil {
			return fmt.Errorf("check commit %s: parent: %w", id, err)
		}
	}
	if !shallow {
		err = commit.CheckParents(cm, parents)
	}
	if err != nil {
		return fmt.Errorf("check commit %s: %w", id, err)
	}
	if absent, err := c.treeAbsent(cm); err != nil || absent {
		head := slices.ContainsFunc(c.heads, func(h *commit.Commit) bool { return h.ID == id })
		if err == nil && (head || hasKey(c.tx.Bucket(bucketUnsynced), id[:])) {
			c.hole(id) // a head is received with its tree, and the bucket lacks that of an unsynced commit
		}
		return err
	}
	treeless := c.treeless(id)
	err = c.walk.tree(cm.Root, treeless)
	if isMissingPiece(err) && treeless {
		c.hole(id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("check tree of commit %s: %w", id, err)
	}
	return nil
}

// treeless reports whether all or part of a commit's tree may be absent.
func (c *checker) treeless(id commit.ID) bool { return hasKey(c.tx.Bucket(bucketTreeless), id[:]) }

// hole records a commit with a hole in its tree.
func (c *checker) hole(id commit.ID) {
	if len(c.report.Holes) < maxProblems && !slices.Contains(c.report.Holes, id) {
		c.report.Holes = append(c.report.Holes, id)
	}
}

// pruned reports whether the parent of a commit was pruned.
func (c *checker) pruned(parent, child commit.ID) bool {
	return c.tx.Bucket(bucketCommits).Get(parent[:]) == nil && hasKey(c.tx.Bucket(bucketShallow), shallowKey(parent, child))
}

// treeAbsent reports whether a commit was received treeless and its tree was not rebuilt.
func (c *checker) treeAbsent(cm *commit.Commit) (bool, error) {
	if !c.treeless(cm.ID) {
		return false, nil
	}
	row, _, err := readObjectRow(c.tx, &cm.Root)
	return !row.held && cm.Root != btree.EmptyRoot, err
}

// bitset is a set of piece numbers.
type bitset []uint64

// set adds n and reports whether it was in the set.
func (b *bitset) set(n uint64) bool {
	i, bit := int(n/64), uint64(1)<<(n%64)
	if i >= len(*b) {
		*b = append(*b, make([]uint64, i+1-len(*b)+len(*b)/2)...)
	}
	was := (*b)[i]&bit != 0
	(*b)[i] |= bit
	return was
}

func (b bitset) has(n uint64) bool {
	i := n / 64
	return i < uint64(len(b)) && b[i]&(uint64(1)<<(n%64)) != 0
}

// away records a piece that is not in the log, unless it was counted for another value. The bucket
// may have it. In a page that was never synced its absence is damage.
func (c *checker) away(d *object.Digest, _ []byte, known, placed bool) error {
	if placed {
		if !known {
			c.report.Away++
		}
		return nil
	}
	place, _ := c.tx.Bucket(bucketCloud).Cursor().First()
	if meta, _ := c.tx.Bucket(bucketMetadata).Cursor().First(); meta == nil && place == nil {
		return &base.CorruptError{Where: "object", Key: d.String(), Got: gotMissing}
	}
	if known {
		return nil
	}
	if c.report.Missing++; len(c.report.MissingPieces) < maxProblems {
		c.report.MissingPieces = append(c.report.MissingPieces, *d)
	}
	return nil
}
