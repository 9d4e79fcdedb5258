package epoch_test

import (
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/epoch/epochtest"
)

// rules are the functions of the package that the model runs. A mutant replaces one of them, or
// sets one of the flags, each of which leaves out a rule that is not a function's.
type rules struct {
	look  func(p epoch.Position, l epoch.Looked) epoch.LookVerdict
	read  func(p epoch.Position, r epoch.Reading) epoch.ReadVerdict
	put   func(p epoch.Position, stored bool, created epoch.Time) bool
	help  func(p epoch.Position, x *epoch.Proposal, l epoch.Looked, joinable bool) (epoch.TurnVerdict, uint64)
	join  func(g epoch.Graph, memory epoch.Set, s epoch.State) epoch.Joined
	keep  func(s epoch.State, at epoch.Time, erase epoch.Set) epoch.Set
	renew func(s epoch.State, id epoch.ID, p epoch.Position, seen epoch.Looked, erased, send epoch.Set, packs []epoch.ID) (epoch.Proposal, epoch.State)
	may   func(d *epoch.Deletion, o epoch.Object) bool

	settled func(lineage []epoch.Began, now epoch.Time) int

	keepPending    bool // pending packs survive a join
	keepPlaces     bool // places outside the manifest survive a join
	oneByOne       bool // commits go up one in an entry, also after a join
	closingDecides bool // the proposal of a closing entry is joined without epochs/{k+1}
	oldDir         bool // what a new epoch needs is written into the directory of the one before
	noAdoption     bool // nothing behind a hole is adopted
	noErased       bool // a renewal does not ask what other lineages erased
	noEdge         bool // the head of an epoch has no edge to what the epoch gave up
	noneHeld       bool // given-up commits are pruned that no merge of the present heads needs
	anyPair        bool // heads are merged in any order
	anyHeads       bool // a cut begins while the log has several heads
	keepLong       bool // an uploaded body survives a join
	namesAll       bool // a renewal from another lineage names packs of its own
	ownNames       bool // the names in the own epoch decide on deletion
}

func honest() *rules {
	return &rules{
		look: epoch.Position.Look, read: epoch.Position.Read, put: epoch.Position.Put, help: help,
		join: epoch.Join, keep: epoch.State.Keep, renew: renewal, may: (*epoch.Deletion).May, settled: epoch.Settled,
	}
}

// seen is what a list of epochs/ shows the device.
func (w *world) seen(r *rules, d *device) (l epoch.Looked, newest *epochObject) {
	l.At = w.now
	own := w.b.epochAt(d.at.K)
	l.Own = d.at.Joined() && own != nil && own.x.ID == d.at.Epoch
	newest = w.b.newest()
	if newest != nil {
		l.Any, l.Newest, l.Deleted = true, newest.k, newest.x.Kind == epoch.Deleted
	}
	return l, newest
}

// look looks, and joins what is the newest. It reports whether anything changed, and whether there
// is evidence that the bucket has to be renewed.
func (w *world) look(r *rules, d *device) (changed, bad bool) {
	l, newest := w.seen(r, d)
	switch r.look(d.at, l) {
	case epoch.Current:
		changed = d.at.Looked != l.At
		d.at.Looked = l.At
		return changed, false
	case epoch.Restore:
		x := d.at.Propose(w.newID(), epoch.Deleted)
		x.Hash = hashOf(x.ID, x.Parent, x.BaseHash, x.Checkpoint)
		w.b.putEpoch(epochObject{l.Behind(), x, w.now})
		return true, false
	case epoch.Enter:
		if _, ok := w.b.checkpointOf(newest.x); ok {
			w.join(r, d, newest.k, newest.x, l.At)
			return true, false
		}
	}
	return false, true
}

