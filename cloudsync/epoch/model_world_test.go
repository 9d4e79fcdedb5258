package epoch_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/epoch/epochtest"
)

// The model has one page, one bucket and up to three devices. What a device decides, it decides
// with the functions of the package, through rules, so that a mutant can replace one. Each request
// is a step of its own, as far as others may come between.

const hour = epoch.Time(3_600_000_000_000)

// commitTruth is what there is to know about a commit. Its id is its place in world.commits plus 1.
type commitTruth struct {
	ancestors epoch.Set // all of them, given up or not
	parents   epoch.Set
	bases     epoch.Set // of a merge
	merge     bool
	secret    bool // it has the value that is to be erased
	pieces    pieces
	node      epoch.Node // as its writer saw it
}

// pieces is a set of pieces, a bit for each.
type pieces uint16

// entry is an object of log/.
type entry struct {
	hash, previous epoch.Hash
	body           epochtest.Body
	long           epoch.ID // the pack that has the body, if it is a long one
	closing        *epoch.Proposal
}

type checkpoint struct {
	state epoch.State
}

// Objects of the bucket. What they hold is never changed.
type (
	entryObject struct {
		dir     epoch.ID
		n       uint64
		entry   *entry
		created epoch.Time
	}
	epochObject struct {
		k       uint64
		x       *epoch.Proposal
		created epoch.Time
	}
	checkpointObject struct {
		id, dir epoch.ID
		c       *checkpoint
		created epoch.Time
	}
	packObject struct {
		id, dir epoch.ID
		pieces  pieces
		created epoch.Time
	}
)

type bucket struct {
	entries     []entryObject
	epochs      []epochObject // ascending by k
	checkpoints []checkpointObject
	packs       []packObject
}

// phase is where a device stands in a turn or in a deletion.
type phase uint8

const (
	idle phase = iota
	writing
	closing
	confirming
	putting
	deleting
)

type device struct {
	on bool

	// Durable.
	at       epoch.Position
	log      epoch.State
	manifest []epoch.ID // packs that the epoch names
	unsynced epoch.Graph
	tags     []epoch.Tag // unsynced
	retain   *epoch.Retention
	held     pieces
	pending  []epoch.ID
	long     epoch.ID // an uploaded body
	longOf   epoch.Hash
	memory   epoch.Set
	send     epoch.Set
	old      epoch.Graph  // commits that were given up and are stored
	near     epoch.Graph  // with their nearest ancestors in old
	tx       epoch.Commit // on which a transaction of the app stands; 0: there is none
	skew     epoch.Time   // of its clock, on timestamps only

	// Of a turn, lost with a crash.
	phase  phase
	kind   epoch.Kind
	erase  bool
	x      *epoch.Proposal
	number uint64
	victim epoch.Object
	entry  uint64 // of the victim, if it is one

	// Only for checks: the hashes of the log up to the position.
	chain []epoch.Hash
}

// flight is a request whose sender waits no more.
type flight struct {
	on    bool
	entry *entryObject
	epoch *epochObject
}

// budget is how often something may still happen.
type budget struct {
	commits, cuts, crashes, lost, flights, faults, clones, tags, erasures, deletions, disks, transactions int

	jumps []epoch.Time // each once
}

type world struct {
	b       bucket
	commits []commitTruth
	packs   []packObject // all that there ever were
	devices [3]device
	fly     flight
	now     epoch.Time
	ids     byte // of epochs, checkpoints and packs
	left    budget

	long     bool // all bodies are long
	lostDisk bool
	ownBases bool      // the bucket may lose epochs that devices are in: each merges with the history that it has
	strict   bool      // deletions take nothing that the newest epoch names, also after a fault
	faulty   bool      // the bucket has lost something
	gone     bool      // the page was deleted
	known    bool      // and a device has known it
	chained  []chained // of all proposals
	excused  epoch.Set // commits that went with a disk
	erased   epoch.Set
}

// chained are the hashes of the entries for which a proposal stands.
type chained struct {
	id    epoch.ID
	chain []epoch.Hash
}

func (w *world) clone() *world {
	c := *w
	c.b = w.b.clone()
	c.commits = slices.Clip(w.commits)
	c.chained = slices.Clip(w.chained)
	return &c
}

func (b *bucket) clone() bucket {
	return bucket{slices.Clone(b.entries), slices.Clone(b.epochs), slices.Clone(b.checkpoints), slices.Clone(b.packs)}
}

// violation ends a history in which an invariant does not hold.
type violation string

