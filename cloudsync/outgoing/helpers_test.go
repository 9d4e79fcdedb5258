package outgoing_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// device has one page in memory and what uploads it. It plays the worker.
type device struct {
	t    testing.TB
	mem  *vfstest.Mem
	o    storage.Options
	s    *storage.Store
	b    *mem.Bucket
	m    *bucket.Meter
	ring *seal.Keyring
	seal *seal.Sealer
	page *outgoing.Page
	opts func(*outgoing.Options)
	ids  uint64

	number uint64
	hash   format.Hash
	models map[commit.ID]map[string]val
	wraps  map[commit.ID]map[string]string // explanations
}

func newDevice(t testing.TB) *device {
	t.Helper()
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{
		t: t, mem: vfstest.NewMem(), b: mem.New(mem.Options{}), ring: ring, seal: seal.NewSealer(ring, nil),
		models: map[commit.ID]map[string]val{commit.First().ID: {}}, wraps: map[commit.ID]map[string]string{},
	}
	d.m = bucket.NewMeter(d.b)
	if err := errors.Join(d.mem.MkdirAll("repo"), d.mem.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	d.open()
	t.Cleanup(func() { _ = d.s.Close() })
	return d
}

// open opens the page with an index that is made anew from the log.
func (d *device) open() {
	d.t.Helper()
	d.o = storage.Options{FS: d.mem, Dir: "repo/page", Page: testPage, MemoryIndex: index.NewMemory()}
	if err := storage.Create(d.t.Context(), d.o); err != nil {
		d.t.Fatal(err)
	}
	var err error
	if d.s, err = storage.Open(d.t.Context(), d.o); err != nil {
		d.t.Fatal(err)
	}
	d.newPage()
}

func (d *device) names() format.PageNames { return format.NamesOf(d.ring, "test", testPage) }

func (d *device) newPage() {
	o := outgoing.Options{
		Store: d.s, Bucket: d.m, Sealer: d.seal, Names: d.names(), Device: format.ID{1}, Parallel: 1,
		NewID: func() format.ID {
			d.ids++
			var id format.ID
			id[0] = 9
			binary.BigEndian.PutUint64(id[8:], d.ids)
			return id
		},
	}
	if d.opts != nil {
		d.opts(&o)
	}
	d.page = outgoing.New(o)
}

// crash ends the process: what was not synced is lost.
func (d *device) crash() {
	d.t.Helper()
	clone := d.mem.CrashClone(vfstest.KeepNone)
	_ = d.s.Close()
	d.mem = clone
	d.open()
}

// put stores the values of an edit and returns the changes of its tree.
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
	e.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), object.Chunk, []byte(v.content), func(ctx context.Context, p split.Piece) error {
		return j.PutPiece(ctx, p.Digest, p.Content)
	})
	return e, err
}

// commitOn makes a commit on the given parents, the edit being one of the first one's tree.
func (d *device) commitOn(e edit, explain map[string]string, parents ...*commit.Commit) *commit.Commit {
	d.t.Helper()
	c, p, err := d.submitOn(e, explain, parents...)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func (d *device) submitOn(e edit, explain map[string]string, parents ...*commit.Commit) (*commit.Commit, *storage.Pending, error) {
	ctx := d.t.Context()
	j := d.s.NewJournal()
	defer j.Rollback()
	root, err := btree.Tree{Page: testPage, Source: j, Root: parents[0].Root}.Apply(ctx, j, e.changes(ctx, j))
	if err != nil {
		return nil, nil, err
	}
	var c *commit.Commit
	if len(parents) == 2 {
		c, err = commit.NewMerge(root, parents[0], parents[1])
	} else {
		c, err = commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: parents})
	}
	if err != nil {
		return nil, nil, err
	}
	if explain != nil {
		why := edit{}
		for k, v := range explain {
			why[k] = text(v)
		}
		root, err := btree.Tree{Page: testPage, Source: j, Root: btree.EmptyRoot}.Apply(ctx, j, why.changes(ctx, j))
		if err != nil {
			return nil, nil, err
		}
		j.Explain(c.ID, root)
		d.wraps[c.ID] = explain
	}
	m := maps.Clone(d.models[parents[0].ID])
	for k, v := range e {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = *v
		}
	}
	for k, v := range m {
		if len(v.content) <= btree.InlineLimit {
			m[k] = val{content: v.content} // always EAGER
		}
	}
	d.models[c.ID] = m
	p, err := d.s.Submit(ctx, j, c)
	return c, p, err
}

