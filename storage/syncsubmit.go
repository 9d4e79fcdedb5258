package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// SubmitSync adds a step of sync to the next batch, as Submit does; j may be nil and must not be
// used afterwards. Places for pieces of j apply after j. The changes of pieces and metadata are
// visible from then on; commits and tags are visible when they are durable, as with Submit.
//
// The last batch has j, commits, tags, metadata and up to 8192 of Unplaced and Places. More of
// those precede it in batches of 8192, each durable before the next: so a crash, or an error, may
// leave some of them without the rest. That is harmless: a place says where the bucket has a piece,
// even if the page has no commit with it. Still before them are the pieces of j beyond 1 MiB, as
// with Submit.
//
// Errors match base.ErrInvalid for what no bucket can say (an invalid place, a tag or parent that
// the page lacks), base.ErrTooLarge for more than MaxSyncBytes, base.ErrClosed, base.ErrReadOnly,
// or are those of the disk or of ctx. ctx bounds the wait for a fold that lags.
func (s *Store) SubmitSync(ctx context.Context, j *Journal, b *SyncBatch) (*Pending, error) {
	release := s.pinTagged(b)
	defer release()
	if j != nil {
		j.turn.Lock()
		defer j.turn.Unlock()
	}
	if len(b.Unplaced) > 0 {
		s.drops.Lock()
		defer s.drops.Unlock()
	}
	if err := s.checkSync(ctx, b); err != nil {
		return nil, fmt.Errorf("submit step of sync: %w", err)
	}
	if err := s.ready(ctx, j, b.commits()); err != nil {
		return nil, err
	}
	unplaced, places, err := s.submitAhead(ctx, b)
	if err != nil {
		return nil, err
	}
	var fresh []ReceivedCommit
	var known []op
	return s.submit(submission{
		journal: j, room: len(b.Commits) + 8,
		look: func() (v viewed, err error) {
			fresh, known, v, err = s.received(ctx, b)
			return v, err
		},
		check: func() error {
			if len(b.Inner) > 0 && len(withoutCommits(s.chained, b.Inner)) == 0 && !slices.ContainsFunc(fresh, func(r ReceivedCommit) bool { return !r.Ahead && !r.Inner }) {
				return fmt.Errorf("submit step of sync after which there is no head: %w", base.ErrInvalid)
			}
			return nil
		},
		add: func(g *group, ops []op) []op {
			fresh = slices.DeleteFunc(fresh, func(r ReceivedCommit) bool {
				if s.unsettled[r.Commit.ID] == nil {
					return false
				}
				known = append(known, op{kind: recStatus, sync: &syncOp{status: statusSynced, ids: []commit.ID{r.Commit.ID}}})
				return true
			})
			for _, r := range fresh {
				ops = append(ops, s.addCommitLocked(g, r.Commit, r.origin()))
			}
			ops = append(ops, s.dropInnerLocked(g, append(innerOf(fresh), b.Inner...))...)
			ops = g.add(ops, j.explanationsOf(fresh))
			g.news = g.news || len(b.Unsynced) > 0 || len(b.Unplaced) > 0
			return g.add(ops, b.ops(unplaced, places, known))
		},
	})
}

// pinTagged pins the commits to which the step's tags will point.
func (s *Store) pinTagged(b *SyncBatch) (release func()) {
	var all []func()
	for _, t := range b.Tags {
		if !t.Removed {
			all = append(all, s.Pin(t.Commit))
		}
	}
	return func() {
		for _, r := range all {
			r()
		}
	}
}

// addCommitLocked adds a commit to a group.
func (s *Store) addCommitLocked(g *group, c *commit.Commit, origin byte) op {
	o := op{kind: recCommit, commit: c, origin: origin}
	g.header.add(g.batch, &o, c.Encode())
	s.unsettled[c.ID] = g
	if origin == originAhead {
		g.ahead = append(g.ahead, c)
		return o
	}
	g.commits = append(g.commits, c)
	s.chained = withCommit(s.chained, c)
	return o
}

// origin returns the origin of a received commit, which is synced from the beginning.
func (r *ReceivedCommit) origin() byte {
	switch {
	case r.Ahead:
		return originAhead
	case r.Treeless:
		return originTreeless
	}
	return originBucket
}

// innerOf returns the received commits that are no heads because of commits that this device lacks.
func innerOf(rs []ReceivedCommit) (ids []commit.ID) {
	for _, r := range rs {
		if r.Inner && !r.Ahead {
			ids = append(ids, r.Commit.ID)
		}
	}
	return ids
}

// dropInnerLocked makes commits count as no heads.
func (s *Store) dropInnerLocked(g *group, ids []commit.ID) (ops []op) {
	g.inner = append(g.inner, ids...)
	s.chained = withoutCommits(s.chained, ids)
	return g.add(nil, statusOps(nil, statusInner, ids))
}

func (b *SyncBatch) commits() []*commit.Commit {
	out := make([]*commit.Commit, len(b.Commits))
	for i, r := range b.Commits {
		out[i] = r.Commit
	}
	return out
}