// join takes the device into x, which is epochs/{k} and has its checkpoint.
func (w *world) join(r *rules, d *device, k uint64, x *epoch.Proposal, looked epoch.Time) {
	before, left := d.log.Packs, w.b.followed(d.at.K)
	d.reset()
	if x.Kind == epoch.Deleted {
		w.known = true
		*d = device{on: true, at: x.At(k, looked), skew: d.skew}
		return
	}
	if d.at.Adopts(x) && !r.noAdoption {
		w.adopt(d)
	}
	c, _ := w.b.checkpointOf(x)
	g := w.graph(d)
	d.near = g
	if !r.noEdge {
		d.near = g.With(c.state.Above(g).Kept...)
	}
	j := w.settle(r, d, c.state)
	d.at, d.manifest = x.At(k, looked), c.state.Packs
	d.chain = slices.Clone(w.chainOf(x.ID))
	d.tags = slices.DeleteFunc(slices.Clone(d.tags), func(t epoch.Tag) bool { return !j.View.Set().Has(t.Commit) })
	if !r.keepPending {
		d.pending = nil
	}
	if !r.keepLong {
		d.long, d.longOf = epoch.ID{}, epoch.Hash{}
	}
	need := w.needs(d.unsynced.Set()) &^ w.placed(d.log.Packs) &^ d.held
	if lost := need & w.placed(before) &^ w.b.in(before); lost != 0 && left != 0 && w.now < left.Add(epoch.Grace) && !w.faulty {
		fail("I9: the pieces %b are gone within a month", lost)
	}
	d.held |= need & w.b.in(before)
	if r.keepPlaces {
		for _, p := range before {
			d.log = epochtest.Apply(d.log, &epochtest.Body{Packs: []epoch.ID{p}})
		}
	}
}

// settle gives the device the log state s.
func (w *world) settle(r *rules, d *device, s epoch.State) epoch.Joined {
	g := w.graph(d)
	j := r.join(g, d.memory, w.linkedTo(s, g))
	d.log, d.unsynced, d.memory, d.send = s, j.Unsynced, j.Memory, j.Send
	d.old = nil
	for _, n := range g {
		if j.GivenUp.Has(n.ID) {
			d.old = append(d.old, n)
		}
	}
	return j
}

// merging is the history in which the device merges.
func (w *world) merging(r *rules, d *device) epoch.Joined {
	g := w.graph(d)
	return r.join(g, d.memory, w.linkedTo(d.log, g))
}

// mayCut reports whether the device may begin a cut.
func (w *world) mayCut(r *rules, d *device) bool {
	return r.anyHeads || len(d.log.Heads()) < 2
}

// prune removes the given-up commits that no merge needs.
func (w *world) prune(r *rules, d *device) bool {
	j := w.merging(r, d)
	held := j.Held(epoch.Set{d.tx})
	if r.noneHeld && !j.Wait {
		held = epoch.Set{d.tx}
	}
	gone := d.old.Set().Without(held)
	if len(gone) == 0 {
		return false
	}
	var old, near, unsynced epoch.Graph
	g := w.graph(d)
	for _, n := range g.Reduce(g.Set().Without(gone)) {
		if _, ok := d.old.Index(n.ID); ok {
			old = append(old, n)
		}
		if _, ok := d.unsynced.Index(n.ID); ok {
			unsynced = append(unsynced, n)
		}
		if len(n.Near.And(d.old.Set())) > 0 {
			near = append(near, n)
		}
	}
	d.old, d.near, d.unsynced = old, near, unsynced
	return true
}

// followed returns when the first epoch behind k began, 0 for none.
func (b *bucket) followed(k uint64) epoch.Time {
	for _, o := range b.epochs {
		if o.k > k {
			return o.created
		}
	}
	return 0
}

// adopt takes what the log has behind the position as unsynced, as far as it builds on what is
// here.
func (w *world) adopt(d *device) {
	for n := d.at.Number + 1; n <= w.b.last(d.at.Epoch); n++ {
		o := w.b.entryAt(d.at.Epoch, n)
		if o == nil || o.entry.closing != nil || o.entry.long != (epoch.ID{}) && !w.b.has(o.entry.long) {
			continue
		}
		for _, c := range o.entry.body.Commits {
			have := w.view(d).Set()
			if have.Has(c.ID) || d.memory.Has(c.ID) || !c.Near.Within(have) {
				continue
			}
			d.unsynced = d.unsynced.With(c)
			d.held |= w.needs(epoch.Set{c.ID}) & w.b.in(o.entry.body.Packs)
		}
	}
}

func (w *world) chainOf(id epoch.ID) []epoch.Hash {
	for _, c := range w.chained {
		if c.id == id {
			return c.chain
		}
	}
	return nil
}

