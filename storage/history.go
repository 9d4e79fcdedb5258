package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

func gone(id commit.ID) error { return fmt.Errorf("commit %s was pruned: %w", id, base.ErrGone) }

// Commit returns a durable or submitted commit. The first commit is implied and always found. For a
// pruned parent of a commit in the page, errors match base.ErrGone; else base.ErrNotFound,
// base.ErrCorrupt or base.ErrClosed.
func (s *Store) Commit(_ context.Context, id commit.ID) (*commit.Commit, error) {
	if first := commit.First(); id == first.ID {
		return first, nil
	}
	if s.over.isPruned(id) {
		return nil, gone(id)
	}
	c, isParent := s.over.commitOrParent(id)
	if c != nil {
		return c, nil
	}
	c, err := s.foldedCommit(id)
	if isParent && errors.Is(err, base.ErrNotFound) { // it was given up before its child was received
		return nil, gone(id)
	}
	return c, err
}

// foldedCommit returns a commit from the rows.
func (s *Store) foldedCommit(id commit.ID) (c *commit.Commit, err error) {
	err = s.view(func(tx index.Tx) error {
		v := tx.Bucket(bucketCommits).Get(id[:])
		if v == nil && prunedParent(tx, id) {
			return gone(id)
		}
		if v == nil {
			return fmt.Errorf("commit %s: %w", id, base.ErrNotFound)
		}
		var err error
		c, err = parseCommitRow(id[:], v)
		return err
	})
	return c, err
}

// Known returns a commit that must exist, because a commit, head or tag names it. When the commit
// has no row, Known rebuilds the index from the log; when the log lacks it too, the error is a
// *base.CorruptError. Otherwise Known is as Commit.
func (s *Store) Known(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	c, err := s.Commit(ctx, id)
	if errors.Is(err, base.ErrNotFound) && s.reindex("commit "+id.String()+" has no row") {
		c, err = s.Commit(ctx, id)
	}
	if errors.Is(err, base.ErrNotFound) {
		err = badRow(bucketCommits, id.String(), "the commit is missing")
	}
	return c, err
}

func parseCommitRow(k, v []byte) (*commit.Commit, error) {
	c, err := commit.Parse(bytes.Clone(v))
	if err != nil || !bytes.Equal(c.ID[:], k) {
		return nil, &base.CorruptError{Where: "page.db row " + bucketCommits + "/", Key: hex.EncodeToString(k), Got: "another commit", Err: err}
	}
	return c, nil
}

// EachCommit calls fn with the durable commits except the first one, in the order of their ids,
// until fn returns an error. Commits that are made or pruned meanwhile may be among them. fn may
// use the Store. Errors: that of fn, of ctx, and those of Commit.
func (s *Store) EachCommit(ctx context.Context, fn func(*commit.Commit) error) error {
	return s.eachCommit(ctx, nil, togetherCommits, fn)
}

// togetherCommits is the number of commits read at once.
const togetherCommits = 1024

// eachCommit is EachCommit from a key on. It reads some commits at once.
func (s *Store) eachCommit(ctx context.Context, from []byte, some int, fn func(*commit.Commit) error) error {
	for {
		cs := s.pendingCommits(from, some) // first: a fold moves them to the rows
		folded, err := s.foldedCommits(from, some)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		cs = append(cs, folded...)
		slices.SortFunc(cs, func(a, b *commit.Commit) int { return a.ID.Compare(b.ID) })
		cs = slices.CompactFunc(cs, func(a, b *commit.Commit) bool { return a.ID == b.ID })
		cs = cs[:min(len(cs), some)]
		for _, c := range cs {
			if err := fn(c); err != nil {
				return err
			}
		}
		if len(cs) < some {
			return nil
		}
		from = append(bytes.Clone(cs[some-1].ID[:]), 0) // the next possible key
	}
}

// pendingCommits returns the first durable commits in the overlay that are not pruned, from a key
// on.
func (s *Store) pendingCommits(from []byte, some int) (cs []*commit.Commit) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var first pendingCommit
	copy(first.id[:], from)
	s.over.commits.Ascend(first, func(p pendingCommit) bool {
		_, chained := s.unsettled[p.id]
		if !chained && s.over.pruned[p.id] == nil && bytes.Compare(p.id[:], from) >= 0 { // I2
			cs = append(cs, p.commit)
		}
		return len(cs) < some
	})
	return cs
}

// foldedCommits is pendingCommits for the rows.
func (s *Store) foldedCommits(from []byte, some int) (cs []*commit.Commit, err error) {
	err = s.view(func(tx index.Tx) error {
		cs = cs[:0]
		rows := tx.Bucket(bucketCommits).Cursor()
		for k, v := rows.Seek(from); k != nil && len(cs) < some; k, v = rows.Next() {
			c, err := parseCommitRow(k, v)
			if err != nil {
				return err
			}
			if !s.over.isPruned(c.ID) {
				cs = append(cs, c)
			}
		}
		return nil
	})
	return cs, err
}