// checkSync refuses a step that cannot be written.
func (s *Store) checkSync(ctx context.Context, b *SyncBatch) error {
	for i := range b.Places {
		p := &b.Places[i]
		if err := cmp.Or(checkValueDigest(&p.Digest), checkPlace(&p.Place)); err != nil {
			return fmt.Errorf("place of %s: %w", p.Digest.Short(), err)
		}
	}
	for i := range b.Unplaced {
		if err := checkValueDigest(&b.Unplaced[i]); err != nil {
			return err
		}
	}
	size := 0
	for _, m := range b.Metadata {
		if err := checkMetadata(m.Type, m.Value); err != nil {
			return err
		}
		size += len(m.Value) + 300
	}
	given := make(map[commit.ID]bool, len(b.Commits))
	for _, r := range b.Commits {
		given[r.Commit.ID] = true
		size += len(r.Commit.Encode()) + 16
	}
	for _, t := range b.Tags {
		if err := checkTagName(t.Name); err != nil {
			return err
		}
		if t.Removed || given[t.Commit] {
			continue
		}
		if _, err := s.Commit(ctx, t.Commit); errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("tag %q of commit %s, which is not here: %w", t.Name, t.Commit, base.ErrInvalid)
		} else if err != nil {
			return err
		}
	}
	for _, t := range b.SyncedTags {
		if err := checkTagName(t.Name); err != nil {
			return err
		}
	}
	size += (len(b.Tags)+len(b.SyncedTags))*300 + (len(b.Synced)+len(b.Unsynced)+len(b.Inner))*40
	if size > MaxSyncBytes {
		return fmt.Errorf("%d bytes, limit %d: %w", size, MaxSyncBytes, base.ErrTooLarge)
	}
	return nil
}

// onlyUnplaced returns the unplaced pieces that get no new place. The others move from one place to
// the next and always have one.
func (b *SyncBatch) onlyUnplaced() []object.Digest {
	if len(b.Places) == 0 || len(b.Unplaced) == 0 {
		return b.Unplaced
	}
	placed := make(map[object.Digest]bool, len(b.Places))
	for i := range b.Places {
		placed[b.Places[i].Digest] = true
	}
	return slices.DeleteFunc(slices.Clone(b.Unplaced), func(d object.Digest) bool { return placed[d] })
}

// submitAhead writes the unplaced pieces and places that exceed one batch, and returns the rest.
func (s *Store) submitAhead(ctx context.Context, b *SyncBatch) ([]object.Digest, []PlacedPiece, error) {
	unplaced, places := b.onlyUnplaced(), b.Places
	for len(unplaced)+len(places) > MaxSyncPieces {
		c := unplaced[:min(len(unplaced), MaxSyncPieces)]
		p := places[:min(len(places), MaxSyncPieces-len(c))]
		unplaced, places = unplaced[len(c):], places[len(p):]
		if err := s.submitOps(ctx, placeOps(digestOps(nil, recUnplaced, slices.Clone(c)), slices.Clone(p)), submission{}); err != nil {
			return nil, nil, err
		}
	}
	return unplaced, places, nil
}

// submitOps submits u with records that have no content, and returns when they are durable.
func (s *Store) submitOps(ctx context.Context, ops []op, u submission) error {
	if len(ops) == 0 {
		return nil
	}
	if err := s.ready(ctx, nil, nil); err != nil {
		return err
	}
	u.add = func(g *group, _ []op) []op { return g.add(nil, ops) }
	p, err := s.submit(u)
	if err != nil {
		return err
	}
	return p.Wait()
}

// received separates the commits that the page lacks from those that it has, and returns records
// about the latter.
func (s *Store) received(ctx context.Context, b *SyncBatch) (fresh []ReceivedCommit, known []op, v viewed, err error) {
	fresh, here, v, err := s.parted(ctx, b.Commits, true)
	if err != nil {
		return nil, nil, v, err
	}
	ids := make([]commit.ID, len(here))
	for i, r := range here {
		ids[i] = r.Commit.ID
	}
	if len(ids) == 0 {
		return fresh, nil, v, nil
	}
	st, err := s.statuses(ids)
	if err != nil {
		return nil, nil, v, err
	}
	var synced, treed []commit.ID
	anew := map[commit.ID]bool{}
	for i, id := range ids {
		if st[id].ahead && here[i].Anew {
			anew[id] = true
			continue
		}
		if st[id].unsynced {
			synced = append(synced, id)
		}
		if st[id].treeless && !here[i].Treeless {
			treed = append(treed, id)
		}
	}
	return withAnew(b.Commits, fresh, anew), statusOps(statusOps(nil, statusSynced, synced), statusTree, treed), v, nil
}

// withAnew adds to fresh the commits of given whose ids are in anew, in the order of given: parents
// precede children.
func withAnew(given, fresh []ReceivedCommit, anew map[commit.ID]bool) []ReceivedCommit {
	if len(anew) == 0 {
		return fresh
	}
	for _, r := range fresh {
		anew[r.Commit.ID] = true
	}
	var out []ReceivedCommit
	for _, r := range given {
		if anew[r.Commit.ID] {
			delete(anew, r.Commit.ID)
			out = append(out, r)
		}
	}
	return out
}

// ops returns the records of a step that follow its commits. known are records about commits that
// the page had already.
func (b *SyncBatch) ops(unplaced []object.Digest, places []PlacedPiece, known []op) []op {
	ops := placeOps(digestOps(nil, recUnplaced, slices.Clone(unplaced)), slices.Clone(places))
	ops = append(ops, known...)
	ops = statusOps(ops, statusSynced, slices.Clone(b.Synced))
	ops = statusOps(ops, statusUnsynced, slices.Clone(b.Unsynced))
	ops = tagOps(tagOps(ops, recTagSynced, b.SyncedTags), recTagReceived, b.Tags)
	for _, m := range b.Metadata {
		ops = append(ops, metadataOp(m.Type, bytes.Clone(m.Value)))
	}
	return ops
}

// SyncChanged returns a channel that is closed when there is something new to upload (a durable
// commit or tag change made on this device, a piece that lost its place, a commit to be sent again)
// or the page closes. A caller that takes it before it looks misses nothing. For a closed page it
// is closed.
func (s *Store) SyncChanged() <-chan struct{} { return s.noticeOf(&s.syncChanged) }
