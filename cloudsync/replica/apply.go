package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Apply implements pagelog.Page.
func (p *Page) Apply(ctx context.Context, e *pagelog.Entry, next epoch.Position) error {
	p.o.Down.Begin(0, int64(e.Stored))
	err := p.take(ctx, e, false, func(b *bodyStep) error { return b.finish(ctx, next) })
	if err == nil {
		p.o.Down.Settle()
	}
	return blame(p.o.Names.Entry(e.Epoch, e.Number), err)
}

// Adopt implements pagelog.Page.
func (p *Page) Adopt(ctx context.Context, e *pagelog.Entry) error {
	err := p.take(ctx, e, true, func(b *bodyStep) error { return b.finishAdopted(ctx) })
	return blame(p.o.Names.Entry(e.Epoch, e.Number), err)
}

// bodyStep is a step that applies the body of an entry.
type bodyStep struct {
	*step
	e *pagelog.Entry
	// adopts says that the commits become unsynced and that nothing else of the body counts.
	adopts bool
	// gone are commits that the entry gives up.
	gone     epoch.Set
	announce []wire.Pack
	stored   uint64 // bytes of packs and differences
	// short has the commits of the entry; for Adopt only the adopted ones.
	short  map[epoch.Commit]*commit.Commit
	near   map[epoch.Commit]epoch.Set
	placed map[epoch.Commit]Placed
	bare   map[commit.ID]bool // treeless commits without a child in the body
	// below are commits on which others of the entry stand. explained are those whose explanation
	// was received. size is the length of the batch's commits.
	below, explained map[commit.ID]bool
	size             int
	name             string       // of the device
	last             *wire.Commit // for the explanation after it
	lastNew          bool
	own              bool // the entry has commits that were unsynced here
	mixed            bool // it does more than add commits above the heads of the log
}

// take reads a body into a step, and calls finish.
func (p *Page) take(ctx context.Context, e *pagelog.Entry, adopts bool, finish func(*bodyStep) error) error {
	s, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	b := &bodyStep{
		step: s, e: e, adopts: adopts, short: map[epoch.Commit]*commit.Commit{},
		near: map[epoch.Commit]epoch.Set{}, placed: map[epoch.Commit]Placed{}, bare: map[commit.ID]bool{},
		below: map[commit.ID]bool{}, explained: map[commit.ID]bool{},
	}
	if p.state.Carried() {
		b.next.Retention = wire.Retention{}
	}
	err = p.eachRecord(ctx, "", &e.Entry, func(r wire.Record, at storage.CloudPlace) error { return b.record(ctx, r, at) })
	if err != nil {
		return err
	}
	if err := b.values.settle(ctx); err != nil {
		return err
	}
	return finish(b)
}

// record applies a record.
func (b *bodyStep) record(ctx context.Context, r wire.Record, at storage.CloudPlace) error {
	switch r := r.(type) {
	case *wire.Size:
		b.p.o.Down.Expect(int64(r.Values), int64(r.Bytes))
	case *wire.Gone:
		b.gone = append(b.gone, r.Commit) // the stream has them in order
	case *wire.Pack:
		return b.pack(ctx, r)
	case *wire.Piece:
		if b.adopts {
			at = storage.CloudPlace{}
		}
		return b.piece(ctx, r, at)
	case *wire.Missing:
		b.missing[r.Piece] = true
	case *wire.Commit:
		if err := b.commit(ctx, r); err != nil {
			return fmt.Errorf("commit %s: %w", r.Commit.ID, err)
		}
	case *wire.Explanation:
		if err := b.explanation(ctx, r); err != nil {
			return fmt.Errorf("explanation of merge %s: %w", b.last.Commit.ID, err)
		}
	case *wire.Tag:
		return b.tag(ctx, r)
	case *wire.Retention:
		b.next.Retention = *r
	}
	return nil
}

