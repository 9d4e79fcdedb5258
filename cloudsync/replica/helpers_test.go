package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

var (
	fleetPage = [16]byte{1, 2, 3}
	started   = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
)

// fleet is some devices with one page, and a bucket.
type fleet struct {
	t       testing.TB
	clock   *mem.Clock
	bucket  *mem.Bucket
	retry   bucket.Bucket
	sealer  *seal.Sealer
	names   wire.Names
	random  *rand.Rand
	devices []*member
	lossy   bool // the bucket may lose something
	// made is what the head of the page must descend from: all commits that were ever made.
	made map[commit.ID]*commit.Commit
}

func newFleet(t testing.TB, seed uint64, devices int) *fleet {
	t.Helper()
	w := &fleet{t: t, clock: mem.NewAutoClock(started), random: rand.New(rand.NewPCG(seed, 2)), made: map[commit.ID]*commit.Commit{}}
	w.bucket = mem.New(mem.Options{Clock: w.clock, Seed: seed})
	w.retry = bucket.NewRetry(w.bucket, bucket.RetryOptions{Clock: w.clock, Jitter: w.random.Float64})
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	ring, err := seal.NewKeyring(seal.AES256GCM, random)
	w.must(err)
	w.sealer = seal.NewSealer(ring, random)
	w.names = wire.NamesOf(ring, "ledger", fleetPage)
	for i := range devices {
		w.device(seed%4 > 1 && i == 0)
	}
	return w
}

// twoInSync returns two devices that have the key a.
func twoInSync(t testing.TB) (w *fleet, a, b *member) {
	t.Helper()
	w = newFleet(t, 4, 2)
	a, b = w.devices[0], w.devices[1]
	a.commit(puts{"a": {content: []byte("1")}})
	w.must(a.sync(t.Context()))
	w.must(b.sync(t.Context()))
	return w, a, b
}

func (w *fleet) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fleet) id() (id epoch.ID) {
	for i := range id {
		id[i] = byte(w.random.Uint32())
	}
	id[0] |= 1
	return id
}

// member is a page on one device. What stands in fs survives a crash.
type member struct {
	*fleet
	name    string
	id      epoch.ID
	mem     *vfstest.Mem
	fs      vfs.FS // on mem
	index   *index.Memory
	store   *storage.Store
	page    *replica.Page
	log     *pagelog.Log
	fetcher *pack.Fetcher
	bucket  bucket.Bucket
	retain  *wire.Retention
	erase   epoch.Set
	// packed is the share of values, of 4, that go up in packs.
	packed int
	long   bool // bodies are objects of their own
	byHand bool // what goes out is written by the test
	// message is that of commits.
	message string
}

// device adds a device with an empty page.
func (w *fleet) device(byHand bool) *member {
	w.t.Helper()
	d := &member{fleet: w, byHand: byHand, name: fmt.Sprint("d", len(w.devices)), id: w.id(), mem: vfstest.NewMem(), index: index.NewMemory(), bucket: w.retry}
	d.fs = d.mem
	w.must(errors.Join(d.mem.MkdirAll("repo"), d.mem.SyncDir(".")))
	w.must(storage.Create(context.Background(), d.options()))
	w.devices = append(w.devices, d)
	d.open()
	w.t.Cleanup(d.close)
	return d
}

func (d *member) options() storage.Options {
	return storage.Options{FS: d.fs, Dir: "repo/page", Page: fleetPage, MemoryIndex: d.index}
}

// open begins with what is durable.
func (d *member) open() {
	d.t.Helper()
	ctx := context.Background()
	var err error
	d.store, err = storage.Open(ctx, d.options())
	d.must(err)
	d.page, err = replica.Open(ctx, replica.Options{Store: d.store, Bucket: d.bucket, Sealer: d.sealer, Names: d.names, NewID: d.fleet.id})
	d.must(err)
	d.fetcher = pack.NewFetcher(pack.FetchOptions{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Epoch: d.page.PackEpoch, Store: d.store, Entries: d.page.EntryPieces})
	d.page.SetFetcher(d.fetcher)
	d.store.SetFetcher(d.fetcher)
	var page pagelog.Page = d.page
	if d.byHand {
		page = byHand{d.page, d}
	}
	d.log = pagelog.New(pagelog.Options{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Page: page, NewID: d.fleet.id}, d.page.Position())
}

