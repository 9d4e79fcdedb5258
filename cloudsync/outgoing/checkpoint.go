package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// WriteCheckpoint uploads the checkpoint of a position at which the page stands: the commits that
// the page knows below heads, which are the heads as of that position, the trees of the heads as
// diffs, and all tags. Pieces of the heads' values that stand in log entries alone go into packs
// first, of which the next body tells; so do those of EAGER values that stand in packs of which
// little is live, until a new device reads little that is dead. It returns the length of the
// checkpoint in bytes, 0 when there is one already or the heads are the first commit.
//
// It holds 200 bytes for each commit, 96 for each block of packs with pieces of EAGER values, and
// else little: the rest streams through memory or a temporary file. It fetches index pieces that
// are not held, and asks the bucket about packs that neither an earlier checkpoint of this page nor
// the last body has described. Errors match base.ErrInvalid for a head that is not synced,
// base.ErrConflict while a change of a tag is not in the bucket, base.ErrNeedsFetch when the tree
// of a head is not here; others are those of the bucket, the store and ctx.
func (p *Page) WriteCheckpoint(ctx context.Context, at format.Position, heads []*commit.Commit) (int64, error) {
	return p.checkpoint(ctx, at, heads, true, nil)
}

// Kept says what of a page's history a checkpoint has, where the bucket gives some of it up.
type Kept struct {
	// Gone reports commits that are left out.
	Gone func(commit.ID) bool
	// Trees are commits, no heads, whose trees the checkpoint has.
	Trees []*commit.Commit
	// Condemned is what was condemned before and is still there.
	Condemned []format.Condemnation

	news bool // tags count that are not in the bucket
}

// WriteKept is WriteCheckpoint for a part of the history. Trees of commits that are not here are
// left out.
func (p *Page) WriteKept(ctx context.Context, at format.Position, heads []*commit.Commit, k Kept) (int64, error) {
	return p.checkpoint(ctx, at, heads, true, &k)
}

// WriteHistory uploads a checkpoint of a position with commits that the log does not have: heads
// may be unsynced, as may be what is below them. It is how commits without trees get into a bucket
// that lacks them. It has all tags, synced or not, and the trees of commits that have tags and no
// way to the heads any more. All else is as with WriteCheckpoint.
func (p *Page) WriteHistory(ctx context.Context, at format.Position, heads []*commit.Commit) (int64, error) {
	k := Kept{news: true}
	var err error
	if k.Trees, err = p.taggedIslands(ctx, heads); err != nil {
		return 0, err
	}
	return p.checkpoint(ctx, at, heads, false, &k)
}

// maxIslands is how many of the newest commits without a way to the heads have their trees in a
// checkpoint of history.
const maxIslands = 64

// taggedIslands returns commits with tags from which no head leads on, since what was between was
// given up.
func (p *Page) taggedIslands(ctx context.Context, heads []*commit.Commit) (islands []*commit.Commit, err error) {
	tags, err := p.o.Store.Tags(ctx)
	if err != nil || len(tags) == 0 {
		return nil, err
	}
	some, oldest := map[commit.ID]bool{}, uint64(math.MaxUint64)
	for _, id := range tags {
		c, err := p.o.Store.Commit(ctx, id)
		if isPruned(err) || err == nil && (c.IsFirst() || some[id]) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read tagged commit %s: %w", id.Short(), err)
		}
		some[id], oldest = true, min(oldest, c.Generation)
		islands = append(islands, c)
	}
	led, err := reached(ctx, p.o.Store, heads, oldest, some)
	if err != nil {
		return nil, err
	}
	islands = slices.DeleteFunc(islands, func(c *commit.Commit) bool { return led[c.ID] })
	slices.SortFunc(islands, commit.CompareGeneration)
	return islands[max(0, len(islands)-maxIslands):], nil
}

func (p *Page) checkpoint(ctx context.Context, at format.Position, heads []*commit.Commit, synced bool, k *Kept) (int64, error) {
	heads = slices.DeleteFunc(slices.Clone(heads), (*commit.Commit).IsFirst)
	if len(heads) == 0 {
		return 0, nil
	}
	name := p.o.Names.Checkpoint(at.Number)
	_, _, err := look(ctx, p.o.Bucket, name)
	if err == nil {
		return 0, nil
	}
	var bytes int64
	if errors.Is(err, base.ErrNotFound) {
		bytes, err = p.writeCheckpoint(ctx, name, at, heads, synced, k)
	}
	if errors.Is(err, bucket.ErrExists) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write checkpoint %d: %w", at.Number, err)
	}
	return bytes, nil
}

