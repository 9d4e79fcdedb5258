package pagelog_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/epoch/epochtest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// world is some devices with one page, and a bucket.
type world struct {
	clock  *mem.Clock
	bucket *mem.Bucket
	retry  bucket.Bucket
	sealer *seal.Sealer
	names  wire.Names
	random *rand.Rand
	// made are all commits that were ever made, by their short ids, and erased those that somebody
	// has given up on purpose.
	made    map[epoch.Commit]*commit.Commit
	devices []*device
}

var started = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(seed uint64, devices int) *world {
	w := &world{clock: mem.NewAutoClock(started), random: rand.New(rand.NewPCG(seed, 1)), made: map[epoch.Commit]*commit.Commit{}}
	w.bucket = mem.New(mem.Options{Clock: w.clock, Seed: seed})
	w.retry = bucket.NewRetry(w.bucket, bucket.RetryOptions{Clock: w.clock, Jitter: func() float64 { return 0.5 }}) // reads run at once
	source := rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed)))
	ring, err := seal.NewKeyring(seal.AES256GCM, source)
	if err != nil {
		panic(err)
	}
	w.sealer = seal.NewSealer(ring, source)
	w.names = wire.NamesOf(ring, "ledger", [16]byte{1})
	for i := range devices {
		d := &device{w: w, name: fmt.Sprint("d", i)}
		d.open()
		w.devices = append(w.devices, d)
	}
	return w
}

func (w *world) id() (id epoch.ID) {
	for i := range id {
		id[i] = byte(w.random.Uint32())
	}
	id[0] |= 1
	return id
}

func short(c *commit.Commit) epoch.Commit { return epoch.Commit(binary.BigEndian.Uint64(c.ID[:8])) }

// device has a page that keeps commits alone, in memory. What it has survives a crash.
type device struct {
	w    *world
	name string
	log  *pagelog.Log

	at       epoch.Position
	base     uint64 // number with which its epoch began
	state    epoch.State
	unsynced epoch.Graph
	memory   epoch.Set
	send     epoch.Set
	retain   *wire.Retention
	erase    epoch.Set
	named    []epoch.ID
}

// open begins with what is durable, as after a crash.
func (d *device) open() {
	d.log = pagelog.New(pagelog.Options{Bucket: d.w.retry, Sealer: d.w.sealer, Names: d.w.names, Page: d, NewID: d.w.id}, d.at)
}

func (d *device) view() epoch.Graph { return d.state.Kept.With(d.unsynced...) }

func (d *device) heads() epoch.Set { return d.view().Heads().Without(d.state.Gone).Without(d.memory) }

// commit makes a commit on some commits, or one that any device makes of them.
func (d *device) commit(of epoch.Set, bases epoch.Set) epoch.Commit {
	parents := []*commit.Commit{}
	for _, id := range of {
		parents = append(parents, d.w.made[id])
	}
	if len(parents) == 0 {
		parents = append(parents, commit.First())
	}
	var c *commit.Commit
	var err error
	if len(of) == 2 {
		seed := binary.BigEndian.AppendUint64(nil, uint64(of[0]))
		for _, b := range append(slices.Clone(bases), of[1]) {
			seed = binary.BigEndian.AppendUint64(seed, uint64(b))
		}
		c, err = commit.NewMerge(object.Sum(object.Node, seed), parents[0], parents[1])
	} else {
		root := object.Sum(object.Node, binary.BigEndian.AppendUint64(nil, d.w.random.Uint64()))
		c, err = commit.New(commit.Params{Now: d.w.clock.Now(), Root: root, Parents: parents, Device: d.name})
	}
	if err != nil {
		panic(err)
	}
	d.w.made[short(c)] = c
	d.unsynced = d.unsynced.With(epoch.Node{ID: short(c), Near: of, Generation: c.Generation, Time: c.Timestamp})
	return short(c)
}

// merge merges the heads to one.
func (d *device) merge() {
	for h := d.heads(); len(h) > 1; h = d.heads() {
		d.commit(h[:2], epochtest.Bases(d.view(), h[0], h[1]))
	}
}

// body writes what is to be sent, nil for nothing.
func (d *device) body() []byte {
	if len(d.unsynced) == 0 && len(d.send) == 0 && d.retain == nil {
		return nil
	}
	var b bytes.Buffer
	w := wire.NewWriter(&b, wire.Body)
	must(w.Write(&wire.Size{}))
	for _, c := range d.send {
		must(w.Write(&wire.Gone{Commit: c}))
	}
	writeCommits(w, d.w, d.unsynced)
	if d.retain != nil {
		must(w.Write(d.retain))
	}
	return b.Bytes()
}