func (d *device) commit(e edit) *commit.Commit {
	d.t.Helper()
	return d.commitOn(e, nil, d.s.NewestHead())
}

// append writes a body as the next entry.
func (d *device) append(out *outgoing.Outgoing) error {
	stored, hash, err := format.SealEntry(d.seal, d.names(), d.number+1, d.hash, out.Body)
	if err != nil {
		return err
	}
	if err := d.m.PutIfAbsent(d.t.Context(), d.names().Entry(d.number+1), int64(len(stored)), bytes.NewReader(stored)); err != nil {
		return err
	}
	d.number, d.hash = d.number+1, hash
	return nil
}

func (d *device) settle(b *storage.SyncBatch) {
	d.t.Helper()
	p, err := d.s.SubmitSync(d.t.Context(), nil, b)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// push sends everything and returns the number of entries.
func (d *device) push() int {
	d.t.Helper()
	for n := 0; ; n++ {
		out, err := d.page.Next(d.t.Context())
		if err == nil && out != nil {
			err = d.append(out)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if out == nil {
			return n
		}
		d.settle(out.Settle(d.number))
		if n > 200 {
			d.t.Fatal("there is always more to send")
		}
	}
}

// reader rebuilds a page from the bucket with plain maps.
type reader struct {
	d        *device
	pieces   map[object.Digest][]byte
	times    map[object.Digest]int // how often a piece stands in entries and announced packs
	commits  map[commit.ID]map[string]val
	order    []commit.ID
	explains map[commit.ID]map[string]string
	tags     map[string]commit.ID
	packs    map[format.ID]format.PackRef
	bodies   []*format.Body
}

func (d *device) read() *reader {
	d.t.Helper()
	r := &reader{
		d: d, pieces: map[object.Digest][]byte{}, times: map[object.Digest]int{}, commits: map[commit.ID]map[string]val{commit.First().ID: {}},
		explains: map[commit.ID]map[string]string{}, tags: map[string]commit.ID{}, packs: map[format.ID]format.PackRef{},
	}
	var previous format.Hash
	for n := uint64(1); ; n++ {
		stored, ok := d.b.Content(d.names().Entry(n))
		if !ok {
			return r
		}
		e, err := format.OpenEntry(d.seal, d.names(), n, stored)
		if err != nil {
			d.t.Fatal(err)
		}
		if e.Previous != previous {
			d.t.Fatalf("entry %d does not follow the one before", n)
		}
		previous = e.Hash
		r.apply(n, e.Body)
	}
}

func (r *reader) apply(n uint64, b *format.Body) {
	t := r.d.t
	t.Helper()
	r.bodies = append(r.bodies, b)
	for _, id := range b.Relies {
		if _, ok := r.packs[id]; !ok {
			t.Fatalf("entry %d relies on pack %s, which no entry has announced", n, id)
		}
	}
	for _, e := range b.ReliesEntries {
		if e >= n {
			t.Fatalf("entry %d relies on entry %d", n, e)
		}
	}
	for _, ref := range b.Packs {
		if _, twice := r.packs[ref.ID]; twice {
			t.Fatalf("entry %d announces pack %s again", n, ref.ID)
		}
		r.packs[ref.ID] = ref
		r.pack(ref)
	}
	for _, p := range b.Pieces {
		r.pieces[p.Digest] = p.Content
		r.times[p.Digest]++
	}
	for i := range b.Commits {
		r.commit(&b.Commits[i])
	}
	for i := range b.Explanations {
		e := &b.Explanations[i]
		m := map[string]string{}
		for k, v := range r.changes(&e.Diff, map[string]val{}) {
			m[k] = v.content
		}
		r.explains[e.Merge] = m
	}
	for _, tag := range b.Tags {
		if tag.Removed {
			delete(r.tags, tag.Name)
		} else if r.tags[tag.Name] = tag.Commit; r.commits[tag.Commit] == nil {
			t.Fatalf("entry %d has a tag on a commit that is not in the log", n)
		}
	}
}

func (r *reader) pack(ref format.PackRef) {
	r.d.t.Helper()
	p, err := pack.OpenWhole(r.d.t.Context(), r.d.b, r.d.seal, r.d.names(), ref)
	if err != nil {
		r.d.t.Fatal(err)
	}
	defer p.Close()
	err = p.Each(r.d.t.Context(), nil, func(p storage.PlacedPiece, content []byte) error {
		r.pieces[p.Digest] = bytes.Clone(content)
		r.times[p.Digest]++
		return nil
	})
	if err != nil {
		r.d.t.Fatal(err)
	}
}

func (r *reader) commit(c *format.CommitChange) {
	t := r.d.t
	t.Helper()
	for _, id := range c.Commit.Parents {
		if r.commits[id] == nil {
			t.Fatalf("commit %s comes before its parent", c.Commit.ID.Short())
		}
	}
	from := map[string]val{}
	if !c.Base.Empty {
		if from = r.commits[c.Base.Commit]; from == nil {
			t.Fatalf("the base of commit %s is not in the log", c.Commit.ID.Short())
		}
	}
	r.commits[c.Commit.ID] = r.changes(&c.Diff, from)
	r.order = append(r.order, c.Commit.ID)
}

// Piece gives the pieces that have come until now.
func (r *reader) Piece(_ context.Context, d object.Digest) ([]byte, error) {
	b, ok := r.pieces[d]
	if !ok {
		return nil, base.ErrNotFound
	}
	return b, d.Verify(b)
}

// changes applies a diff.
func (r *reader) changes(d *format.Diff, from map[string]val) map[string]val {
	t := r.d.t
	t.Helper()
	cr := format.ChangesOf(d.Inline)
	if !d.Pack.IsZero() {
		o, err := r.d.b.Get(t.Context(), r.d.names().Pack(d.Pack), 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		st, err := r.d.seal.NewStream(o.Body, r.d.names().DiffLabel(d.Pack))
		if err != nil {
			t.Fatal(err)
		}
		cr = format.NewChangeReader(st, int64(d.Bytes))
		defer func() {
			if n, err := io.Copy(io.Discard, st); n != 0 || err != nil {
				t.Fatalf("%d bytes behind the diff, %v", n, err)
			}
		}()
	}
	return r.read(cr, from)
}

func (r *reader) read(cr *format.ChangeReader, from map[string]val) map[string]val {
	t := r.d.t
	t.Helper()
	to := maps.Clone(from)
	for {
		c, err := cr.Next()
		if err == io.EOF {
			return to
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Removed:
			delete(to, string(c.Key))
		case c.Object.IsZero():
			to[string(c.Key)] = val{content: string(c.Inline)}
		default:
			var b bytes.Buffer
			if _, err := split.NewReader(t.Context(), r, c.Object, c.Size).WriteTo(&b); err != nil {
				t.Fatalf("value of %q: %v", c.Key, err)
			}
			to[string(c.Key)] = val{b.String(), c.Priority == object.Lazy}
		}
	}
}

// wantAll proves that the log rebuilds every commit that the device has.
func (d *device) wantAll(r *reader) {
	d.t.Helper()
	unsynced, err := d.s.Unsynced(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if len(unsynced) > 0 {
		d.t.Fatalf("%d commits are unsynced", len(unsynced))
	}
	for c, err := range commit.Walk(d.t.Context(), d.s, headIDs(d.s)) {
		if err != nil {
			d.t.Fatal(err)
		}
		got, ok := r.commits[c.ID]
		if !ok {
			d.t.Fatalf("commit %s is not in the log", c.ID.Short())
		}
		if !maps.Equal(got, d.models[c.ID]) {
			d.t.Fatalf("commit %s has other content in the log", c.ID.Short())
		}
		if !maps.Equal(r.explains[c.ID], d.wraps[c.ID]) {
			d.t.Fatalf("commit %s has another explanation in the log: %v, want %v", c.ID.Short(), r.explains[c.ID], d.wraps[c.ID])
		}
	}
	tags, err := d.s.Tags(d.t.Context())
	if err != nil || !maps.Equal(tags, r.tags) {
		d.t.Fatalf("tags %v in the log, want %v (%v)", r.tags, tags, err)
	}
}

func headIDs(s *storage.Store) []commit.ID {
	var ids []commit.ID
	for _, h := range s.Heads() {
		ids = append(ids, h.ID)
	}
	return ids
}

// wantOnce proves that no piece stands twice in what the log names.
func (r *reader) wantOnce() {
	r.d.t.Helper()
	for d, n := range r.times {
		if n > 1 {
			r.d.t.Fatalf("piece %s was uploaded %d times", d, n)
		}
	}
}
