package storage

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// notices are notified of changes. Store.mu guards them.
type notices struct {
	headsChanged notice
	syncChanged  notice // what is to be uploaded has changed
	folded       notice // or folding has ended for good
}

// notice is a channel that is closed at the next change, nil while no caller waits for it.
type notice chan struct{}

func (n *notice) wait() <-chan struct{} {
	if *n == nil {
		*n = make(notice)
	}
	return *n
}

func (n *notice) tell() {
	if *n != nil {
		close(*n)
		*n = nil
	}
}

// noticeOf returns a channel that is closed at the next change, or when the page is.
func (s *Store) noticeOf(n *notice) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := n.wait()
	if s.closed {
		n.tell()
	}
	return c
}

// Heads returns the durable heads, sorted by (timestamp, id). There is always one: a page without
// commits has the implied first one. The caller owns the slice.
func (s *Store) Heads() []*commit.Commit {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.heads)
}

// NewestHead returns the greatest head by (timestamp, id), including submitted commits that are not
// durable yet. A caller that acts on it must wait with WaitDurable, or submit a commit on it and
// wait for that.
func (s *Store) NewestHead() *commit.Commit {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.chained[len(s.chained)-1]
}

// ChainedHeads returns the heads as NewestHead sees them: submitted commits count although they are
// not durable yet. They are sorted by (timestamp, id), and there is always one. The caller owns the
// slice. The duty to wait is as for NewestHead.
func (s *Store) ChainedHeads() []*commit.Commit {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.chained)
}

// HeadsChanged returns a channel that is closed when the durable heads change next, or the page
// closes. A caller that takes it before it calls Heads misses no change. For a closed page it is
// closed.
func (s *Store) HeadsChanged() <-chan struct{} { return s.noticeOf(&s.headsChanged) }

func sortHeads(h []*commit.Commit) { slices.SortFunc(h, commit.Compare) }

// withCommit returns heads after c was added to the page. The first commit is an ancestor of every
// other, even if all commits between were given up.
func withCommit(heads []*commit.Commit, c *commit.Commit) []*commit.Commit {
	out := make([]*commit.Commit, 0, len(heads)+1)
	for _, h := range heads {
		if h.ID == c.ID {
			return heads
		}
		if !slices.Contains(c.Parents, h.ID) && !h.IsFirst() {
			out = append(out, h)
		}
	}
	out = append(out, c)
	sortHeads(out)
	return out
}

// withoutCommits returns heads without those in inner, whose children were given up or received
// ahead.
func withoutCommits(heads []*commit.Commit, inner []commit.ID) []*commit.Commit {
	if len(inner) == 0 {
		return heads
	}
	return slices.DeleteFunc(slices.Clone(heads), func(c *commit.Commit) bool { return slices.Contains(inner, c.ID) })
}

// headsIn returns the heads in the rows, if they agree with the checksum of the state.
func headsIn(tx index.Tx, st *state) (ids []commit.ID, err error) {
	sum := state{}
	for k := range rowsOf(tx, bucketHeads) {
		if len(k) != commit.IDSize {
			return nil, badRow(bucketHeads, hex.EncodeToString(k), "bad key")
		}
		ids = append(ids, commit.ID(k))
		sum.addHead(commit.ID(k))
	}
	if sum.nHeads != st.nHeads || sum.heads != st.heads {
		return nil, badRow(bucketHeads, "", "heads that do not agree with the checksum of the state row")
	}
	return ids, nil
}

// readHeads reads the heads from the index.
func (s *Store) readHeads() ([]*commit.Commit, error) {
	var ids []commit.ID
	err := s.viewOnce(func(tx index.Tx) (err error) {
		ids, err = headsIn(tx, &s.state)
		return err
	})
	if err != nil {
		return nil, err
	}
	heads := make([]*commit.Commit, 0, len(ids))
	for _, id := range ids {
		c := commit.First()
		if id != c.ID {
			c, err = s.foldedCommit(id) // a pending record may have pruned it
		}
		if errors.Is(err, base.ErrNotFound) {
			err = badRow(bucketHeads, id.String(), "a head whose commit is missing")
		}
		if err != nil {
			return nil, err
		}
		heads = append(heads, c)
	}
	sortHeads(heads)
	return heads, nil
}

// dropHeads removes commits from the heads.
func dropHeads(tx index.Tx, st *state, ids []commit.ID) error {
	heads := tx.Bucket(bucketHeads)
	for _, id := range ids {
		if heads.Get(id[:]) == nil {
			continue
		}
		if err := heads.Delete(append([]byte(nil), id[:]...)); err != nil {
			return err
		}
		st.removeHead(id)
	}
	return nil
}

func headRow(c *commit.Commit) []byte { return binary.BigEndian.AppendUint64(nil, uint64(c.Timestamp)) }