// noRoom ends a history that the model has no room for.
type noRoom struct{}

func fail(format string, a ...any) { panic(violation(fmt.Sprintf(format, a...))) }

func (w *world) newID() epoch.ID {
	w.ids++
	return epoch.ID{w.ids}
}

func hashOf(parts ...any) (h epoch.Hash) {
	f := fnv.New128a()
	fmt.Fprint(f, parts...)
	copy(h[:], f.Sum(nil))
	return h
}

// newest returns the object of epochs/ with the greatest number.
func (b *bucket) newest() *epochObject {
	if len(b.epochs) == 0 {
		return nil
	}
	return &b.epochs[len(b.epochs)-1]
}

func (b *bucket) epochAt(k uint64) *epochObject {
	i := slices.IndexFunc(b.epochs, func(o epochObject) bool { return o.k == k })
	if i < 0 {
		return nil
	}
	return &b.epochs[i]
}

// putEpoch creates epochs/{k}, unless it is there.
func (b *bucket) putEpoch(o epochObject) bool {
	i, there := slices.BinarySearchFunc(b.epochs, o.k, func(o epochObject, k uint64) int { return int(o.k) - int(k) })
	if !there {
		b.epochs = slices.Insert(b.epochs, i, o)
	}
	return !there
}

func (b *bucket) entryAt(dir epoch.ID, n uint64) *entryObject {
	i := slices.IndexFunc(b.entries, func(o entryObject) bool { return o.dir == dir && o.n == n })
	if i < 0 {
		return nil
	}
	return &b.entries[i]
}

// putEntry creates log/{dir}/{n}, unless it is there.
func (b *bucket) putEntry(o entryObject) bool {
	if b.entryAt(o.dir, o.n) != nil {
		return false
	}
	i, _ := slices.BinarySearchFunc(b.entries, o, func(x, y entryObject) int {
		return slices.Compare(append(x.dir[:1:1], byte(x.n)), append(y.dir[:1:1], byte(y.n)))
	})
	b.entries = slices.Insert(b.entries, i, o)
	return true
}

// last returns the greatest number in log/{dir}/, 0 if there is none.
func (b *bucket) last(dir epoch.ID) (n uint64) {
	for _, o := range b.entries {
		if o.dir == dir {
			n = max(n, o.n)
		}
	}
	return n
}

// checkpointOf returns the checkpoint of an epoch; ok is false when it has one that is not there.
func (b *bucket) checkpointOf(x *epoch.Proposal) (c *checkpoint, ok bool) {
	if x.Checkpoint == (epoch.ID{}) {
		return &checkpoint{}, true
	}
	for _, o := range b.checkpoints {
		if o.id == x.Checkpoint {
			return o.c, true
		}
	}
	return nil, false
}

func (b *bucket) has(pack epoch.ID) bool {
	return slices.ContainsFunc(b.packs, func(o packObject) bool { return o.id == pack })
}

// in returns the pieces in those of packs that the bucket has.
func (b *bucket) in(packs []epoch.ID) (p pieces) {
	for _, o := range b.packs {
		if slices.Contains(packs, o.id) {
			p |= o.pieces
		}
	}
	return p
}

func (w *world) needs(s epoch.Set) (p pieces) {
	for _, c := range s {
		p |= w.commits[c-1].pieces
	}
	return p
}

func (w *world) allCommits() epoch.Set {
	s := make(epoch.Set, len(w.commits))
	for i := range s {
		s[i] = epoch.Commit(i + 1)
	}
	return s
}

// covered returns the given commits and all their true ancestors.
func (w *world) covered(s epoch.Set) epoch.Set {
	all := s
	for _, c := range s {
		all = all.Union(w.commits[c-1].ancestors)
	}
	return all
}

// graph are all commits of the device, also given-up ones that it stores.
func (w *world) graph(d *device) epoch.Graph {
	g := w.linked(d.log.Kept.With(d.unsynced...).With(d.old...), nil)
	for _, n := range d.near {
		if i, here := g.Index(n.ID); here {
			g[i].Near = g[i].Near.Union(n.Near.And(d.old.Set()))
		}
	}
	return g
}

// view are the commits of the device without given-up ones.
func (w *world) view(d *device) epoch.Graph {
	g := w.graph(d)
	if len(d.old) == 0 {
		return g
	}
	return g.Reduce(g.Set().Without(d.old.Set()))
}