func (p *Page) writeCheckpoint(ctx context.Context, name string, at format.Position, heads []*commit.Commit, synced bool, k *Kept) (int64, error) {
	if synced {
		if err := p.checkSynced(ctx, heads); err != nil {
			return 0, err
		}
	}
	if err := p.checkTrees(ctx, heads); err != nil {
		return 0, err
	}
	if err := p.loadPending(ctx, nil); err != nil {
		return 0, err
	}
	c := &format.Checkpoint{At: at}
	if k == nil {
		k = &Kept{}
	}
	h, err := p.history(ctx, heads, k)
	if err != nil {
		return 0, err
	}
	for _, head := range heads {
		i, _ := h.find(head)
		c.Heads = append(c.Heads, i)
	}
	if c.Tags, err = p.syncedTags(ctx, h, k.news); err != nil {
		return 0, err
	}
	if p.o.Kept != nil {
		c.Retention, c.Condemned = p.o.Kept()
	}
	c.Condemned = append(c.Condemned, k.Condemned...)
	deltas := p.headDeltas(heads)
	if deltas, err = p.addTrees(ctx, c, h, deltas, k.Trees); err != nil {
		return 0, err
	}
	for i, d := range deltas {
		if d.diff.Bytes, d.tally, err = p.encode(ctx, d.from, d.to, io.Discard); err != nil {
			return 0, err
		}
		if i < len(c.Heads) {
			c.DiffBytes = append(c.DiffBytes, d.diff.Bytes)
		} else {
			c.TreeBytes = append(c.TreeBytes, d.diff.Bytes)
		}
	}
	if err = p.livePacks(ctx, c, deltas); err != nil {
		return 0, err
	}
	c.Condemned = withoutPacks(c.Condemned, c.Packs)
	if err := p.keepRefs(ctx, c.Packs); err != nil {
		return 0, err
	}
	return p.putCheckpoint(ctx, name, c, h, deltas)
}

// checkSynced proves that what a checkpoint has is in the bucket.
func (p *Page) checkSynced(ctx context.Context, heads []*commit.Commit) error {
	tags, err := p.o.Store.UnsyncedTags(ctx)
	if err != nil {
		return fmt.Errorf("list changes of tags: %w", err)
	}
	if len(tags) > 0 {
		return fmt.Errorf("%d changes of tags are not in the bucket: %w", len(tags), base.ErrConflict)
	}
	unsynced, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return fmt.Errorf("list unsynced commits: %w", err)
	}
	for _, h := range heads {
		if slices.Contains(unsynced, h.ID) {
			return fmt.Errorf("head %s is not in the bucket: %w", h.ID.Short(), base.ErrInvalid)
		}
	}
	return nil
}

func (p *Page) checkTrees(ctx context.Context, heads []*commit.Commit) error {
	for _, h := range heads {
		if held, err := p.o.Store.TreeHeld(ctx, h); err != nil || !held {
			if err == nil {
				err = base.ErrNeedsFetch
			}
			return fmt.Errorf("look at the tree of head %s: %w", h.ID.Short(), err)
		}
	}
	return nil
}

// withoutPacks leaves packs that are used out of condemnations: whoever condemned them broke the
// rules.
func withoutPacks(cs []format.Condemnation, used []format.PackRef) (out []format.Condemnation) {
	ids := map[format.ID]bool{}
	for i := range used {
		ids[used[i].ID] = true
	}
	for _, c := range cs {
		c.Packs = slices.DeleteFunc(slices.Clone(c.Packs), func(id format.ID) bool { return ids[id] })
		if len(c.Packs)+len(c.Checkpoints) > 0 || c.Below > 0 {
			out = append(out, c)
		}
	}
	return out
}

// addTrees adds the deltas of commits that are no heads, as far as their trees are here, and says
// in c which these are.
func (p *Page) addTrees(ctx context.Context, c *format.Checkpoint, h history, ds []*delta, trees []*commit.Commit) ([]*delta, error) {
	trees = slices.Clone(trees)
	slices.SortFunc(trees, commit.CompareGeneration)
	for _, k := range trees {
		i, ok := h.find(k)
		held, err := p.o.Store.TreeHeld(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("look at the tree of commit %s: %w", k.ID.Short(), err)
		}
		if !ok || !held || slices.Contains(c.Heads, i) {
			continue
		}
		c.Trees = append(c.Trees, i)
		ds = append(ds, &delta{from: ds[0].to, to: p.tree(k.Root)})
	}
	return ds, nil
}

// history has the commits of a checkpoint, which may be many, in their order: as
// commit.CompareGeneration says, so that parents come first.
type history []ancestor

// ancestor is what is held of a commit.
type ancestor struct {
	generation uint64
	timestamp  int64
	id         commit.ID
}

func ancestorOf(c *commit.Commit) ancestor { return ancestor{c.Generation, c.Timestamp, c.ID} }

func compareAncestors(a, b ancestor) int {
	return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.timestamp, b.timestamp), a.id.Compare(b.id))
}

// find returns where a commit is.
func (h history) find(c *commit.Commit) (uint32, bool) {
	i, ok := slices.BinarySearchFunc(h, ancestorOf(c), compareAncestors)
	return uint32(i), ok
}

// each gives the commits to take.
func (p *Page) each(ctx context.Context, h history, take func(*commit.Commit) error) error {
	for i := range h {
		c, err := p.o.Store.Commit(ctx, h[i].id)
		if err != nil {
			return fmt.Errorf("read commit %s: %w", h[i].id.Short(), err)
		}
		if err := take(c); err != nil {
			return err
		}
	}
	return nil
}