// read reads what is behind the position. It reports whether anything changed, and whether the
// bucket has to be renewed.
func (w *world) read(r *rules, d *device) (changed, bad bool) {
	o := w.b.entryAt(d.at.Epoch, d.at.Number+1)
	reading := epoch.Reading{Later: w.b.last(d.at.Epoch) > d.at.Number}
	if o != nil {
		e := o.entry
		reading = epoch.Reading{Found: true, Previous: e.previous, Created: o.created, Closing: e.closing}
		reading.Bad = e.long != epoch.ID{} && !w.b.has(e.long)
	}
	switch r.read(d.at, reading) {
	case epoch.Damaged:
		return false, true
	case epoch.Help:
		if r.closingDecides {
			x := o.entry.closing
			if _, ok := w.b.checkpointOf(x); !ok {
				return false, true
			}
			w.b.putEpoch(epochObject{d.at.K + 1, x, w.now})
			w.join(r, d, d.at.K+1, x, d.at.Looked)
			return true, false
		}
		d.phase, d.x = confirming, o.entry.closing
		return true, false
	case epoch.Apply:
		w.apply(r, d, o.entry)
		return true, false
	}
	return false, false
}

// apply applies an entry of anybody.
func (w *world) apply(r *rules, d *device, e *entry) {
	d.at = d.at.Applied(e.hash)
	d.chain = append(slices.Clip(d.chain), e.hash)
	w.checkInLog(d)
	w.settle(r, d, epochtest.Apply(d.log, &e.body))
	d.pending = slices.DeleteFunc(slices.Clone(d.pending), func(id epoch.ID) bool { return slices.Contains(e.body.Packs, id) })
	d.tags = slices.DeleteFunc(slices.Clone(d.tags), func(t epoch.Tag) bool { return slices.Contains(e.body.Tags, t) })
	if e.body.Retention != nil {
		d.retain = nil
	}
}

// body is what the device has to send.
func (d *device) body(r *rules) epochtest.Body {
	b := epochtest.Body{Commits: d.unsynced, Gone: d.send, Packs: d.pending, Tags: d.tags, Retention: d.retain}
	if r.oneByOne && len(b.Commits) > 1 {
		b.Commits = b.Commits[:1]
	}
	return b
}

// toSend are the pieces that have to be uploaded before an append.
func (w *world) toSend(d *device) pieces {
	return w.needs(w.view(d).Set()) &^ w.placed(d.log.Packs) &^ w.placed(d.pending) & d.held
}

// newEntry seals the body of the device for the number behind its position. ok is false when there
// is nothing to send, or something to upload before.
func (w *world) newEntry(r *rules, d *device, who int) (e *entry, ok bool) {
	b := d.body(r)
	if b.Empty() || !d.at.Joined() || d.at.Deleted || w.toSend(d) != 0 || w.merging(r, d).Wait {
		return nil, false
	}
	b.Commits = slices.Clone(b.Commits)
	view := w.view(d)
	for i, c := range b.Commits {
		at, _ := view.Index(c.ID)
		b.Commits[i].Near = view[at].Near
	}
	e = &entry{previous: d.at.Hash, body: b}
	e.hash = hashOf(e.previous, who, epoch.Graph(b.Commits).Set(), b.Gone, b.Packs, len(b.Tags), d.at.Number)
	if w.long {
		if d.long == (epoch.ID{}) || d.longOf != bodyHash(&b) {
			return nil, false
		}
		e.long = d.long
	}
	return e, true
}

func bodyHash(b *epochtest.Body) epoch.Hash {
	return hashOf(epoch.Graph(b.Commits).Set(), b.Gone, b.Packs, len(b.Tags))
}

// outcome is what a request comes to for its sender.
type outcome uint8

const (
	well    outcome = iota
	lost            // done, and the answer is lost
	stalled         // still under way when the sender has given up waiting
)

// append puts what the device has to send.
func (w *world) append(r *rules, d *device, who int, how outcome) bool {
	e, ok := w.newEntry(r, d, who)
	if !ok {
		return false
	}
	o := entryObject{d.at.Epoch, d.at.Number + 1, e, w.now}
	if how == stalled {
		w.fly = flight{on: true, entry: &o}
		return true
	}
	if !w.b.putEntry(o) {
		return false // a read comes next
	}
	if how == well && r.put(d.at, true, w.now) {
		w.apply(r, d, e)
	}
	return true
}

// land lets the stalled request arrive.
func (w *world) land() {
	f := w.fly
	w.fly = flight{}
	if f.entry != nil {
		o := *f.entry
		o.created = w.now
		w.b.putEntry(o)
	} else {
		o := *f.epoch
		o.created = w.now
		w.b.putEpoch(o)
	}
}