func writeCommits(w *wire.Writer, of *world, g epoch.Graph) {
	nodes := slices.Clone(g)
	slices.SortFunc(nodes, func(a, b epoch.Node) int {
		x, y := of.made[a.ID], of.made[b.ID]
		if x.Generation != y.Generation {
			return int(x.Generation) - int(y.Generation)
		}
		return x.ID.Compare(y.ID)
	})
	for _, n := range nodes {
		near := n.Near
		if near == nil {
			near = epoch.Set{}
		}
		must(w.Write(&wire.Commit{Commit: of.made[n.ID], Near: near}))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// sync catches up, merges and appends.
func (d *device) sync(ctx context.Context) error {
	for range 20 {
		if _, err := d.log.CatchUp(ctx); err != nil {
			return err
		}
		d.merge()
		stream := d.body()
		if stream == nil {
			return nil
		}
		body, err := d.seal(ctx, stream)
		if err != nil {
			return err
		}
		if _, err := d.log.Append(ctx, body); err != nil {
			return err
		}
	}
	return nil
}

// seal seals a body, and some as objects of their own.
func (d *device) seal(ctx context.Context, stream []byte) (*wire.EntryBody, error) {
	e, id := d.log.Position().Epoch, d.w.id()
	if d.w.random.IntN(4) > 0 {
		return wire.InlineBody(stream, []seal.Part{{To: len(stream), Compress: true}}), nil
	}
	hash, err := d.upload(ctx, d.w.names.Pack(e, id), d.w.names.LongBodyLabel(e, id), stream)
	return wire.LongBody(id, hash), err
}

// upload returns the hash of the object.
func (d *device) upload(ctx context.Context, name string, l seal.Label, stream []byte) (epoch.Hash, error) {
	var b bytes.Buffer
	w := d.w.sealer.NewWriter(&b, l, true, nil)
	_, err := w.Write(stream)
	must(err)
	must(w.Close())
	return sha256.Sum256(b.Bytes()), d.w.retry.PutIfAbsent(ctx, name, int64(b.Len()), &b)
}

// download reads an object that upload has written.
func (d *device) download(ctx context.Context, name string, l seal.Label, hash epoch.Hash, s wire.Stream, each func(wire.Record)) error {
	o, err := d.w.retry.Get(ctx, name, 0, -1)
	if err != nil {
		return err
	}
	defer o.Body.Close()
	r, err := d.w.sealer.NewStream(o.Body, o.Size, l, (*seal.Sum)(&hash))
	if err != nil {
		return err
	}
	return eachRecord(wire.NewReader(r, s).All(), each)
}

func eachRecord(all iter.Seq2[wire.Record, error], each func(wire.Record)) error {
	for rec, err := range all {
		if err != nil {
			return err
		}
		each(rec)
	}
	return nil
}

// node returns a commit of a stream, and remembers it.
func (d *device) node(c *wire.Commit) epoch.Node {
	d.w.made[short(c.Commit)] = c.Commit
	return epoch.Node{ID: short(c.Commit), Near: c.Near, Generation: c.Commit.Generation, Time: c.Commit.Timestamp}
}

func (d *device) read(ctx context.Context, e *pagelog.Entry) (b epochtest.Body, err error) {
	bodies := checkpoint.New(checkpoint.Options{Bucket: d.w.retry, Sealer: d.w.sealer, Names: d.w.names})
	err = eachRecord(bodies.Body(ctx, &e.Entry), func(rec wire.Record) {
		switch rec := rec.(type) {
		case *wire.Gone:
			b.Gone = b.Gone.Union(epoch.Set{rec.Commit})
		case *wire.Commit:
			b.Commits = append(b.Commits, d.node(rec))
		case *wire.Retention:
			b.Retention = (*epoch.Retention)(rec)
		}
	})
	return b, err
}

// Apply implements pagelog.Page.
func (d *device) Apply(ctx context.Context, e *pagelog.Entry, next epoch.Position) error {
	b, err := d.read(ctx, e)
	if err != nil {
		return err
	}
	d.state = epochtest.Apply(d.state, &b)
	ids := epoch.Graph(epoch.Graph(nil).With(b.Commits...)).Set()
	d.unsynced = slices.DeleteFunc(slices.Clone(d.unsynced), func(n epoch.Node) bool { return ids.Has(n.ID) || b.Gone.Has(n.ID) })
	d.memory, d.send = d.memory.Union(b.Gone), d.send.Without(b.Gone)
	if b.Retention != nil {
		d.retain = nil
	}
	d.at = next
	return nil
}

// Adopt implements pagelog.Page.
func (d *device) Adopt(ctx context.Context, e *pagelog.Entry) error {
	b, err := d.read(ctx, e)
	if err != nil {
		return err
	}
	for _, c := range b.Commits {
		have := d.view().Set()
		if !have.Has(c.ID) && !d.memory.Has(c.ID) && c.Near.Within(have) {
			d.unsynced = d.unsynced.With(c)
		}
	}
	return nil
}

// Keep implements pagelog.Page.
func (d *device) Keep(_ context.Context, next epoch.Position) error {
	d.at = next
	return nil
}

// load returns the state in the checkpoint of an epoch, and the objects that it names.
func (d *device) load(ctx context.Context, x *epoch.Proposal) (s epoch.State, named []epoch.ID, err error) {
	if x.Checkpoint == (epoch.ID{}) {
		return s, nil, nil
	}
	n := d.w.names
	var runs []wire.Run
	err = d.download(ctx, n.Checkpoint(x.ID, x.Checkpoint), n.CheckpointLabel(x.ID, x.Checkpoint), x.CheckpointHash, wire.Checkpoint, func(rec wire.Record) {
		switch rec := rec.(type) {
		case *wire.Run:
			runs = append(runs, *rec)
		case *wire.Retention:
			s.Retention = epoch.Retention(*rec)
		}
	})
	for _, run := range runs {
		if err != nil {
			break
		}
		named = append(named, run.ID)
		err = d.download(ctx, n.Checkpoint(run.Epoch, run.ID), n.RunLabel(run.Epoch, run.ID), run.Hash, wire.RunOf(run.Kind), func(rec wire.Record) {
			switch rec := rec.(type) {
			case *wire.Commit:
				s.Kept = s.Kept.With(d.node(rec))
			case *wire.Gone:
				s.Gone = s.Gone.Union(epoch.Set{rec.Commit})
			}
		})
	}
	if errors.Is(err, base.ErrNotFound) {
		err = fmt.Errorf("%v: %w", err, base.ErrCorrupt)
	}
	return s, named, err
}

func (d *device) namedBy(ctx context.Context, x *epoch.Proposal) ([]epoch.ID, error) {
	_, named, err := d.load(ctx, x)
	return named, err
}

// Enter implements pagelog.Page.
func (d *device) Enter(ctx context.Context, x *pagelog.Epoch, next epoch.Position) error {
	if x.Kind == epoch.Deleted {
		d.state, d.unsynced, d.at = epoch.State{}, nil, next
		return nil
	}
	s, named, err := d.load(ctx, x.Proposal)
	if errors.Is(err, base.ErrCorrupt) {
		return fmt.Errorf("%v: %w", err, pagelog.ErrUnjoinable)
	}
	if err != nil {
		return err
	}
	view := d.view()
	above := s.Above(view)
	j := epoch.Join(view, d.memory, above)
	d.state, d.unsynced, d.memory, d.send = s, j.Unsynced, j.Memory, j.Send
	d.at, d.base, d.named = next, next.Number, named
	d.mergeAtOnce(view, above)
	return nil
}

// mergeAtOnce makes the merges that need given-up commits.
func (d *device) mergeAtOnce(view epoch.Graph, s epoch.State) {
	for {
		view = view.With(d.unsynced...)
		j := epoch.Join(view, d.memory, s)
		if !j.Wait {
			return
		}
		h := j.View.Heads().Without(j.Memory)
		d.commit(epoch.SetOf(h[0], h[1]), epochtest.Bases(j.Graph, h[0], h[1]))
	}
}

// Propose implements pagelog.Page.
func (d *device) Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error {
	var next epoch.State
	if x.Kind == epoch.Renewal {
		next = d.state.Renewal(x.Erased, d.send, nil)
	} else {
		keep := d.state.Keep(epoch.Time(d.w.clock.Now().UnixNano()), d.erase.Without(d.state.Heads()))
		next = d.state.Reduced(keep, nil)
		x.Erased = d.erase.Without(d.state.Heads())
	}
	n := d.w.names
	var b bytes.Buffer
	w := wire.NewWriter(&b, wire.Checkpoint)
	must(w.Write(&wire.Base{Number: x.Base, Hash: x.BaseHash}))
	run := func(k wire.RunKind, write func(w *wire.Writer)) error {
		var b bytes.Buffer
		rw := wire.NewWriter(&b, wire.RunOf(k))
		if write(rw); b.Len() == 0 {
			return nil
		}
		id := d.w.id()
		hash, err := d.upload(ctx, n.Checkpoint(x.ID, id), n.RunLabel(x.ID, id), b.Bytes())
		if err == nil {
			must(w.Write(&wire.Run{Kind: k, Epoch: x.ID, ID: id, Bytes: uint64(b.Len()), Records: 1, Hash: hash}))
		}
		return err
	}
	if err := run(wire.GivenUp, func(w *wire.Writer) {
		for _, c := range next.Gone {
			must(w.Write(&wire.Gone{Commit: c}))
		}
	}); err != nil {
		return err
	}
	if err := run(wire.Commits, func(w *wire.Writer) { writeCommits(w, d.w, next.Kept) }); err != nil {
		return err
	}
	must(w.Write((*wire.Retention)(&next.Retention)))
	x.Checkpoint = d.w.id()
	var err error
	x.CheckpointHash, err = d.upload(ctx, n.Checkpoint(x.ID, x.Checkpoint), n.CheckpointLabel(x.ID, x.Checkpoint), b.Bytes())
	return err
}