func (d *member) close() {
	if d.store == nil {
		return
	}
	d.fetcher.Close()
	_ = d.store.Close()
	d.store = nil
}

// reopen closes the page and opens it again.
func (d *member) reopen() {
	d.t.Helper()
	d.close()
	d.open()
}

// value is what a key gets; nil removes it.
type value struct {
	content []byte
	lazy    bool
	entry   fb.Entry // if it has a digest, instead
}

type puts map[string]*value

// commit makes a commit on parents, by default on the newest head. The tree is that of the first
// one with e.
func (d *member) commit(e puts, parents ...*commit.Commit) *commit.Commit {
	d.t.Helper()
	c, pending := d.submit(e, parents...)
	d.must(pending.Wait())
	return c
}

// submit is commit without the wait until the commit is durable.
func (d *member) submit(e puts, parents ...*commit.Commit) (*commit.Commit, *storage.Pending) {
	d.t.Helper()
	ctx := context.Background()
	if len(parents) == 0 {
		parents = []*commit.Commit{d.store.NewestHead()}
	}
	j := d.store.NewJournal()
	defer j.Rollback()
	root, err := btree.Tree{Page: fleetPage, Source: j, Root: parents[0].Root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(e)) {
			v, err := e[k], error(nil)
			c := btree.Change{Delete: v == nil, Entry: fb.Entry{Key: []byte(k)}}
			switch {
			case v == nil:
			case !v.entry.Digest.IsZero():
				c.Entry = v.entry
			case len(v.content) <= btree.InlineLimit:
				c.Entry = fb.Entry{Key: []byte(k), Value: v.content, Inline: true, Size: uint64(len(v.content))}
			default:
				c.Entry = fb.Entry{Key: []byte(k), Size: uint64(len(v.content))}
				if v.lazy {
					c.Entry.Priority = object.Lazy
				}
				c.Entry.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), v.content, func(ctx context.Context, p split.Piece) error {
					return j.PutPiece(ctx, p.Digest, p.Content)
				})
			}
			if !yield(c, err) {
				return
			}
		}
	})
	d.must(err)
	c, err := commit.New(commit.Params{Now: d.clock.Now(), Root: root, Parents: parents, Device: d.name, Message: d.message})
	if len(parents) == 2 {
		c, err = commit.NewMerge(root, parents[0], parents[1])
	}
	d.must(err)
	pending, err := d.store.Submit(ctx, j, c)
	d.must(err)
	d.made[c.ID] = c
	return c, pending
}

// merge merges two heads: of keys that differ the greater value stays.
func (d *member) merge(a, b *commit.Commit) *commit.Commit {
	d.t.Helper()
	c, pending := d.submitMerge(a, b)
	d.must(pending.Wait())
	return c
}

// submitMerge is merge without the wait until the commit is durable.
func (d *member) submitMerge(a, b *commit.Commit) (*commit.Commit, *storage.Pending) {
	d.t.Helper()
	if commit.Compare(a, b) > 0 {
		a, b = b, a
	}
	e := puts{}
	ctx := context.Background()
	left, right := btree.Tree{Page: fleetPage, Source: d.store, Root: a.Root}, btree.Tree{Page: fleetPage, Source: d.store, Root: b.Root}
	for x, err := range btree.Diff(ctx, left, right, nil) {
		d.must(err)
		if x.HasRight && (!x.HasLeft || bytes.Compare(x.Right.Digest[:], x.Left.Digest[:])+bytes.Compare(x.Right.Value, x.Left.Value) > 0) {
			e[string(x.Key)] = &value{content: x.Right.Value, entry: x.Right}
		}
	}
	return d.submit(e, a, b)
}

// read returns the value of an entry.
func (d *member) read(e fb.Entry) []byte {
	d.t.Helper()
	if e.Inline {
		return bytes.Clone(e.Value)
	}
	v, err := io.ReadAll(split.NewReader(context.Background(), d.store, e.Digest, e.Size))
	if d.lossy && (errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt)) {
		return []byte(lost)
	}
	if err != nil {
		d.t.Fatalf("%s: value of %q: %v", d.name, e.Key, err)
	}
	return v
}

// lost stands for a value that nobody has, or that the bucket has damaged.
const lost = "lost"

