package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/spool"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Enter implements pagelog.Page.
func (p *Page) Enter(ctx context.Context, x *pagelog.Epoch, next epoch.Position) error {
	if x.Kind == epoch.Deleted {
		return p.Keep(ctx, next)
	}
	p.o.Down.Begin(0, 0)
	err := p.enter(ctx, x, next)
	if err == nil {
		p.o.Down.Settle()
		return nil
	}
	err = blame(p.o.Names.Checkpoint(x.ID, x.Checkpoint), err)
	if isFault(err) {
		return fmt.Errorf("%w: %w", pagelog.ErrUnjoinable, err)
	}
	return err
}

// entering is an epoch during a join.
type entering struct {
	*step
	x  *pagelog.Epoch
	to epoch.Position
	h  *checkpoint.Header // nil: none
	// caughtUp says that the page is at the position where a cut was made, so that only runs new to
	// the page have news. A renewal may lack what this device had given up.
	caughtUp bool
	// unchanged says that the history of the log stays as it is. Then view is that of nearby.
	unchanged bool
	view      epoch.Graph // of the page
	st        epoch.State // at the beginning of the epoch
	near      map[epoch.Commit]epoch.Set
	manifest  []wire.Pack
	index     map[epoch.ID]bool // named packs of the manifest
	j         epoch.Joined
	// received has the commits of the checkpoint that are not here, parents first.
	received *spool.Spool
	w        *wire.Writer                    // to received
	heads    map[epoch.Commit]*commit.Commit // of the log
}

