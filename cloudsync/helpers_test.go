package cloudsync_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/seal/sealtest"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) {
	if err := sealtest.WarmUp(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var (
	start    = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	testPage = [16]byte{4, 5, 6}
)

// world is a bucket with devices.
type world struct {
	t      testing.TB
	clock  *mem.Clock
	b      *mem.Bucket
	ring   *seal.Keyring
	master seal.MasterKey
	o      cloudsync.Options // of new devices
	n      byte
}

// newWorld returns a world whose clock moves by itself, so that nothing waits, and whose devices
// sync when they are told.
func newWorld(t testing.TB) *world { return worldWith(t, mem.NewAutoClock(start), true) }

// bubble runs a test in a bubble of package synctest: what it waits for with a timer of the machine
// comes when all others wait.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// liveWorld returns a world whose clock stands still, and whose devices sync by themselves. It
// belongs into a bubble: else nobody knows when they rest.
func liveWorld(t testing.TB) *world { return worldWith(t, mem.NewClock(start), false) }

func worldWith(t testing.TB, clock *mem.Clock, manual bool) *world {
	t.Helper()
	w := &world{t: t, clock: clock, b: mem.New(mem.Options{Clock: clock})}
	w.master = seal.NewMasterKey(nil)
	w.o = cloudsync.Options{Clock: clock, Manual: manual, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	w.connect()
	return w
}

// connect connects to the bucket, and makes it one of Ledger if it is none.
func (w *world) connect() {
	w.t.Helper()
	var err error
	if w.ring, _, err = cloudsync.Connect(w.t.Context(), w.b, w.master, true, nil); err != nil {
		w.t.Fatal(err)
	}
}

// device is a device with pages in memory.
type device struct {
	w     *world
	key   seal.DeviceKey
	fs    *vfstest.Mem
	s     *cloudsync.Syncer
	m     *bucket.Meter // of what goes to the bucket
	via   bucket.Bucket // what stands before the bucket from the next connection on; nil: nothing
	pages map[string]*page
}

// deviceKey is the key of a device with a number.
func deviceKey(n byte) seal.DeviceKey {
	k, err := seal.ParseDeviceKey(append([]byte{n, 0xdd}, make([]byte, 30)...))
	if err != nil {
		panic(err)
	}
	return k
}

// page is a page of a device.
type page struct {
	*cloudsync.Page
	d       *device
	ledger  string
	o       storage.Options
	store   *storage.Store
	arrived int
}

// device makes a device with a page.
func (w *world) device() *page { return w.newDevice().page("notes") }

func (w *world) newDevice() *device {
	w.t.Helper()
	w.n++
	d := &device{w: w, key: deviceKey(w.n), fs: vfstest.NewMem(), pages: map[string]*page{}}
	if err := errors.Join(d.fs.MkdirAll("repo"), d.fs.SyncDir(".")); err != nil {
		w.t.Fatal(err)
	}
	d.connect()
	w.t.Cleanup(func() {
		for _, p := range d.pages {
			p.close()
		}
		if err := d.s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return d
}

// connect makes a Syncer with the present keyring.
func (d *device) connect() {
	b := d.via
	if b == nil {
		b = d.w.b
	}
	d.m = bucket.NewMeter(b, bucket.MeterOptions{})
	o := d.w.o
	o.Bucket, o.Keyring, o.Key = d.m, d.w.ring, d.key
	d.s = cloudsync.New(o)
}

// page opens a page of the ledger.
func (d *device) page(ledger string) *page {
	d.w.t.Helper()
	p := d.pages[ledger]
	if p == nil {
		p = &page{d: d, ledger: ledger, o: storage.Options{FS: d.fs, Dir: "repo/" + ledger, Page: testPage, MemoryIndex: index.NewMemory()}}
		d.pages[ledger] = p
	}
	if err := storage.Create(d.w.t.Context(), p.o); err != nil {
		d.w.t.Fatal(err)
	}
	var err error
	if p.store, err = storage.Open(d.w.t.Context(), p.o); err != nil {
		d.w.t.Fatal(err)
	}
	p.Page = d.s.OpenPage(cloudsync.PageOptions{Store: p.store, Ledger: ledger, Name: "my " + ledger, Merge: p.merge, Arrived: func() { p.arrived++ }})
	return p
}

func (p *page) close() {
	p.d.w.t.Helper()
	if err := errors.Join(p.Page.Close(), p.store.Close()); err != nil {
		p.d.w.t.Error(err)
	}
}

// reopen closes the page and opens it again, on a new Syncer with the present keyring.
func (p *page) reopen() {
	p.d.w.t.Helper()
	p.close()
	if err := p.d.s.Close(); err != nil {
		p.d.w.t.Fatal(err)
	}
	p.d.connect()
	p.d.page(p.ledger)
}

// merge merges as PageOptions.Merge does, without rules. It builds missing trees that it needs.
func (p *page) merge(ctx context.Context) error {
	err := p.mergeOnce(ctx)
	for range 3 {
		if !errors.Is(err, base.ErrNeedsFetch) {
			break
		}
		for c, walkErr := range commit.Walk(ctx, p.store, headIDs(p.store)) {
			if walkErr != nil {
				return walkErr
			}
			if err := p.BuildTree(ctx, c.ID); err != nil && !errors.Is(err, base.ErrGone) {
				return err
			}
		}
		err = p.mergeOnce(ctx)
	}
	return err
}

func headIDs(s *storage.Store) (ids []commit.ID) {
	for _, h := range s.Heads() {
		ids = append(ids, h.ID)
	}
	return ids
}

func (p *page) mergeOnce(ctx context.Context) error {
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	cloud, err := cloudsync.StandingOf(ctx, p.store)
	if err != nil {
		return err
	}
	heads := p.store.ChainedHeads()
	j := p.store.NewJournal()
	defer j.Rollback()
	env := &merge.Env{
		View: merge.View{
			Page: testPage, Commits: cloud.Over(p.store, p.store),
			Tree: func(c *commit.Commit) btree.Tree { return btree.Tree{Page: testPage, Source: j, Root: c.Root} },
		},
		Sink: j, Pieces: j, Table: split.DefaultTable(),
	}
	merged, err := merge.Heads(ctx, env, merge.Rules{}, heads)
	if err != nil || len(merged) == 0 {
		return err
	}
	var cs []*commit.Commit
	for _, m := range merged {
		if m.Conflicts > 0 {
			j.Explain(m.Commit.ID, m.Explanation)
		}
		cs = append(cs, m.Commit)
	}
	pending, err := p.store.Submit(ctx, j, cs...)
	if err != nil {
		return err
	}
	return pending.Wait()
}

// edit changes a page: nil deletes the key. A value that begins with "lazy:" is LAZY.
type edit map[string][]byte

func text(s string) []byte { return []byte(s) }

// noise returns n bytes that do not compress.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// commit makes a commit on the newest head.
func (p *page) commit(e edit) *commit.Commit {
	p.d.w.t.Helper()
	c, err := p.tryCommit(p.d.w.t.Context(), e)
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	return c
}

func (p *page) tryCommit(ctx context.Context, e edit) (*commit.Commit, error) {
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j := p.store.NewJournal()
	defer j.Rollback()
	head := p.store.NewestHead()
	changes := func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(e)) {
			c, err := changeOf(ctx, j, k, e[k])
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
	root, err := btree.Tree{Page: testPage, Source: j, Root: head.Root}.Apply(ctx, j, changes)
	if err != nil {
		return nil, err
	}
	c, err := commit.New(commit.Params{Now: p.d.w.clock.Now(), Root: root, Parents: []*commit.Commit{head}, Device: p.d.key.ID().String()})
	if err != nil {
		return nil, err
	}
	pending, err := p.store.Submit(ctx, j, c)
	if err != nil {
		return nil, err
	}
	return c, pending.Wait()
}

func changeOf(ctx context.Context, j *storage.Journal, k string, v []byte) (btree.Change, error) {
	c := btree.Change{Delete: v == nil, Entry: fb.Entry{Key: []byte(k), Size: uint64(len(v))}}
	if len(v) <= btree.InlineLimit {
		c.Entry.Value, c.Entry.Inline = v, v != nil
		return c, nil
	}
	if bytes.HasPrefix(v, []byte("lazy:")) {
		c.Entry.Priority = object.Lazy
	}
	var err error
	c.Entry.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), v, func(ctx context.Context, p split.Piece) error {
		return j.PutPiece(ctx, p.Digest, p.Content)
	})
	return c, err
}

// content returns what the newest head holds.
func (p *page) content() map[string]string {
	p.d.w.t.Helper()
	ctx := p.d.w.t.Context()
	m := map[string]string{}
	cur := btree.Tree{Page: testPage, Source: p.store, Root: p.store.NewestHead().Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		v := e.Value
		if !e.Inline {
			var b bytes.Buffer
			if _, err := split.NewReader(ctx, p.store, e.Digest, e.Size).WriteTo(&b); err != nil {
				p.d.w.t.Fatalf("value of %q: %v", e.Key, err)
			}
			v = b.Bytes()
		}
		m[string(e.Key)] = string(v)
	}
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	return m
}

// sync syncs pages, one after another.
func sync(t testing.TB, ps ...*page) {
	t.Helper()
	for i, p := range ps {
		if err := p.Sync(t.Context()); err != nil {
			t.Fatalf("page %d: %v", i, err)
		}
	}
}

// sameHeads checks that pages have come to rest on one head.
func sameHeads(t testing.TB, ps ...*page) {
	t.Helper()
	for i, p := range ps {
		heads := p.store.Heads()
		if len(heads) != 1 {
			t.Fatalf("page %d has %d heads", i, len(heads))
		}
		if first := ps[0].store.NewestHead(); heads[0].ID != first.ID {
			t.Fatalf("page %d has head %s, page 0 %s", i, heads[0].ID.Short(), first.ID.Short())
		}
		if ids, err := p.store.Unsynced(t.Context()); err != nil || len(ids) > 0 {
			t.Fatalf("page %d: %d commits are not synced, %v", i, len(ids), err)
		}
	}
}

// eventually waits, within a bubble, until ok holds when nothing moves any more; a timer of the
// bubble ends a test in which it never does. Between two looks it waits for a change of one of the
// Syncers, or moves the clock.
func (w *world) eventually(what string, move time.Duration, ok func() bool, ds ...*device) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	for synctest.Wait(); !ok(); synctest.Wait() {
		if ctx.Err() != nil {
			w.t.Fatalf("%s: not within minutes", what)
		}
		if move > 0 {
			w.clock.Advance(move)
		}
		for _, d := range ds {
			short, stop := context.WithTimeout(ctx, time.Millisecond)
			select {
			case <-d.s.Changed():
			case <-short.Done():
			}
			stop()
		}
	}
}

// counts runs fn and returns what it asked of the bucket.
func (p *page) counts(fn func()) bucket.Counts {
	before := p.d.m.Counts()
	fn()
	after := p.d.m.Counts()
	return bucket.Counts{A: after.A - before.A, B: after.B - before.B, Free: after.Free - before.Free, Up: after.Up - before.Up, Down: after.Down - before.Down}
}

func key(i int) string { return fmt.Sprintf("key %05d", i) }

var errNet = fmt.Errorf("no route: %w", base.ErrNetwork)