// FindCommits returns the ids of up to limit durable commits that begin with prefix, in order. If
// half is set, only the upper four bits of the last byte of prefix count.
func (s *Store) FindCommits(ctx context.Context, prefix []byte, half bool, limit int) (ids []commit.ID, err error) {
	from, last := bytes.Clone(prefix), len(prefix)-1
	if half = half && last >= 0; half {
		from[last] &= 0xf0
	}
	match := func(id commit.ID) bool {
		if half {
			return bytes.HasPrefix(id[:], from[:last]) && id[last]&0xf0 == from[last]
		}
		return bytes.HasPrefix(id[:], from)
	}
	if first := commit.First().ID; match(first) {
		ids = append(ids, first)
	}
	enough := errors.New("enough")
	err = s.eachCommit(ctx, from, min(limit, togetherCommits-1)+1, func(c *commit.Commit) error {
		if !match(c.ID) || len(ids) > limit {
			return enough
		}
		ids = append(ids, c.ID)
		return nil
	})
	if err != nil && err != enough {
		return nil, err
	}
	slices.SortFunc(ids, commit.ID.Compare)
	return ids[:min(len(ids), limit)], nil
}

// Explanation returns the root of the tree of decisions that explains a merge commit, durable or
// submitted, and whether it has one. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) Explanation(_ context.Context, merge commit.ID) (root object.Digest, ok bool, err error) {
	wanted := func(o *op) bool { return o.kind == recExplain && *o.merge == merge }
	err = s.viewPending(true, wanted, func(tx index.Tx, pending []pendingOp) (err error) {
		root, ok = object.Digest{}, true
		if v := tx.Bucket(bucketConflicts).Get(merge[:]); v != nil { // the first counts
			root, err = parseConflictRow(merge[:], v)
		} else if ok = len(pending) > 0; ok {
			root = pending[0].digest
		}
		return err
	})
	if err != nil {
		return object.Digest{}, false, err
	}
	return root, ok, nil
}

// apply applies a record to the rows of commits, tags and metadata. commitStatus and tagState
// define the effect of a record on a status or tag, for rows and for readers of pending records
// alike.
func (h *plannedStep) apply(tx index.Tx, st *state) error {
	o := h.o
	switch o.kind {
	case recCommit:
		return writeCommit(tx, st, o, h.root)
	case recExplain:
		return writeExplanation(tx, o, h.root)
	case recStatus:
		return writeStatus(tx, st, o)
	case recPruned:
		return pruneRows(tx, st, o.sync)
	case recMetadata:
		m := &o.sync.meta
		return setRow(tx.Bucket(bucketMetadata), []byte(m.Type), m.Value != nil, metadataRow(m.Type, m.Value))
	case recComplete:
		st.checkpoint = o.sync.checkpoint
		st.checkpoint.last = o.number
		return nil
	default:
		return writeTag(tx, o)
	}
}

// writeCommit writes the rows of a commit. A commit that the page has counts as new if it was
// received ahead and is now received otherwise.
func writeCommit(tx index.Tx, st *state, o *op, root uint64) error {
	c, was := o.commit, statusIn(tx, o.commit.ID)
	if was.here && (!was.ahead || o.origin == originAhead) {
		return nil
	}
	if o.origin != originAhead {
		if err := dropHeads(tx, st, append([]commit.ID{commit.First().ID}, c.Parents...)); err != nil {
			return err
		}
		st.addHead(c.ID)
		if err := tx.Bucket(bucketHeads).Put(c.ID[:], headRow(c)); err != nil {
			return err
		}
	}
	if !was.here {
		if err := addCommit(tx, c, root); err != nil {
			return err
		}
	}
	return was.write(tx, c, was.after(o))
}

// addCommit writes the rows of a commit, except those of heads and of its status.
func addCommit(tx index.Tx, c *commit.Commit, root uint64) error {
	rows := []row{{bucketCommits, c.ID[:], c.Encode()}}
	if len(c.Parents) == 2 {
		rows = append(rows, row{bucketMerges, mergeKey(c.Parents[0], c.Parents[1], c.ID), nil})
	}
	for _, parent := range c.Parents {
		if parent != commit.First().ID && tx.Bucket(bucketCommits).Get(parent[:]) == nil { // it was pruned
			rows = append(rows, row{bucketShallow, shallowKey(parent, c.ID), nil})
		}
	}
	for _, r := range rows {
		if err := tx.Bucket(r.bucket).Put(r.key, r.value); err != nil {
			return err
		}
	}
	if err := dropShallow(tx, c.ID); err != nil {
		return err
	}
	return putCommitRef(tx, root, c.ID)
}

func unsyncedRow(c *commit.Commit) []byte { return binary.BigEndian.AppendUint64(nil, c.Generation) }

// writeExplanation gives a merge its explanation: the first one counts. Check verifies that the
// merge exists. The rows depend on the log alone, however it is divided into folds.
func writeExplanation(tx index.Tx, o *op, root uint64) error {
	b := tx.Bucket(bucketConflicts)
	if b.Get(o.merge[:]) != nil {
		return nil
	}
	if err := b.Put(o.merge[:], conflictRow(*o.merge, &o.digest)); err != nil {
		return err
	}
	return putCommitRef(tx, root, *o.merge)
}

// dropExplanation removes the explanation of a merge from the index.
func dropExplanation(tx index.Tx, merge commit.ID) error {
	b := tx.Bucket(bucketConflicts)
	v := b.Get(merge[:])
	if v == nil {
		return nil
	}
	root, err := parseConflictRow(merge[:], v)
	if err != nil {
		return err
	}
	row, ok, err := readObjectRow(tx, &root)
	if err != nil {
		return err
	}
	c, err := parseCommitRow(merge[:], tx.Bucket(bucketCommits).Get(merge[:]))
	if err != nil {
		return err
	}
	if ok && c.Root != root {
		if err := dropCommitRef(tx, row.number, merge); err != nil {
			return err
		}
	}
	return b.Delete(bytes.Clone(merge[:]))
}