// pack applies a pack that the entry announces. Its places are already recorded if this device
// uploaded it.
func (b *bodyStep) pack(ctx context.Context, w *wire.Pack) error {
	if w.Epoch != b.e.Epoch || w.Since != 0 || w.Dropped {
		return bad("pack %s is not announced as a new one", w.ID)
	}
	if w.Eager { // of lazy ones a new device reads only what it needs
		b.stored += w.Bytes
	}
	b.announce = append(b.announce, *w)
	if b.adopts {
		return b.step.pack(ctx, w, true, true)
	}
	b.next.Announced = append(slices.Clip(b.next.Announced), *w)
	if slices.ContainsFunc(b.next.Pending.Packs, func(p wire.Pack) bool { return p.ID == w.ID }) {
		return nil
	}
	return b.step.pack(ctx, w, w.Eager, false)
}

// commit applies a commit.
func (b *bodyStep) commit(ctx context.Context, r *wire.Commit) error {
	c, id := r.Commit, short(r.Commit.ID)
	b.last, b.lastNew = r, false
	if r.Sender != (seal.ID{}) {
		return bad("it has another sender than the entry")
	}
	ok, err := b.parents(ctx, r)
	if err != nil {
		return err
	}
	_, here, err := b.find(ctx, c.ID)
	if err != nil {
		return err
	}
	if b.adopts && (!ok || here || b.p.state.wasGivenUp(id)) {
		return nil
	}
	for _, parent := range c.Parents {
		delete(b.bare, parent)
	}
	mine := b.unsynced[c.ID]
	if here && !mine { // the app may have merged the same heads since the step began
		if mine, err = b.p.o.Store.IsUnsynced(ctx, c.ID); err != nil {
			return fmt.Errorf("look for commit %s: %w", c.ID.Short(), err)
		}
	}
	if !here || mine {
		if err := b.sentBy(ctx, c.ID, b.e.Device, false); err != nil {
			return err
		}
		b.name = cmp.Or(c.Device, b.name)
	}
	b.short[id] = c
	b.mixed = b.mixed || b.p.state.wasGivenUp(id)
	if r.Near != nil {
		b.near[id] = r.Near
	}
	if r.Diff.Place != nil {
		b.placed[id] = Placed{Base: r.Base, Diff: *r.Diff.Place}
		b.stored += r.Diff.Place.Stored
	}
	if here {
		if mine {
			delete(b.unsynced, c.ID)
			b.b.Synced = append(b.b.Synced, c.ID)
			b.own = true
		} else {
			b.mixed = true
		}
		if wanting, err := b.wanting(ctx, r); err != nil || !wanting {
			return err
		}
		b.mixed = true
	}
	if r.Treeless {
		b.bare[c.ID] = true
	} else if err := b.tree(ctx, r); err != nil {
		return err
	}
	b.lastNew = !here
	b.commits[c.ID] = c
	b.b.Commits = append(b.b.Commits, storage.ReceivedCommit{
		Commit: c, Treeless: r.Treeless, Shallow: r.Near != nil, Anew: here,
	})
	for _, parent := range c.Parents {
		b.below[parent] = true
	}
	if b.size += len(c.Encode()) + 64; b.size > maxReceived && !b.adopts {
		return b.ahead(ctx)
	}
	return nil
}

// wanting reports whether a commit that is here has to be applied all the same: it was given up, or
// it was stored ahead of a batch that was never completed.
func (b *bodyStep) wanting(ctx context.Context, r *wire.Commit) (bool, error) {
	if b.giveUp[r.Commit.ID] || r.Treeless {
		return b.giveUp[r.Commit.ID], nil
	}
	held, err := b.p.o.Store.TreeHeld(ctx, r.Commit)
	if err != nil {
		return false, fmt.Errorf("look for the tree of commit %s: %w", r.Commit.ID, err)
	}
	return !held, nil
}