// linked adds to each commit the parents that are in g or in also. A commit that is sent again may
// come into a log that has its descendants already.
func (w *world) linked(g, also epoch.Graph) epoch.Graph {
	here := g.Set().Union(also.Set())
	for i := range g {
		g[i].Near = g[i].Near.Union(w.commits[g[i].ID-1].parents.And(here))
	}
	return g
}

// linkedTo returns a state with these parents.
func (w *world) linkedTo(s epoch.State, also epoch.Graph) epoch.State {
	s.Kept = w.linked(slices.Clone(s.Kept), also)
	return s
}

// heads are those that the device sees.
func (w *world) heads(d *device) epoch.Set {
	return w.view(d).Heads().Without(d.log.Gone).Without(d.send)
}

// placed returns the pieces that have a place in one of packs, also in one that the bucket has no
// more.
func (w *world) placed(packs []epoch.ID) (p pieces) {
	for _, o := range w.packs {
		if slices.Contains(packs, o.id) {
			p |= o.pieces
		}
	}
	return p
}

// newPack uploads a pack.
func (w *world) newPack(dir epoch.ID, p pieces) epoch.ID {
	o := packObject{id: w.newID(), dir: dir, pieces: p, created: w.now}
	w.packs = append(slices.Clip(w.packs), o)
	w.b.packs = append(w.b.packs, o)
	return o.id
}

// key returns a digest of all that matters for what may come.
func (w *world) key() [16]byte {
	f := fnv.New128a()
	buf := make([]byte, 0, 1024)
	num := func(ns ...uint64) {
		for _, n := range ns {
			buf = binary.AppendUvarint(buf, n)
		}
	}
	set := func(s epoch.Set) {
		num(uint64(len(s)))
		for _, c := range s {
			num(uint64(c))
		}
	}
	graph := func(g epoch.Graph) {
		num(uint64(len(g)))
		for _, n := range g {
			num(uint64(n.ID))
			set(n.Near)
		}
	}
	ids := func(l []epoch.ID) {
		num(uint64(len(l)))
		for _, id := range l {
			buf = append(buf, id[0])
		}
	}
	hash := func(h epoch.Hash) { buf = append(buf, h[:8]...) }
	for _, o := range w.b.entries {
		num(1, uint64(o.dir[0]), o.n, uint64(o.created/hour))
		hash(o.entry.hash)
	}
	for _, o := range w.b.epochs {
		num(2, o.k, uint64(o.created/hour))
		hash(o.x.Hash)
	}
	for _, o := range w.b.checkpoints {
		num(3, uint64(o.id[0]), uint64(o.created/hour))
		ids(o.c.state.Packs)
		graph(o.c.state.Kept)
	}
	for _, o := range w.b.packs {
		num(4, uint64(o.id[0]), uint64(o.dir[0]), uint64(o.pieces), uint64(o.created/hour))
	}
	for i := range w.commits {
		c := &w.commits[i]
		set(c.parents)
		set(c.bases)
		num(5, uint64(c.pieces), uint64(c.node.Time/int64(hour)))
	}
	for i := range w.devices {
		d := &w.devices[i]
		if !d.on {
			num(0)
			continue
		}
		num(6, d.at.K, uint64(d.at.Epoch[0]), d.at.Number, uint64(d.at.Looked/hour), uint64(d.held), uint64(d.phase), uint64(d.kind), d.number, d.entry)
		hash(d.at.Hash)
		graph(d.unsynced)
		set(d.memory)
		set(d.send)
		set(d.log.Gone)
		graph(d.log.Kept)
		graph(d.old)
		graph(d.near)
		num(uint64(d.tx))
		ids(d.log.Packs)
		ids(d.pending)
		ids([]epoch.ID{d.long, d.victim.Dir, d.victim.ID})
		num(uint64(len(d.tags)), uint64(len(d.log.Tags)))
		if d.x != nil {
			hash(d.x.Hash)
		}
		if d.retain != nil {
			num(7)
		}
	}
	if w.fly.on {
		num(8)
		if w.fly.entry != nil {
			hash(w.fly.entry.entry.hash)
		}
		if w.fly.epoch != nil {
			hash(w.fly.epoch.x.Hash)
		}
	}
	l := &w.left
	num(uint64(w.now/hour), uint64(l.commits), uint64(l.cuts), uint64(l.crashes), uint64(l.lost), uint64(l.flights), uint64(l.faults),
		uint64(l.clones), uint64(l.tags), uint64(l.erasures), uint64(l.deletions), uint64(l.disks), uint64(l.transactions), uint64(len(l.jumps)))
	f.Write(buf)
	return [16]byte(f.Sum(nil))
}