func (p *Page) enter(ctx context.Context, x *pagelog.Epoch, next epoch.Position) error {
	at := p.state.At
	e := &entering{
		x: x, to: next, index: map[epoch.ID]bool{}, near: map[epoch.Commit]epoch.Set{}, heads: map[epoch.Commit]*commit.Commit{},
		caughtUp: at.Joined() && x.Kind == epoch.Cut && at.Epoch == x.Parent && at.Number == x.Base && at.Hash == x.BaseHash && x.Checkpoint != epoch.ID{},
	}
	err := e.prepare(ctx, p)
	if err != nil {
		return err
	}
	if e.step, err = p.begin(ctx); err != nil { // after view: what the app commits meanwhile does not pass for a part of the log
		return err
	}
	defer e.end()
	e.received = spool.New(p.o.Store.TempDir(), "commits-*", spillBytes)
	defer e.received.Close()
	e.w = wire.NewWriter(e.received, wire.RunOf(wire.Commits))
	for _, read := range []func(context.Context) error{e.read, e.join, e.rescue, e.places, e.trees, e.commits, e.tags, e.settle} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare reads the header of the checkpoint, and the commits of the page.
func (e *entering) prepare(ctx context.Context, p *Page) (err error) {
	if e.x.Checkpoint != (epoch.ID{}) {
		if e.h, err = p.runs.Read(ctx, e.x.Proposal); err != nil {
			return badObject(p.o.Names.Checkpoint(e.x.ID, e.x.Checkpoint), err)
		}
		if e.h.Base.Number != e.x.Base || e.h.Base.Hash != e.x.BaseHash {
			return bad("it stands for entry %d, and the epoch for entry %d", e.h.Base.Number, e.x.Base)
		}
	}
	more := func(r wire.Run) bool { return r.Kind == wire.GivenUp && !p.hasRun(r) }
	if e.caughtUp && len(p.state.GiveUp)+len(p.state.Send) == 0 && !slices.ContainsFunc(e.h.Runs, more) {
		if e.view, err = p.nearby(ctx, e.h.Tags); err != nil {
			return err
		}
	}
	if e.unchanged = e.view != nil; !e.unchanged {
		e.view, _, err = p.graph(ctx)
	}
	return err
}

// read reads the checkpoint, the initial state of the epoch.
func (e *entering) read(ctx context.Context) (err error) {
	if e.h == nil {
		return nil
	}
	for _, read := range []func(context.Context) error{e.readGone, e.readCommits, e.readPacks, e.readMissing} {
		if err := read(ctx); err != nil {
			return badObject(e.p.o.Names.Checkpoint(e.x.ID, e.x.Checkpoint), err)
		}
	}
	e.st.Retention = epoch.Retention(e.h.Retention)
	return nil
}

// hasRun reports whether the present checkpoint has a run.
func (p *Page) hasRun(r wire.Run) bool {
	return p.state.Header != nil && slices.ContainsFunc(p.state.Header.Runs, func(o wire.Run) bool { return o.ID == r.ID })
}

// runs returns a header with the runs of a kind that have news, and whether these are all.
func (e *entering) runs(kind wire.RunKind) (h *checkpoint.Header, all bool) {
	h, all = &checkpoint.Header{}, true
	for _, r := range e.h.Runs {
		if r.Kind == kind && e.caughtUp && e.p.hasRun(r) {
			all = false
		} else if r.Kind == kind {
			h.Runs = append(h.Runs, r)
		}
	}
	return h, all
}

func (e *entering) readGone(ctx context.Context) error {
	h, _ := e.runs(wire.GivenUp)
	gone, err := e.p.runs.Gone(ctx, h)
	if e.st.Gone = gone; e.caughtUp {
		e.st.Gone = e.st.Gone.Union(e.p.state.Gone.Without(e.p.state.Send))
	}
	return err
}

// readCommits reads the commits that the checkpoint keeps.
func (e *entering) readCommits(ctx context.Context) error {
	h, _ := e.runs(wire.Commits)
	var nodes []epoch.Node
	generations := map[epoch.Commit]uint64{}
	if e.caughtUp {
		nodes = e.kept()
	}
	old := epoch.Graph(nodes)
	err := e.p.runs.Each(ctx, h, wire.Commits, func(r wire.Record) error {
		c := r.(*wire.Commit)
		id := short(c.Commit.ID)
		if e.st.Gone.Has(id) {
			return nil
		}
		if c.Near != nil {
			e.near[id] = c.Near
		}
		if e.unchanged {
			there, err := e.inLog(ctx, c.Commit.ID)
			if err == nil && there == nil {
				err = bad("commit %s is none of the log", c.Commit.ID)
			}
			return err
		}
		n := (&State{Near: e.near}).node(c.Commit)
		if e.caughtUp {
			i, ok := old.Index(id)
			if !ok {
				return bad("commit %s is none of the log", c.Commit.ID)
			}
			old[i].Near = n.Near
			return nil
		}
		if err := checkGeneration(c.Commit, generations); err != nil {
			return err
		}
		nodes = append(nodes, n)
		return e.receive(ctx, c)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b epoch.Node) int { return cmp.Compare(a.ID, b.ID) })
	e.st.Kept = nodes
	all := e.st.Kept.Set()
	for i := range e.st.Kept { // ancestors that are not kept do not count
		if n := &e.st.Kept[i]; !n.Near.Within(all) {
			n.Near = n.Near.And(all)
			e.near[n.ID] = n.Near
		}
	}
	return nil
}

// checkGeneration verifies the generation of a commit against its parents, which stand earlier.
func checkGeneration(c *commit.Commit, generations map[epoch.Commit]uint64) error {
	greatest, whole := commit.First().Generation, true
	for _, id := range c.Parents {
		g, ok := generations[short(id)]
		if id == commit.First().ID {
			g, ok = commit.First().Generation, true
		}
		whole = whole && ok
		if ok && g >= c.Generation {
			return bad("commit %s: generation %d with a parent's %d", c.ID, c.Generation, g)
		}
		greatest = max(greatest, g)
	}
	if whole && c.Generation != greatest+1 {
		return bad("commit %s: generation %d above parents of generation %d", c.ID, c.Generation, greatest)
	}
	generations[short(c.ID)] = c.Generation
	return nil
}

// kept returns the commits of the log that the page has and that the epoch does not give up.
func (e *entering) kept() (nodes []epoch.Node) {
	not := e.p.notInLog(e.unsynced).Union(e.st.Gone)
	for _, n := range e.view.Reduce(e.view.Set().Without(not)) {
		i, _ := e.view.Index(n.ID)
		if _, ok := e.p.state.Near[n.ID]; ok || !slices.Equal(n.Near, e.view[i].Near) {
			e.near[n.ID] = n.Near
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// notInLog returns the commits of the page that are not in the log.
func (p *Page) notInLog(unsynced map[commit.ID]bool) epoch.Set {
	return setOf(slices.Collect(maps.Keys(unsynced))).Union(setOf(p.state.GiveUp))
}

// maxReceived bounds the length of the received commits in one batch.
const maxReceived = 8 << 20

// receive records a commit of the checkpoint that is not here.
func (e *entering) receive(ctx context.Context, c *wire.Commit) error {
	if _, ok := e.view.Index(short(c.Commit.ID)); ok {
		if !e.unsynced[c.Commit.ID] {
			return nil
		}
		return e.sentBy(ctx, c.Commit.ID, c.Sender, true)
	}
	return e.w.Write(&wire.Commit{Commit: c.Commit, Sender: c.Sender})
}

// readPacks reads the manifest.
func (e *entering) readPacks(ctx context.Context) error {
	h, all := e.runs(wire.Packs)
	if !all {
		e.manifest = slices.Clone(e.p.state.Manifest)
	}
	err := e.p.runs.Each(ctx, h, wire.Packs, func(r wire.Record) error {
		w := r.(*wire.Pack)
		i, ok := slices.BinarySearchFunc(e.manifest, w, func(a wire.Pack, b *wire.Pack) int { return wire.Compare(&a, b) })
		switch {
		case ok && w.Dropped:
			e.manifest = slices.Delete(e.manifest, i, i+1)
		case ok:
			e.manifest[i] = *w
		case !w.Dropped:
			e.manifest = slices.Insert(e.manifest, i, *w)
		}
		return nil
	})
	for i := range e.manifest {
		e.index[e.manifest[i].ID] = true
	}
	return err
}

func (e *entering) readMissing(ctx context.Context) error {
	return e.p.runs.Each(ctx, e.h, wire.NotStored, func(r wire.Record) error {
		e.missing[r.(*wire.Missing).Piece] = true
		return nil
	})
}

// join decides the fate of the page's commits.
func (e *entering) join(context.Context) error {
	e.j = epoch.Join(e.view, e.p.state.Gone, e.st)
	return nil
}

// rescue secures data that would be lost of unsynced commits, and of given-up ones that are pinned,
// since new commits may stand on them: trees to which the present checkpoint leads, and pieces that
// only the bucket has, at places that no longer count.
func (e *entering) rescue(ctx context.Context) error {
	if !e.p.state.At.Joined() {
		return nil
	}
	needed, pinned := e.j.Unsynced, setOf(e.p.o.Store.Pins()).And(e.j.GivenUp)
	if len(pinned) > 0 {
		for _, n := range e.view.Reduce(e.view.Set().Without(e.j.GivenUp.Without(pinned))) {
			if pinned.Has(n.ID) {
				needed = needed.With(n)
			}
		}
	}
	if len(needed) == 0 {
		return nil
	}
	return e.p.rescue(ctx, needed, func(at storage.CloudPlace) bool { return !e.stays(at) })
}

// stays reports whether a place counts in the epoch.
func (e *entering) stays(at storage.CloudPlace) bool { return at.Entry == 0 && e.index[at.Pack] }

// places records the places in packs that are new to the page.
func (e *entering) places(ctx context.Context) error {
	heads := e.p.o.Store.Heads()
	bare := len(heads) == 1 && heads[0].IsFirst()
	n := e.step.next
	known := func(id epoch.ID) bool {
		w, ok := e.p.state.pack(id)
		return ok && !slices.ContainsFunc(e.p.state.Pending.Packs, func(o wire.Pack) bool { return o.ID == w.ID })
	}
	n.setManifest(e.manifest)
	n.Announced = nil
	n.Pending = Pending{Sent: slices.DeleteFunc(slices.Clone(e.p.state.Pending.Sent), func(id epoch.ID) bool {
		return len(e.j.Unsynced) == 0 || !e.index[id]
	})}
	e.expect(bare, known)
	for i := range e.manifest {
		w := &e.manifest[i]
		if known(w.ID) {
			continue
		}
		if err := e.pack(ctx, w, w.Eager && bare, false); err != nil {
			return err
		}
	}
	return nil
}

// expect adds the size of the epoch to the progress.
func (e *entering) expect(bare bool, known func(epoch.ID) bool) {
	if e.h == nil || !bare { // most of it is here
		return
	}
	for _, s := range e.h.Snapshots {
		e.p.o.Down.Expect(int64(s.Values), 0)
	}
	for _, w := range e.manifest {
		if w.Eager && !known(w.ID) {
			e.p.o.Down.Expect(0, int64(w.Bytes))
		}
	}
}

// settle makes the step durable.
func (e *entering) settle(ctx context.Context) error {
	n := e.step.next
	unplaced, err := e.p.o.Store.PlacedIn(ctx, func(at storage.CloudPlace) bool { return !e.stays(at) })
	if err != nil {
		return err
	}
	lost := false
	for _, p := range unplaced {
		e.b.Unplaced = append(e.b.Unplaced, p.Digest)
		if _, ok := e.mine[p.Digest]; !ok && !lost {
			st, err := e.look(p.Digest)
			if err != nil {
				return err
			}
			lost = !st.held && !e.missing[p.Digest]
		}
	}
	if lost { // a piece may have another place: its reader searches for it
		e.b.Metadata = append(e.b.Metadata, storage.Metadata{Type: storage.MetadataAdopted, Value: []byte{1}})
	}
	if err := e.setMissing(); err != nil {
		return err
	}
	kept := e.st.Kept.Set()
	gone, err := e.p.load(ctx, e.j.GivenUp)
	if err != nil {
		return err
	}
	e.giveThemUp(idsOf(gone), func(id commit.ID) bool { return kept.Has(short(id)) })
	for id := range e.unsynced {
		if kept.Has(short(id)) {
			e.b.Synced = append(e.b.Synced, id)
		}
	}
	if err := e.sendAgain(ctx); err != nil {
		return err
	}
	n.addGone(e.j.Memory)
	n.Send = e.j.Send
	if !e.unchanged {
		if err := e.setNear(ctx); err != nil {
			return err
		}
		n.Near = e.near
		if err := e.cover(ctx); err != nil {
			return err
		}
	}
	n.setHeader(e.h)
	n.Placed = nil
	n.From = e.st.Heads()
	n.Left = nil
	if e.h != nil { // else see State.Carried
		n.Retention = e.h.Retention
	}
	n.Bucket = e.p.o.Sealer.Keyring().BucketID()
	n.At, n.Entries, n.Bytes, n.EntryTime, n.KeyIndex = e.to, 0, 0, e.x.Created, 0
	e.b.Metadata = append(e.b.Metadata, storage.Metadata{Type: storage.MetadataLacks, Value: []byte{1}})
	if e.x.Kind == epoch.Renewal { // see resend
		e.b.Metadata = append(e.b.Metadata, storage.Metadata{Type: storage.MetadataPlaced})
	}
	err = e.submit(ctx)
	e.p.heads.known = e.p.heads.known && e.unchanged
	if errors.Is(err, base.ErrInvalid) {
		return &fault{err: err}
	}
	return err
}

// setMissing records the pieces that the checkpoint lists as missing and that have no place.
func (e *entering) setMissing() error {
	missing := map[object.Digest]bool{}
	for d := range e.missing {
		st, err := e.p.o.Store.PieceState(d)
		if err != nil {
			return fmt.Errorf("look for piece %s: %w", d, err)
		}
		if _, ok := e.mine[d]; !ok && !(st.Synced && e.stays(st.Place)) {
			missing[d] = true
		}
	}
	e.step.next.Missing = missing
	return nil
}

// sendAgain makes the commits unsynced that the epoch lacks.
func (e *entering) sendAgain(ctx context.Context) error {
	cs, err := e.p.load(ctx, e.j.Unsynced.Set())
	for _, c := range cs {
		if !e.unsynced[c.ID] {
			e.b.Unsynced = append(e.b.Unsynced, c.ID)
		}
	}
	return err
}

// setNear records the nearest ancestors of commits whose parents are not all in the epoch: those
// that the epoch names, and commits here that the epoch lacks. So a commit that is sent again does
// not count as a head if a commit of the log stands on it. The head of the log stands on what the
// epoch gave up (epoch.State.Above).
func (e *entering) setNear(ctx context.Context) (err error) {
	kept, here := e.st.Kept.Set(), e.view.Set()
	for _, n := range e.view {
		if i, ok := e.st.Kept.Index(n.ID); !ok {
			if near, ok := e.p.state.Near[n.ID]; ok || !n.Near.Within(here) {
				e.near[n.ID] = near.Union(n.Near.And(here))
			}
		} else if down := n.Near.And(here).Without(kept); len(down) > 0 {
			e.near[n.ID] = e.st.Kept[i].Near.Union(down)
		}
	}
	st := e.st
	if e.x.Kind == epoch.Renewal { // other lineages erased these
		st.Gone = st.Gone.Without(e.x.Erased)
	}
	above := st.Above(e.view).Kept
	for _, h := range e.st.Heads() {
		if i, _ := above.Index(h); !slices.Equal(above[i].Near, e.st.Kept[i].Near) {
			e.near[h] = e.near[h].Union(above[i].Near)
		}
	}
	e.near, _, err = e.rejoin(ctx, e.near, func(id commit.ID) bool {
		return kept.Has(short(id)) && !here.Has(short(id))
	})
	return err
}