// ahead makes commits on which others stand durable as history, so that the remaining ones fit into
// a batch.
func (b *bodyStep) ahead(ctx context.Context) error {
	batch, left := &storage.SyncBatch{}, b.b.Commits[:0:0]
	b.size, b.mixed = 0, true
	for _, r := range b.b.Commits {
		if !b.below[r.Commit.ID] || b.explained[r.Commit.ID] {
			left, b.size = append(left, r), b.size+len(r.Commit.Encode())+64
			continue
		}
		batch.Commits = append(batch.Commits, storage.ReceivedCommit{Commit: r.Commit, Treeless: true, Shallow: true, Ahead: true})
	}
	b.b.Commits = left
	return b.p.submitAlone(ctx, batch)
}

// tree makes the tree of a commit.
func (b *bodyStep) tree(ctx context.Context, r *wire.Commit) error {
	from, err := b.rootOf(ctx, r.Base)
	if err != nil {
		return err
	}
	if b.bare[r.Base] {
		return bad("base %s has no tree", r.Base)
	}
	return b.p.applyDiffs(ctx, from, r.Commit.Root, []wire.Diff{r.Diff}, b.step, b.step, b.want(ctx))
}

// parents verifies a commit against its parents, or its nearest ancestors. ok is false for an
// adopted commit that lacks a parent here.
func (b *bodyStep) parents(ctx context.Context, r *wire.Commit) (ok bool, err error) {
	c, all := r.Commit, make([]*commit.Commit, 0, len(r.Commit.Parents))
	for _, id := range c.Parents {
		p, err := b.ancestor(ctx, id)
		switch {
		case err != nil:
			return false, err
		case p == nil && r.Near == nil && b.adopts:
			return false, nil
		case p == nil && r.Near == nil:
			return false, bad("parent %s is unknown", id)
		case p == nil:
			continue
		case p.Generation >= c.Generation:
			return false, bad("generation %d with a parent's %d", c.Generation, p.Generation)
		}
		all = append(all, p)
	}
	for _, id := range r.Near {
		n := b.short[id]
		if n == nil {
			if n, err = b.nearHere(ctx, id); err != nil {
				return false, err
			}
		}
		switch {
		case n == nil && b.adopts:
			return false, nil
		case n == nil:
			return false, bad("nearest ancestor %016x is unknown", uint64(id))
		case n.Generation >= c.Generation:
			return false, bad("generation %d with an ancestor's %d", c.Generation, n.Generation)
		}
	}
	if len(all) < len(c.Parents) {
		return true, nil
	}
	if err := commit.CheckParents(c, all); err != nil {
		return false, &fault{err: err}
	}
	return true, nil
}

// ancestor returns a commit on which a commit of the entry may stand. It is of the log or of the
// entry; for an adopted commit, any commit here.
func (b *bodyStep) ancestor(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if c := b.short[short(id)]; c != nil && c.ID == id {
		return c, nil
	}
	if !b.adopts {
		return b.inLog(ctx, id)
	}
	c, _, err := b.find(ctx, id)
	if b.giveUp[id] {
		c = nil
	}
	return c, err
}

func (b *bodyStep) nearHere(ctx context.Context, c epoch.Commit) (*commit.Commit, error) {
	id, ok, err := b.p.find(ctx, c)
	if err != nil || !ok {
		return nil, err
	}
	return b.ancestor(ctx, id)
}

// rootOf returns the root of a base. The tree is built if it is not here.
func (b *bodyStep) rootOf(ctx context.Context, id commit.ID) (object.Digest, error) {
	if id.IsZero() || id == commit.First().ID {
		return btree.EmptyRoot, nil
	}
	c, err := b.ancestor(ctx, id)
	if err != nil {
		return object.Digest{}, err
	}
	if c == nil {
		return object.Digest{}, bad("base %s is no commit of the log", id)
	}
	if b.commits[id] != nil {
		return c.Root, nil
	}
	err = b.p.BuildTrees(ctx, []commit.ID{id})
	if errors.Is(err, base.ErrGone) {
		return object.Digest{}, bad("base %s: %w", id, err)
	}
	return c.Root, err
}

