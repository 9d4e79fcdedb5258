package replica_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
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
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

var testPage = [16]byte{4, 5, 6}

// val is a value of a page.
type val struct {
	content string
	lazy    bool
}

// edit changes a page: nil deletes the key.
type edit map[string]*val

func text(s string) *val { return &val{content: s} }

// noise returns n bytes that do not compress.
func noise(seed uint64, n int) string {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return string(b)
}

// world is a bucket with what all devices agree on.
type world struct {
	t      testing.TB
	b      *mem.Bucket
	m      *bucket.Meter
	clock  *mem.Clock
	seal   *seal.Sealer
	names  wire.Names
	ids    uint64
	models map[commit.ID]map[string]val
	dir    string // where devices have their pages; "": in memory
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, clock: mem.NewAutoClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), seal: seal.NewSealer(ring, nil),
		names: wire.NamesOf(ring, "test", testPage), models: map[commit.ID]map[string]val{commit.First().ID: {}},
	}
	w.b = mem.New(mem.Options{Clock: w.clock})
	w.m = bucket.NewMeter(w.b, bucket.MeterOptions{})
	return w
}

func (w *world) id() (id epoch.ID) {
	w.ids++
	id[0] = 9
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

// device has one page in memory with its log. It plays the worker.
type device struct {
	*world
	mem     *vfstest.Mem
	s       *storage.Store
	page    *replica.Page
	log     *pagelog.Log
	fetcher *pack.Fetcher
	plain   func([]byte) bool
	again   func([]byte) bool // as in Options
}

func (w *world) device() *device {
	w.t.Helper()
	d := &device{world: w, mem: vfstest.NewMem()}
	if err := errors.Join(d.mem.MkdirAll("repo"), d.mem.SyncDir(".")); err != nil {
		w.t.Fatal(err)
	}
	d.open()
	w.t.Cleanup(d.close)
	return d
}

func (d *device) close() {
	d.fetcher.Close()
	_ = d.s.Close()
}

// open opens the page with an index that is made anew from the log.
func (d *device) open() {
	d.t.Helper()
	ctx := d.t.Context()
	o := storage.Options{FS: d.mem, Dir: "repo/page", Page: testPage, MemoryIndex: index.NewMemory()}
	if d.dir != "" {
		o = storage.Options{Dir: filepath.Join(d.dir, "page"), Page: testPage}
	}
	if err := storage.Create(ctx, o); err != nil {
		d.t.Fatal(err)
	}
	var err error
	if d.s, err = storage.Open(ctx, o); err != nil {
		d.t.Fatal(err)
	}
	d.page, err = replica.Open(ctx, replica.Options{
		Store: d.s, Bucket: d.m, Sealer: d.seal, Names: d.names, NewID: d.id, Parallel: 1, Plain: d.plain, Again: d.again,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.fetcher = pack.NewFetcher(pack.FetchOptions{
		Bucket: d.m, Sealer: d.seal, Names: d.names, Epoch: d.page.PackEpoch, Store: d.s, Entries: d.page.EntryPieces,
	})
	d.page.SetFetcher(d.fetcher)
	d.s.SetFetcher(d.fetcher)
	d.log = pagelog.New(pagelog.Options{
		Bucket: d.m, Sealer: d.seal, Names: d.names, Page: d.page, NewID: d.id,
	}, d.page.Position())
}

// crash ends the process: what was not synced is lost.
func (d *device) crash() {
	d.t.Helper()
	clone := d.mem.CrashClone(vfstest.KeepNone)
	d.close()
	d.mem = clone
	d.open()
}

// changes stores the values of an edit and returns the changes of its tree.
func (e edit) changes(ctx context.Context, j *storage.Journal) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(e)) {
			v := e[k]
			c := btree.Change{Delete: v == nil, Entry: fb.Entry{Key: []byte(k)}}
			var err error
			if v != nil {
				c.Entry, err = entryOf(ctx, j, k, v)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

func entryOf(ctx context.Context, j *storage.Journal, k string, v *val) (fb.Entry, error) {
	e := fb.Entry{Key: []byte(k), Size: uint64(len(v.content))}
	if len(v.content) <= btree.InlineLimit {
		e.Value, e.Inline = []byte(v.content), true
		return e, nil
	}
	if v.lazy {
		e.Priority = object.Lazy
	}
	var err error
	e.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), []byte(v.content), func(ctx context.Context, p split.Piece) error {
		return j.PutPiece(ctx, p.Digest, p.Content)
	})
	return e, err
}

// commitOn makes a commit on parents, the edit being one of the first one's tree.
func (d *device) commitOn(e edit, explain edit, parents ...*commit.Commit) *commit.Commit {
	d.t.Helper()
	ctx := d.t.Context()
	c, err := func() (*commit.Commit, error) {
		j := d.s.NewJournal()
		defer j.Rollback()
		root, err := btree.Tree{Page: testPage, Source: j, Root: parents[0].Root}.Apply(ctx, j, e.changes(ctx, j))
		if err != nil {
			return nil, err
		}
		var c *commit.Commit
		if len(parents) == 2 {
			c, err = commit.NewMerge(root, parents[0], parents[1])
		} else {
			c, err = commit.New(commit.Params{Now: d.clock.Now(), Root: root, Parents: parents})
		}
		if err != nil {
			return nil, err
		}
		if explain != nil {
			root, err := btree.Tree{Page: testPage, Source: j, Root: btree.EmptyRoot}.Apply(ctx, j, explain.changes(ctx, j))
			if err != nil {
				return nil, err
			}
			j.Explain(c.ID, root)
		}
		p, err := d.s.Submit(ctx, j, c)
		if err != nil {
			return nil, err
		}
		return c, p.Wait()
	}()
	if err != nil {
		d.t.Fatal(err)
	}
	m := maps.Clone(d.models[parents[0].ID])
	for k, v := range e {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = val{v.content, v.lazy && len(v.content) > btree.InlineLimit}
		}
	}
	d.models[c.ID] = m
	return c
}

func (d *device) commit(e edit) *commit.Commit {
	d.t.Helper()
	return d.commitOn(e, nil, d.s.NewestHead())
}

// merge merges the heads of the page to one, as the first one has it.
func (d *device) merge() {
	d.t.Helper()
	for h := d.s.Heads(); len(h) > 1; h = d.s.Heads() {
		d.commitOn(edit{}, nil, h[0], h[1])
	}
}

// sync catches up, merges and sends until there is nothing to do.
func (d *device) sync() error {
	ctx := d.t.Context()
	for range 300 {
		if _, err := d.log.CatchUp(ctx); err != nil {
			return fmt.Errorf("catch up: %w", err)
		}
		d.merge()
		if _, err := d.page.Prune(ctx); err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		body, err := d.page.Next(ctx, d.log.Append)
		if err != nil && !errors.Is(err, replica.ErrWaits) {
			return fmt.Errorf("next: %w", err)
		}
		if body == nil {
			return nil
		}
		if _, err := d.log.Append(ctx, body); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	return errors.New("there is always more to do")
}

func (d *device) mustSync() {
	d.t.Helper()
	if err := d.sync(); err != nil {
		d.t.Fatal(err)
	}
}

// wantHead proves that the page has one head with the content that it is to have, with all values.
func (d *device) wantHead() *commit.Commit {
	d.t.Helper()
	h := d.s.Heads()
	if len(h) != 1 {
		d.t.Fatalf("%d heads", len(h))
	}
	d.wantTree(h[0])
	return h[0]
}

// wantTree proves that a commit has the content that it is to have, with all values.
func (d *device) wantTree(c *commit.Commit) {
	d.t.Helper()
	ctx := d.t.Context()
	got := map[string]val{}
	empty := btree.Tree{Page: testPage, Source: d.s, Root: btree.EmptyRoot}
	tree := empty
	tree.Root = c.Root
	for e, err := range btree.Diff(ctx, empty, tree, nil) {
		if err != nil {
			d.t.Fatal(err)
		}
		if e.Right.Inline {
			got[string(e.Key)] = val{content: string(e.Right.Value)}
			continue
		}
		var b bytes.Buffer
		if _, err := split.NewReader(ctx, d.s, e.Right.Digest, e.Right.Size).WriteTo(&b); err != nil {
			d.t.Fatalf("value of %q: %v", e.Key, err)
		}
		got[string(e.Key)] = val{b.String(), e.Right.Priority == object.Lazy}
	}
	want := d.models[c.ID]
	if !maps.Equal(got, want) {
		d.t.Fatalf("commit %s has %d keys, want %d, or other values", c.ID.Short(), len(got), len(want))
	}
}

// objects returns how many objects of a kind the bucket has, and their bytes.
func (w *world) objects(kind wire.Kind) (n int, bytes int64) {
	for _, name := range w.b.Names() {
		if x, ok := w.names.Parse(name); ok && x.Kind == kind {
			content, _ := w.b.Content(name)
			n, bytes = n+1, bytes+int64(len(content))
		}
	}
	return n, bytes
}

// unsynced returns how many commits are not in the log.
func (d *device) unsynced() int {
	d.t.Helper()
	ids, err := d.s.Unsynced(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return len(ids)
}