// history returns the commits below heads that the page knows, and k keeps.
func (p *Page) history(ctx context.Context, heads []*commit.Commit, k *Kept) (history, error) {
	var commits history
	seen := map[commit.ID]bool{}
	next := slices.Clone(heads)
	for _, h := range heads {
		seen[h.ID] = true
	}
	tags, err := p.taggedInBucket(ctx, k.news)
	if err != nil {
		return nil, err
	}
	for _, id := range tags { // what is between them and the heads may be given up
		c, err := p.o.Store.Commit(ctx, id)
		if isPruned(err) || err == nil && (seen[id] || c.IsFirst()) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read tagged commit %s: %w", id.Short(), err)
		}
		seen[id] = true
		next = append(next, c)
	}
	for len(next) > 0 {
		c := next[len(next)-1]
		next = next[:len(next)-1]
		commits = append(commits, ancestorOf(c))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, id := range c.Parents {
			if seen[id] {
				continue
			}
			seen[id] = true
			if k.Gone != nil && k.Gone(id) {
				continue
			}
			parent, err := p.o.Store.Commit(ctx, id)
			switch {
			case isPruned(err): // history gave it up
			case err != nil:
				return nil, fmt.Errorf("read commit %s: %w", id.Short(), err)
			case !parent.IsFirst():
				next = append(next, parent)
			}
		}
	}
	slices.SortFunc(commits, compareAncestors)
	return commits, nil
}

// taggedInBucket returns the tags that are in the bucket, and with news the others, too.
func (p *Page) taggedInBucket(ctx context.Context, news bool) (map[string]commit.ID, error) {
	all, err := p.o.Store.Tags(ctx)
	if err != nil || len(all) == 0 || news {
		return all, err
	}
	changes, err := p.o.Store.UnsyncedTags(ctx)
	if err != nil {
		return nil, fmt.Errorf("list changes of tags: %w", err)
	}
	for _, t := range changes {
		delete(all, t.Name)
	}
	return all, nil
}

// syncedTags returns the tags of taggedInBucket that point to a commit of h or to the first commit.
func (p *Page) syncedTags(ctx context.Context, h history, news bool) ([]format.TagChange, error) {
	all, err := p.taggedInBucket(ctx, news)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var tags []format.TagChange
	for name, id := range all {
		c, err := p.o.Store.Commit(ctx, id)
		if isPruned(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read tagged commit %s: %w", id.Short(), err)
		}
		if _, ok := h.find(c); ok || c.IsFirst() {
			tags = append(tags, format.TagChange{Name: name, Commit: id})
		}
	}
	slices.SortFunc(tags, func(a, b format.TagChange) int { return strings.Compare(a.Name, b.Name) })
	return tags, nil
}

// headDeltas says from where the diff of each head leads.
func (p *Page) headDeltas(heads []*commit.Commit) []*delta {
	var ds []*delta
	for i, h := range heads {
		from := btree.EmptyRoot
		if i > 0 {
			from = heads[0].Root
		}
		ds = append(ds, &delta{from: p.tree(from), to: p.tree(h.Root)})
	}
	return ds
}

// livePacks finds the packs that hold the values of the heads, after it has uploaded what no pack
// holds and what no pack that is worth to be read does, and whether there are pieces that nobody
// has sent, in these values or, as is known, in others.
func (p *Page) livePacks(ctx context.Context, c *format.Checkpoint, ds []*delta) (err error) {
	l := p.newLive(ctx)
	defer l.g.close()
	if c.Packs, c.Partial, err = l.find(ctx, ds); err != nil {
		return err
	}
	known, err := p.lacks(ctx)
	c.Lacks = l.g.lacks || known
	return err
}

// putCheckpoint seals a checkpoint and stores it.
func (p *Page) putCheckpoint(ctx context.Context, name string, c *format.Checkpoint, h history, ds []*delta) (n int64, err error) {
	s := p.spill()
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	w, err := p.o.Sealer.NewWriter(s, p.o.Names.CheckpointLabel(c.At.Number), p.o.Plain == nil)
	if err != nil {
		return 0, fmt.Errorf("seal checkpoint: %w", err)
	}
	if err := c.StreamTo(w, func(take func(*commit.Commit) error) error { return p.each(ctx, h, take) }); err != nil {
		return 0, err
	}
	for i, d := range ds {
		bytes, _, err := p.encode(ctx, d.from, d.to, w)
		if err == nil && bytes != d.diff.Bytes {
			err = fmt.Errorf("tree %d gave %d bytes, then %d", i, d.diff.Bytes, bytes)
		}
		if err != nil {
			return 0, err
		}
	}
	if err := w.Close(); err != nil {
		return 0, fmt.Errorf("seal checkpoint: %w", err)
	}
	r, err := s.Reader()
	if err != nil {
		return 0, err
	}
	if err := p.o.Bucket.PutIfAbsent(ctx, name, s.Size(), r); err != nil {
		return 0, fmt.Errorf("upload %s: %w", name, err)
	}
	return s.Size(), nil
}
