package outgoing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// bodyBytes is about how long a body becomes; its pieces come on top.
	bodyBytes = 4 << 20
	// commitRoom is what a commit takes in a body beside its own bytes and those of its diff.
	commitRoom = 64
	// largeBytes is how much the values of a commit may take before it waits for a body of its own,
	// so that small commits do not wait for its packs.
	largeBytes = format.PackBytes
	// maxPatience is how many bodies of commits may go before local pieces of synced commits, whose
	// places will not stay for ever.
	maxPatience = 16
	// localBatch is how many local pieces are looked at before some of them are sent.
	localBatch = 1 << 16
)

// builder collects a body.
type builder struct {
	p      *Page
	body   *format.Body
	from   bases
	bytes  int
	deltas []*delta
}

// Next returns the next body: unsynced commits in order of generation and id, as many as fit (about
// 4 MiB), with the local pieces that they bring, which are uploaded to packs first when they are
// more than 1 MiB; changes of tags; packs that no entry has announced; or, when there are no
// unsynced commits, and at the latest after 16 bodies, local pieces whose place was condemned. It
// returns nil when there is nothing to send.
//
// It waits for the bucket, and for commits that are being written to become durable. When it fails,
// what it has uploaded is known, and is not uploaded again. Errors match base.ErrNeedsFetch when
// the tree of an unsynced commit is not here, or are those of the bucket, the store and ctx.
func (p *Page) Next(ctx context.Context) (*Outgoing, error) {
	tags, err := p.o.Store.UnsyncedTags(ctx) // before the commits: then these have all that tags point to
	if err != nil {
		return nil, fmt.Errorf("list changes of tags: %w", err)
	}
	tips := p.o.Store.Heads() // before the unsynced ones: see SyncedHeads
	ids, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("list unsynced commits: %w", err)
	}
	if err := p.loadPending(ctx, ids); err != nil {
		return nil, err
	}
	if len(p.past.Islands) > 0 { // parents before children: an island is the parent of islands alone
		slices.SortStableFunc(ids, func(a, b commit.ID) int { return int(boolByte(p.past.Islands[a])) - int(boolByte(p.past.Islands[b])) })
	}
	b := &builder{p: p, body: &format.Body{Device: p.o.Device}, from: bases{p: p, body: map[commit.ID]bool{}, tips: tips, unsynced: ids}}
	resend := p.turnToResend(len(ids))
	for i := 0; i < len(ids) && !resend; i++ {
		fits, err := b.add(ctx, ids[i])
		if err != nil {
			return nil, err
		}
		if !fits {
			break
		}
	}
	g := p.newGatherer(ctx)
	defer g.close()
	g.single, g.plain = resend, resend && p.o.Plain != nil
	if resend {
		err = p.resend(ctx, g)
	} else {
		g.progress = p.expect(b.deltas)
		err = g.deltas(b.deltas, g.pieces)
	}
	if errors.Is(err, errAnnounce) {
		return p.announcePacks(g)
	}
	if err != nil {
		return nil, err
	}
	more := b.finish(g, ids, tags)
	known, err := p.lacks(ctx)
	if err != nil {
		return nil, err
	}
	b.body.Lacks = known || g.lacks
	switch {
	case b.isEmpty() && resend && len(ids) > 0: // no local pieces have waited: the commits need not
		return p.Next(ctx)
	case b.isEmpty():
		return nil, nil
	}
	return p.seal(b.body, more || p.lookLocal)
}

// expect tells of what the diffs put, and returns who is told how far that is.
func (p *Page) expect(ds []*delta) *progress.Tracker {
	if len(ds) == 0 {
		return nil
	}
	var values, bytes int64
	for _, d := range ds {
		values += d.tally.puts
		bytes += d.tally.inline + int64(d.tally.valueBytes)
	}
	p.o.Progress.Begin(values, bytes)
	return p.o.Progress
}

// lacks reports whether it is known that values of the page may have pieces that nobody has sent.
// That is said of all that goes up then: what lies below pieces that were sent is not looked at
// again.
func (p *Page) lacks(ctx context.Context) (bool, error) {
	v, err := p.o.Store.Metadata(ctx, format.MetadataLacks)
	if err != nil {
		return false, fmt.Errorf("read whether pieces are missing: %w", err)
	}
	return v != nil, nil
}

// turnToResend reports whether the next body brings local pieces of synced commits: when there are
// no unsynced ones, or after many bodies of these.
func (p *Page) turnToResend(unsynced int) bool {
	if !p.lookLocal {
		return false
	}
	if p.waited++; unsynced > 0 && p.waited <= maxPatience {
		return false
	}
	p.waited = 0
	return true
}

