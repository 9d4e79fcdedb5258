package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// maxKeptTrees is how many commits, beside the heads, a checkpoint has trees of.
const maxKeptTrees = 64

// maxErasedTrees is how many it has when a value is erased from history.
const maxErasedTrees = 1024

// pass prepares that the floor passes entries whose commits the bucket's retention gives up, if
// there are such: it prunes these here, and writes a checkpoint that stands for what is kept. The
// floor that it returns is to be put once the entries below it are condemned; it is the present one
// when there is nothing to pass.
//
// Of a commit that is kept, and is no head, the tree must still be given: by the new checkpoint,
// for at most maxKeptTrees of them, or by the entries from the floor on together with the
// checkpoint at the floor.
func (p *Page) pass(ctx context.Context, o GCOptions, s *survey, floor format.Floor, have *stored) (next format.Floor, err error) {
	if p.ses.retention == (format.Retention{}) && o.erase == nil {
		return floor, nil
	}
	var gone []commit.ID
	// When entries are deleted that a device has not read which is waited for, all that is kept of
	// what they had may be needed.
	if p.ses.retention != (format.Retention{}) && s.first <= s.waited+1 {
		if gone, err = p.unkept(ctx, p.ses.retention, slices.Concat(s.unread, o.Keep, p.inUse()), outgoing.Past{}); err != nil {
			return floor, err
		}
	}
	if !o.DryRun {
		if err := p.prune(ctx, gone); err != nil {
			return floor, err
		}
	}
	isGone := make(map[commit.ID]bool, len(gone))
	for _, id := range gone {
		isGone[id] = true
	}
	heads, err := outgoing.SyncedHeads(ctx, p.store)
	if err != nil {
		return floor, err
	}
	rest, err := p.keptBelow(ctx, heads, isGone)
	if err != nil {
		return floor, err
	}
	low, trees := p.passTo(s, have, rest)
	if o.erase != nil { // no checkpoint that was there before may stay
		if low, trees = p.ses.log.Position().Number, rest; len(rest) > maxErasedTrees {
			return floor, fmt.Errorf("carry the trees of %d commits over, of at most %d: %w", len(rest), maxErasedTrees, base.ErrTooLarge)
		}
	}
	if low <= max(floor.Low, 1) || o.erase == nil && !frees(s, heads, rest, low) {
		return floor, nil
	}
	at := p.ses.log.Position()
	if o.DryRun {
		next, _ := nextFloor(floor, low, at.Number)
		return next, nil
	}
	if slices.ContainsFunc(have.checkpoints, func(i bucket.Info) bool { return i.Name == p.names.Checkpoint(at.Number) }) {
		return floor, p.goOn(ctx) // that checkpoint was written for another purpose
	}
	if err := p.writeKept(ctx, s, have, heads, trees, isGone); err != nil {
		return floor, err
	}
	if _, err := p.upload(ctx); err != nil { // it announces the packs in which what was in entries stands now
		return floor, err
	}
	next, ok := nextFloor(floor, low, at.Number)
	if !ok {
		return floor, nil
	}
	return next, nil
}

// prune prunes commits here, and collects what only they had, so that none of it is sent again.
func (p *Page) prune(ctx context.Context, ids []commit.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if err := p.in.NoteGivenUp(ctx, ids); err != nil {
		return err
	}
	if _, err := p.store.Prune(ctx, ids); err != nil && !errors.Is(err, base.ErrConflict) {
		return fmt.Errorf("prune what retention gives up: %w", err)
	}
	return p.collect(ctx)
}

// collect deletes here what nothing refers to.
func (p *Page) collect(ctx context.Context) error {
	if p.o.Collect != nil {
		return p.o.Collect(ctx)
	}
	c := p.store.NewCollector(storage.CollectOptions{})
	for c.Stats().Cycles < 2 { // what the first frees may have been passed by it already
		if _, err := c.Step(ctx); err != nil {
			return fmt.Errorf("collect what was given up: %w", err)
		}
	}
	return nil
}

// inUse returns the commits that the page's owner wants kept.
func (p *Page) inUse() []commit.ID {
	if p.o.InUse == nil {
		return nil
	}
	return p.o.InUse()
}

func nextFloor(f format.Floor, low, checkpoint uint64) (format.Floor, bool) {
	n, ok := protocol.NextFloor(protocol.Floor{K: f.K, Low: f.Low, Checkpoint: f.Checkpoint, Deleted: f.Deleted}, low, checkpoint)
	return format.Floor{K: n.K, Low: n.Low, Checkpoint: n.Checkpoint}, ok
}

// keptBelow returns the synced commits that are kept, are no heads of the log, and that heads and
// tags still lead to.
func (p *Page) keptBelow(ctx context.Context, heads []*commit.Commit, gone map[commit.ID]bool) (kept []commit.ID, err error) {
	tags, err := p.store.Tags(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tags: %w", err)
	}
	from := slices.Collect(maps.Values(tags))
	for _, h := range heads {
		from = append(from, h.ID)
	}
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what is not synced: %w", err)
	}
	not := make(map[commit.ID]bool, len(unsynced)+len(heads)+1)
	not[commit.First().ID] = true
	for _, id := range unsynced {
		not[id] = true
	}
	for _, h := range heads {
		not[h.ID] = true
	}
	for c, err := range commit.Walk(ctx, p.store, from) {
		if err != nil {
			return nil, fmt.Errorf("look for what is kept: %w", err)
		}
		if !gone[c.ID] && !not[c.ID] {
			kept = append(kept, c.ID)
		}
	}
	return kept, nil
}