// content returns all of a commit.
func (d *member) content(c *commit.Commit) map[string]string {
	d.t.Helper()
	ctx := context.Background()
	m := map[string]string{}
	cur := btree.Tree{Page: fleetPage, Source: d.store, Root: c.Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		m[string(cur.Entry().Key)] = string(d.read(cur.Entry()))
	}
	d.must(err)
	return m
}

// noise returns n random bytes.
func (w *fleet) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.random.Uint32())
	}
	return b
}

// sync catches up, merges and appends, until nothing is left.
func (d *member) sync(ctx context.Context) error {
	for range 30 {
		if _, err := d.log.CatchUp(ctx); err != nil {
			return err
		}
		if h := d.store.Heads(); len(h) > 1 {
			d.merge(h[0], h[1])
			continue
		}
		if _, err := d.page.Prune(ctx); err != nil {
			return err
		}
		body, err := d.body(ctx)
		if err != nil || body == nil {
			return err
		}
		if _, err := d.log.Append(ctx, body); err != nil {
			return err
		}
	}
	return errors.New("there is always more to sync")
}

// body makes the next body, nil for none.
func (d *member) body(ctx context.Context) (*wire.EntryBody, error) {
	if d.byHand {
		return d.bodyByHand(ctx)
	}
	if r := d.retain; r != nil {
		d.retain = nil
		return d.page.Retain(ctx, *r)
	}
	body, err := d.page.Next(ctx, d.log.Append)
	if errors.Is(err, replica.ErrWaits) {
		return nil, nil
	}
	return body, err
}

func short(id commit.ID) (c epoch.Commit) {
	for _, b := range id[:8] {
		c = c<<8 | epoch.Commit(b)
	}
	return c
}

func setOf(ids []commit.ID) (s epoch.Set) {
	for _, id := range ids {
		s = append(s, short(id))
	}
	return epoch.SetOf(s...)
}

// history has the commits of a page.
type history struct {
	commits  map[epoch.Commit]*commit.Commit
	graph    epoch.Graph
	unsynced epoch.Set
	giveUp   epoch.Set
}

func (d *member) history() (h history) {
	d.t.Helper()
	ctx := context.Background()
	ids, err := d.store.FindCommits(ctx, nil, false, 1<<30)
	d.must(err)
	h.commits = map[epoch.Commit]*commit.Commit{}
	s := d.page.State()
	for _, id := range ids {
		c, err := d.store.Commit(ctx, id)
		d.must(err)
		if c.IsFirst() {
			continue
		}
		n := epoch.Node{ID: short(id), Generation: c.Generation, Time: c.Timestamp}
		near, ok := s.Near[n.ID]
		for _, p := range c.Parents {
			if p != commit.First().ID && !ok {
				near = near.Union(epoch.Set{short(p)})
			}
		}
		n.Near = near
		h.commits[n.ID] = c
		h.graph = h.graph.With(n)
	}
	mine, err := d.store.Unsynced(ctx)
	d.must(err)
	h.unsynced, h.giveUp = setOf(mine), setOf(s.GiveUp)
	return h
}

// logState returns the log state of the page, as package epoch has it, without packs.
func (d *member) logState() epoch.State {
	h, s := d.history(), d.page.State()
	not := h.unsynced.Union(h.giveUp)
	st := epoch.State{Retention: epoch.Retention{Last: s.Retention.Last, Within: s.Retention.Within}}
	st.Gone = s.Gone.Without(s.Send)
	for _, n := range h.graph {
		if !not.Has(n.ID) {
			n.Near = n.Near.Without(not)
			st.Kept = append(st.Kept, n)
		}
	}
	return st
}

// diff returns the changes between two trees.
func (d *member) diff(from, to object.Digest) []byte {
	d.t.Helper()
	var buf bytes.Buffer
	w := wire.NewChangeWriter(&buf)
	left, right := btree.Tree{Page: fleetPage, Source: d.store, Root: from}, btree.Tree{Page: fleetPage, Source: d.store, Root: to}
	for x, err := range btree.Diff(context.Background(), left, right, nil) {
		d.must(err)
		c := btree.Change{Delete: !x.HasRight, Entry: x.Right}
		c.Entry.Key = x.Key
		d.must(w.Write(&c))
	}
	return buf.Bytes()
}
