package replica

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// trees builds the trees of the log's heads that are not here.
func (e *entering) trees(ctx context.Context) error {
	if err := e.loadHeads(ctx); err != nil {
		return err
	}
	for _, id := range e.j.Heads {
		c := e.heads[id]
		if c == nil {
			return bad("head %016x is no commit of the checkpoint", uint64(id))
		}
		if c.Root == btree.EmptyRoot {
			continue
		}
		if _, here := e.view.Index(id); here {
			held, err := e.p.o.Store.TreeHeld(ctx, c)
			if err != nil {
				return fmt.Errorf("look for the tree of commit %s: %w", c.ID, err)
			}
			if held {
				continue
			}
		}
		if err := e.p.snapshot(ctx, e.step, e.h, c.Root); err != nil {
			return fmt.Errorf("tree of head %s: %w", c.ID, err)
		}
	}
	return e.values.settle(ctx)
}

// loadHeads gets the commits that are heads of the log.
func (e *entering) loadHeads(ctx context.Context) error {
	heads := e.j.Heads
	here, err := e.p.load(ctx, heads)
	if err != nil {
		return err
	}
	for _, c := range here {
		e.heads[short(c.ID)] = c
	}
	return e.eachReceived(func(c *wire.Commit) error {
		if id := short(c.Commit.ID); heads.Has(id) {
			e.heads[id] = c.Commit
		}
		return nil
	})
}

// eachReceived calls fn with the commits of the checkpoint that were not here, parents first.
func (e *entering) eachReceived(fn func(*wire.Commit) error) error {
	if e.received.Size() == 0 {
		return nil
	}
	in, err := e.received.Reader()
	if err != nil {
		return err
	}
	for c, err := range wire.NewReader(in, wire.RunOf(wire.Commits)).All() {
		if err == nil {
			err = fn(c.(*wire.Commit))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commits puts the commits of the checkpoint that are not here into the step: heads with their
// trees, others as history. If there are many, most become durable ahead of the step.
func (e *entering) commits(ctx context.Context) error {
	heads, size := e.j.Heads, 0
	history := &storage.SyncBatch{}
	err := e.eachReceived(func(r *wire.Commit) error {
		c := r.Commit
		if r.Sender != (seal.ID{}) {
			history.Metadata = append(history.Metadata, sender(c.ID, r.Sender, true))
			e.step.next.sees(r.Sender, c.Device, epoch.Time(c.Timestamp))
		}
		if heads.Has(short(c.ID)) {
			return nil
		}
		history.Commits = append(history.Commits, storage.ReceivedCommit{Commit: c, Treeless: true, Shallow: true})
		if size += len(c.Encode()) + 96; size <= maxReceived {
			return nil
		}
		for i := range history.Commits {
			history.Commits[i].Ahead = true
		}
		err := e.p.submitAlone(ctx, history)
		history, size = &storage.SyncBatch{}, 0
		return err
	})
	if err != nil {
		return fmt.Errorf("take over the history: %w", err)
	}
	e.b.Commits = history.Commits
	e.b.Metadata = append(e.b.Metadata, history.Metadata...)
	for _, id := range heads {
		c := e.heads[id]
		if e.caughtUp || e.unsynced[c.ID] {
			continue
		}
		e.b.Commits = append(e.b.Commits, storage.ReceivedCommit{Commit: c, Shallow: true, Anew: true})
	}
	slices.SortStableFunc(e.b.Commits, func(a, b storage.ReceivedCommit) int {
		return commit.CompareGeneration(a.Commit, b.Commit)
	})
	return nil
}

// tags sets the tags to those of the checkpoint. Unsynced changes of this device stay.
func (e *entering) tags(ctx context.Context) error {
	here, err := e.p.o.Store.Tags(ctx)
	if err != nil {
		return fmt.Errorf("read the tags: %w", err)
	}
	mine, err := e.p.o.Store.UnsyncedTags(ctx)
	if err != nil {
		return fmt.Errorf("read the tags: %w", err)
	}
	there := map[string]commit.ID{}
	if e.h != nil {
		for _, t := range e.h.Tags {
			if _, ok := e.st.Kept.Index(short(t.Commit)); !ok && t.Commit != commit.First().ID {
				return bad("tag %q of commit %s, which is not kept", t.Name, t.Commit)
			}
			there[t.Name] = t.Commit
		}
	}
	all := e.j.View.Set()
	for _, t := range mine {
		id, ok := there[t.Name]
		same := ok != t.Removed && (t.Removed || id == t.Commit)
		if same || !t.Removed && t.Commit != commit.First().ID && !all.Has(short(t.Commit)) {
			e.b.SyncedTags = append(e.b.SyncedTags, t) // the log has it, or its commit was given up
		}
	}
	for name, id := range there {
		if here[name] != id {
			e.b.Tags = append(e.b.Tags, storage.TagChange{Name: name, Commit: id})
		}
	}
	for name := range here {
		if _, ok := there[name]; !ok {
			e.b.Tags = append(e.b.Tags, storage.TagChange{Name: name, Removed: true})
		}
	}
	return nil
}

// snapshot builds the tree of a root from the snapshots of a checkpoint.
func (p *Page) snapshot(ctx context.Context, s *step, h *checkpoint.Header, root object.Digest) error {
	from, way, err := p.snapshotWay(ctx, h, root)
	if err != nil {
		return err
	}
	return p.applyDiffs(ctx, from, root, way, s, s, s.want(ctx))
}

// snapshotWay returns the snapshots that lead to a root, and the root of the tree here from which
// they lead.
func (p *Page) snapshotWay(ctx context.Context, h *checkpoint.Header, root object.Digest) (from object.Digest, way []wire.Diff, err error) {
	by := map[object.Digest]wire.Snapshot{}
	if h != nil {
		for _, n := range h.Snapshots {
			by[n.To] = n
		}
	}
	held, err := p.heldRoots(ctx, by)
	if err != nil {
		return from, nil, err
	}
	for at := root; ; {
		n, ok := by[at]
		if !ok || len(way) > len(by) {
			return from, nil, bad("no snapshot leads to the tree %s", root)
		}
		way = append(way, wire.Diff{Place: &n.Diff})
		if n.From.IsZero() {
			from = btree.EmptyRoot
			break
		}
		if at = n.From; held[at] {
			from = at
			break
		}
	}
	slices.Reverse(way)
	return from, way, nil
}

// heldRoots returns the roots of snapshots whose trees are here.
func (p *Page) heldRoots(ctx context.Context, of map[object.Digest]wire.Snapshot) (map[object.Digest]bool, error) {
	held := map[object.Digest]bool{}
	err := p.o.Store.EachCommit(ctx, func(c *commit.Commit) (err error) {
		if _, ok := of[c.Root]; ok && !held[c.Root] {
			held[c.Root], err = p.o.Store.TreeHeld(ctx, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look which trees are here: %w", err)
	}
	return held, nil
}