// announcePacks returns a body that only says which packs there are. What they are for comes later.
func (p *Page) announcePacks(g *gatherer) (*Outgoing, error) {
	if err := g.flush(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	refs := p.pending.refs()
	p.mu.Unlock()
	return p.seal(&format.Body{Device: p.o.Device, Packs: refs}, true)
}

// add adds a commit, unless it does not fit.
func (b *builder) add(ctx context.Context, id commit.ID) (fits bool, err error) {
	store := b.p.o.Store
	c, err := store.Known(ctx, id)
	if err != nil {
		return false, fmt.Errorf("read unsynced commit: %w", err)
	}
	if err := store.WaitDurable(c); err != nil { // I1
		return false, fmt.Errorf("wait for commit %s: %w", id.Short(), err)
	}
	if len(b.body.Commits) > 0 && (b.bytes+len(c.Encode()) > bodyBytes || b.p.pendingDiffs() >= maxPending) {
		return false, nil
	}
	from, d, err := b.p.commitDelta(ctx, c, &b.from)
	if err != nil {
		return false, err
	}
	deltas, bytes := []*delta{d}, commitRoom+len(c.Encode())+len(d.diff.Inline)
	var explained []format.Explanation
	if len(c.Parents) > 1 {
		root, ok, err := store.Explanation(ctx, id)
		if err != nil {
			return false, fmt.Errorf("read explanation of commit %s: %w", id.Short(), err)
		}
		if ok {
			e, err := b.p.explanationDelta(ctx, id, root)
			if err != nil {
				return false, err
			}
			deltas = append(deltas, e)
			explained = append(explained, format.Explanation{Merge: id, Root: root, Diff: e.diff})
			bytes += commitRoom + len(e.diff.Inline)
		}
	}
	if len(b.body.Commits) > 0 && (b.bytes+bytes > bodyBytes || d.tally.valueBytes > largeBytes) {
		return false, nil
	}
	b.body.Commits = append(b.body.Commits, format.CommitChange{Commit: c, Base: from, Diff: d.diff, Past: b.p.past.Has(id), Plain: d.tally.plain})
	for _, id := range c.Parents {
		if b.body.Shallow || b.from.body[id] {
			continue
		}
		if _, err := store.Commit(ctx, id); isPruned(err) {
			b.body.Shallow = true
		} else if err != nil {
			return false, fmt.Errorf("read parent of commit %s: %w", c.ID.Short(), err)
		}
	}
	b.from.body[id] = true
	b.body.Explanations = append(b.body.Explanations, explained...)
	b.deltas, b.bytes = append(b.deltas, deltas...), b.bytes+bytes
	return true, nil
}

// finish adds to the body what goes with its commits. more says that something is left for another
// one.
func (b *builder) finish(g *gatherer, ids []commit.ID, tags []storage.TagChange) (more bool) {
	p := b.p
	p.mu.Lock()
	b.body.Packs = p.pending.refs()
	for id := range g.reliesPacks {
		if !p.pending.announces(id) {
			b.body.Relies = append(b.body.Relies, id)
		}
	}
	p.mu.Unlock()
	for n := range g.reliesEntries {
		b.body.ReliesEntries = append(b.body.ReliesEntries, n)
	}
	for _, q := range g.inline {
		b.body.Pieces = append(b.body.Pieces, format.InlinePiece{Digest: q.digest, Content: q.content, Plain: q.plain, Apart: q.apart})
	}
	tagsLeft := b.addTags(tags, ids[len(b.body.Commits):])
	return tagsLeft || len(b.body.Commits) < len(ids)
}

// addTags adds changes of tags, as far as they fit and point to commits that are in the log then.
// left are the commits that are not.
func (b *builder) addTags(tags []storage.TagChange, left []commit.ID) (more bool) {
	if len(tags) == 0 {
		return false
	}
	later := make(map[commit.ID]bool, len(left))
	for _, id := range left {
		later[id] = true
	}
	for _, t := range tags {
		if !t.Removed && later[t.Commit] {
			continue
		}
		bytes := commitRoom + len(t.Name)
		if b.bytes+bytes > bodyBytes && !b.isEmpty() {
			return true
		}
		b.body.Tags = append(b.body.Tags, format.TagChange{Name: t.Name, Commit: t.Commit, Removed: t.Removed})
		b.bytes += bytes
	}
	return false
}

func (b *builder) isEmpty() bool {
	return len(b.body.Commits)+len(b.body.Pieces)+len(b.body.Packs)+len(b.body.Tags) == 0
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// resend takes local pieces of commits that are synced: their place was condemned, or their commits
// came to be sent otherwise. Nobody says whether their values are EAGER; who needs them as such
// fetches them, as he has their commits already.
func (p *Page) resend(ctx context.Context, g *gatherer) error {
	for {
		var ds []object.Digest
		err := p.o.Store.LocalPieces(ctx, func(d object.Digest) error {
			if ds = append(ds, d); len(ds) == localBatch {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return fmt.Errorf("look for local pieces: %w", err)
		}
		if len(ds) == 0 {
			p.lookLocal = false
			return nil
		}
		if err := g.pieces(ds, false); err != nil {
			return err
		}
		uploaded := len(g.sent)
		if err := g.flush(); err != nil {
			return err
		}
		if len(g.sent) == uploaded {
			return nil // all are in the body
		}
	}
}