// passTo returns up to where the floor can rise, 0 for nowhere, and the commits whose trees the new
// checkpoint has to have then.
func (p *Page) passTo(s *survey, have *stored, kept []commit.ID) (low uint64, trees []commit.ID) {
	if len(kept) <= maxKeptTrees {
		return p.ses.log.Position().Number, kept
	}
	for _, n := range slices.Backward(p.checkpointNumbers(have.checkpoints)) {
		trees = trees[:0]
		for _, id := range kept {
			if s.commits[id] <= n { // in an entry that is passed, or in one that was passed before
				trees = append(trees, id)
			}
		}
		good := len(trees) <= maxKeptTrees
		for number, since := range s.since { // whose bases the checkpoint does not give
			good = good && (number <= n || since >= n)
		}
		if good {
			return n, trees
		}
	}
	return 0, nil
}

// frees reports whether below low is a commit that is not kept.
func frees(s *survey, heads []*commit.Commit, kept []commit.ID, low uint64) bool {
	stays := make(map[commit.ID]bool, len(kept)+len(heads))
	for _, id := range kept {
		stays[id] = true
	}
	for _, h := range heads {
		stays[h.ID] = true
	}
	for id, n := range s.commits {
		if n < low && !stays[id] {
			return true
		}
	}
	return false
}

// goOn appends an entry that says nothing new, so that there can be another checkpoint. It returns
// errAnnounced when that has worked.
func (p *Page) goOn(ctx context.Context) error {
	retention := p.ses.retention
	o, err := p.out.Announce(ctx, &format.Body{Retention: &retention})
	if err == nil {
		err = p.append(ctx, o)
	}
	if err != nil {
		return err
	}
	return errAnnounced
}

// writeKept writes the checkpoint on which the floor will stand.
func (p *Page) writeKept(ctx context.Context, s *survey, have *stored, heads []*commit.Commit, trees []commit.ID, gone map[commit.ID]bool) error {
	k := outgoing.Kept{Gone: func(id commit.ID) bool { return gone[id] }, Condemned: s.outstanding(p.names, have)}
	for _, h := range heads {
		if err := p.haveTree(ctx, h); err != nil {
			return err
		}
	}
	for _, id := range trees {
		c, err := p.store.Commit(ctx, id)
		if err == nil {
			err = p.haveTree(ctx, c)
		}
		if errors.Is(err, base.ErrGone) {
			continue // nobody has it any more
		}
		if err != nil {
			return err
		}
		k.Trees = append(k.Trees, c)
	}
	at := p.ses.log.Position()
	size, err := p.out.WriteKept(ctx, at, heads, k)
	if err != nil {
		return fmt.Errorf("write checkpoint %d: %w", at.Number, err)
	}
	if size == 0 {
		return p.stepUnlessEmpty(ctx, heads)
	}
	p.s.checkpoints.Add(1)
	have.checkpoints = append(have.checkpoints, bucket.Info{Name: p.names.Checkpoint(at.Number), Size: size})
	return p.knowCheckpoint(ctx, checkpointRow{number: at.Number, room: p.ses.checkpoint.room, size: uint64(size)}, 0)
}

// stepUnlessEmpty is goOn for who finds that another device has just written a checkpoint of the
// same entry.
func (p *Page) stepUnlessEmpty(ctx context.Context, heads []*commit.Commit) error {
	if len(heads) == 1 && heads[0].IsFirst() {
		return fmt.Errorf("write a checkpoint of an empty page: %w", base.ErrInvalid)
	}
	return p.goOn(ctx)
}

// haveTree makes the tree of a commit readable.
func (p *Page) haveTree(ctx context.Context, c *commit.Commit) error {
	held, err := p.store.TreeHeld(ctx, c)
	if err != nil || held {
		return err
	}
	if err := p.buildTree(ctx, c.ID); err != nil {
		return fmt.Errorf("build the tree of %s: %w", c.ID.Short(), err)
	}
	return nil
}

// outstanding returns what is condemned and still there.
func (s *survey) outstanding(names format.PageNames, have *stored) []format.Condemnation {
	var c format.Condemnation
	for _, info := range have.packs {
		if _, _, _, id, ok := names.ParseName(info.Name); ok {
			if _, is := s.condemned[id]; is {
				c.Packs = append(c.Packs, id)
			}
		}
	}
	for _, info := range have.checkpoints {
		if _, n, _, _, ok := names.ParseName(info.Name); ok {
			if _, is := s.checkpoints[n]; is {
				c.Checkpoints = append(c.Checkpoints, n)
			}
		}
	}
	for _, b := range s.below {
		c.Below = max(c.Below, b.limit)
	}
	if len(c.Packs)+len(c.Checkpoints) == 0 && c.Below == 0 {
		return nil
	}
	return []format.Condemnation{c}
}