// explanation applies the explanation of the commit before it. For a commit that is already here it
// does nothing: the first explanation counts.
func (b *bodyStep) explanation(ctx context.Context, x *wire.Explanation) error {
	if !b.lastNew {
		return nil
	}
	if err := b.p.applyDiffs(ctx, btree.EmptyRoot, x.Root, []wire.Diff{x.Diff}, b.step, b.step, b.want(ctx)); err != nil {
		return err
	}
	b.explained[b.last.Commit.ID] = true
	b.j.Explain(b.last.Commit.ID, x.Root)
	return nil
}

// tag applies a change of a tag.
func (b *bodyStep) tag(ctx context.Context, t *wire.Tag) error {
	if b.adopts {
		return nil
	}
	change := storage.TagChange{Name: t.Name, Commit: t.Commit, Removed: t.Commit.IsZero()}
	if !change.Removed {
		c := b.short[short(t.Commit)]
		if c == nil || c.ID != t.Commit {
			var err error
			if c, err = b.inLog(ctx, t.Commit); err != nil {
				return err
			}
		}
		if c == nil {
			return bad("tag %q of commit %s, which is unknown", t.Name, t.Commit)
		}
	}
	b.b.Tags = append(b.b.Tags, change)
	b.b.SyncedTags = append(b.b.SyncedTags, change)
	return nil
}

// finish makes the step durable, as the effect of an entry.
func (b *bodyStep) finish(ctx context.Context, next epoch.Position) error {
	b.next.Near = added(b.next.Near, b.near)
	if err := b.giveUpGone(ctx); err != nil {
		return err
	}
	if err := b.covered(ctx); err != nil {
		return err
	}
	for _, r := range b.b.Commits {
		if b.bare[r.Commit.ID] && !r.Inner {
			return bad("commit %s without a tree has no children", r.Commit.ID)
		}
	}
	n := b.next
	b.leavePending()
	n.Placed = added(n.Placed, b.placed)
	if err := b.lacks(); err != nil {
		return err
	}
	n.At = next
	n.Entries++
	n.Bytes += uint64(b.e.Stored) + b.stored
	n.EntryTime = b.e.Created
	n.KeyIndex = b.e.KeyIndex
	if len(b.short) > 0 {
		n.sees(b.e.Device, b.name, b.e.Created)
	}
	err := b.submit(ctx)
	if err == nil {
		b.p.heads.follow(b)
	}
	if errors.Is(err, base.ErrInvalid) { // storage refuses a commit that no honest bucket has
		return &fault{err: err}
	}
	return err
}

// leavePending removes from State.Pending what the entry has brought to the log. Unsynced commits
// are sent all together.
func (b *bodyStep) leavePending() {
	p := b.next.Pending
	if len(p.Packs) == 0 && len(p.Sent) == 0 {
		return
	}
	var left []wire.Pack
	sent := slices.Clone(p.Sent)
	for _, w := range p.Packs {
		if slices.ContainsFunc(b.announce, func(a wire.Pack) bool { return a.ID == w.ID }) {
			sent = append(sent, w.ID)
		} else {
			left = append(left, w)
		}
	}
	if p.Packs, p.Sent = left, sent; b.own {
		p.Sent = nil
	}
	b.next.Pending = p
}

// lacks records pieces that no device has sent.
func (b *bodyStep) lacks() error {
	if len(b.missing) == 0 {
		return nil
	}
	missing := cloned(b.next.Missing)
	for d := range b.missing {
		st, err := b.look(d)
		if err != nil {
			return err
		}
		if !st.placed {
			missing[d] = true
		}
	}
	b.next.Missing = missing
	b.p.out.looked = false // those that are here go up
	return nil
}