// commit makes a commit on the heads.
func (w *world) commit(d *device, parents, bases epoch.Set, merge bool, need pieces) *commitTruth {
	if len(w.commits) >= 12 {
		panic(noRoom{})
	}
	c := commitTruth{parents: parents, bases: bases, merge: merge, pieces: need}
	id := epoch.Commit(len(w.commits) + 1)
	c.node = epoch.Node{ID: id, Near: parents, Time: int64(w.now + d.skew)}
	for _, p := range parents {
		t := &w.commits[p-1]
		c.ancestors = c.ancestors.Union(t.ancestors).Union(epoch.Set{p})
		c.node.Generation = max(c.node.Generation, t.node.Generation+1)
	}
	w.commits = append(slices.Clip(w.commits), c)
	d.unsynced = d.unsynced.With(c.node)
	return &w.commits[id-1]
}

// mergeWith makes the merge of a and b, or takes it if another device has made it.
// g is the history in which d merges.
func (w *world) mergeWith(d *device, g epoch.Graph, a, b epoch.Commit) epoch.Commit {
	if w.commits[a-1].ancestors.Has(b) || w.commits[b-1].ancestors.Has(a) {
		fail("I5: %d and %d are merged, and one is an ancestor of the other", a, b)
	}
	parents, bases := epoch.SetOf(a, b), w.bases(g, a, b)
	for i := range w.commits {
		c := &w.commits[i]
		if !c.merge || !slices.Equal(c.parents, parents) {
			continue
		}
		if !slices.Equal(c.bases, bases) {
			if w.ownBases {
				continue
			}
			fail("I6: %v are merged with bases %v and %v", parents, c.bases, bases)
		}
		if _, there := d.log.Kept.Index(c.node.ID); !there {
			d.unsynced = d.unsynced.With(c.node)
		}
		return c.node.ID
	}
	return w.commit(d, parents, bases, true, w.needs(parents)).node.ID
}

// merge merges a head with the one with which merge.Heads would merge it; how says which head.
func (w *world) merge(r *rules, d *device, how int) bool {
	h, g := w.heads(d), w.merging(r, d).Graph
	if len(h) < 2 {
		return false
	}
	a := h[how%len(h)]
	w.mergeWith(d, g, a, w.nearest(r, g, a, h.Without(epoch.Set{a})))
	return true
}

// nearest returns the first of heads whose bases with a are all in g, else the one with the latest
// base.
func (w *world) nearest(r *rules, g epoch.Graph, a epoch.Commit, heads epoch.Set) epoch.Commit {
	best, latest := heads[0], 0
	for _, c := range heads {
		if r.anyPair {
			break
		}
		sides := 2
		if w.hidden(g, a, c) {
			sides--
		}
		if w.hidden(g, c, a) {
			sides--
		}
		for _, x := range epochtest.Bases(g, a, c) {
			if i, _ := g.Index(x); sides*1000+int(g[i].Generation) > latest {
				best, latest = c, sides*1000+int(g[i].Generation)
			}
		}
	}
	return best
}

// hidden reports whether g lacks a parent of a commit from which a descends, and b does not.
func (w *world) hidden(g epoch.Graph, a, b epoch.Commit) bool {
	return slices.ContainsFunc(g.Ancestors(a).Without(g.Ancestors(b)), func(c epoch.Commit) bool {
		i, _ := g.Index(c)
		return !slices.Equal(g[i].Near, w.commits[c-1].parents)
	})
}

// bases returns the bases of a merge of a and b in g. Several bases are merged into one, so that
// their bases count too.
func (w *world) bases(g epoch.Graph, a, b epoch.Commit) epoch.Set {
	bases := epochtest.Bases(g, a, b)
	if t := w.trueBases(a, b); !w.faulty && len(w.erased) == 0 && !slices.Equal(t, bases) {
		fail("I6: %d and %d are merged with bases %v, and not %v", a, b, bases, t)
	}
	for i, x := range bases {
		for _, y := range bases[:i] {
			w.bases(g, x, y)
		}
	}
	return bases
}

// trueBases are the latest common ancestors of a and b, also given-up ones.
func (w *world) trueBases(a, b epoch.Commit) epoch.Set {
	common := w.commits[a-1].ancestors.And(w.commits[b-1].ancestors)
	for _, c := range slices.Clone(common) {
		common = common.Without(w.commits[c-1].ancestors)
	}
	return common
}