// covered gives commits their parents if the log had them without these, and finds the commits that
// are no heads.
func (b *bodyStep) covered(ctx context.Context) error {
	fresh := map[commit.ID]bool{}
	for _, c := range b.short {
		fresh[c.ID] = true
	}
	for _, id := range b.next.GiveUp {
		delete(fresh, id)
	}
	near, changed, err := b.rejoin(ctx, b.next.Near, func(id commit.ID) bool { return fresh[id] })
	if err != nil {
		return err
	}
	if changed {
		b.next.Near = near
		b.next.From = nil // restored commits may stand below the heads of the checkpoint
	}
	if b.mixed = b.mixed || changed || len(b.near)+len(b.bare) > 0; !b.mixed {
		return nil
	}
	return b.cover(ctx)
}

// headsHere returns the heads of the page, durable and chained ones, by their short names.
func (p *Page) headsHere() map[epoch.Commit]*commit.Commit {
	heads := map[epoch.Commit]*commit.Commit{}
	for _, c := range slices.Concat(p.o.Store.Heads(), p.o.Store.ChainedHeads()) {
		if !c.IsFirst() {
			heads[short(c.ID)] = c
		}
	}
	return heads
}

// giveUpGone gives up the commits that the entry lists as gone.
func (b *bodyStep) giveUpGone(ctx context.Context) error {
	n := b.next
	n.addGoneIn(b.gone)
	// A commit that the log has given up stays given up, even if a device sends it again.
	gone := b.gone
	for id := range b.short {
		if n.wasGivenUp(id) && !n.Send.Has(id) {
			gone = gone.Union(epoch.Set{id})
		}
	}
	if len(gone) == 0 && !slices.ContainsFunc(n.GiveUp, func(id commit.ID) bool { return b.short[short(id)] != nil }) {
		return nil
	}
	b.mixed = true
	var ids []commit.ID
	for _, short := range gone {
		id, ok, err := b.p.find(ctx, short)
		if err != nil {
			return err
		}
		if c := b.short[short]; c != nil {
			id, ok = c.ID, true
		}
		if ok {
			ids = append(ids, id)
		}
	}
	b.giveThemUp(ids, func(id commit.ID) bool { return b.short[short(id)] != nil && !gone.Has(short(id)) })
	return nil
}

// addGoneIn records commits that an entry gives up.
func (s *State) addGoneIn(gone epoch.Set) {
	if len(gone) == 0 {
		return
	}
	s.addGone(gone)
	s.Left = s.Left.Union(gone)
	if len(s.Send.And(gone)) > 0 {
		s.Send = s.Send.Without(gone)
	}
}

// finishAdopted makes the step durable, with its commits as unsynced ones.
func (b *bodyStep) finishAdopted(ctx context.Context) error {
	if b.leaveBare(); len(b.b.Commits) == 0 {
		return nil
	}
	b.next.Near = added(b.next.Near, b.near)
	if err := b.covered(ctx); err != nil {
		return err
	}
	b.next.Retention = b.p.state.Retention
	for _, r := range b.b.Commits {
		b.b.Unsynced = append(b.b.Unsynced, r.Commit.ID)
	}
	return b.submit(ctx)
}

// leaveBare takes out the treeless commits on which no other adopted one stands. Those that the
// entry has above them stand on a commit that is not here as well, and are not adopted.
func (b *bodyStep) leaveBare() {
	clear(b.below)
	for i := len(b.b.Commits) - 1; i >= 0; i-- {
		r := b.b.Commits[i]
		if id := r.Commit.ID; r.Treeless && !b.below[id] {
			b.b.Commits = slices.Delete(b.b.Commits, i, i+1)
			delete(b.commits, id)
			delete(b.short, short(id))
			delete(b.near, short(id))
			delete(b.placed, short(id))
			continue
		}
		for _, parent := range r.Commit.Parents {
			b.below[parent] = true
		}
	}
}
