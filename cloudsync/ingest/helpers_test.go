package ingest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) {
	if !tier.Nightly() {
		if err := flag.Set("rapid.checks", "40"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

var (
	testPage = [16]byte{1, 2, 3}
	epoch    = time.Unix(1_700_000_000, 0)
)

// world is a bucket with the log of one page.
type world struct {
	t      testing.TB
	bucket *mem.Bucket
	sealer *seal.Sealer
	names  format.PageNames
	random *rand.ChaCha8
	log    []*format.Entry
}

func newWorld(t testing.TB) *world {
	t.Helper()
	random := rand.NewChaCha8([32]byte{7})
	ring, err := seal.NewKeyring(seal.AES256GCM, random)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, bucket: mem.New(mem.Options{Clock: mem.NewAutoClock(epoch)}), sealer: seal.NewSealer(ring, random), names: format.NamesOf(ring, "app", testPage), random: random}
}

func (w *world) newID() (id format.ID) {
	if _, err := w.random.Read(id[:]); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// last returns number and hash of the last entry.
func (w *world) last() (uint64, format.Hash) {
	if len(w.log) == 0 {
		return 0, format.Hash{}
	}
	e := w.log[len(w.log)-1]
	return e.Number, e.Hash
}

// entry makes the next entry of a body, which may be a bad one, without sealing it.
func (w *world) entry(b *format.Body) *format.Entry {
	n, h := w.last()
	e := &format.Entry{Header: format.Header{Number: n + 1, ID: w.newID(), Previous: h}, Body: b, Stored: 500, Created: epoch.Add(time.Duration(n+1) * time.Minute)}
	e.Hash = sha256.Sum256(binary.BigEndian.AppendUint64(e.ID[:], e.Number))
	return e
}

// append seals a body, opens it again, puts it into the bucket and the log, and returns the entry.
func (w *world) append(b *format.Body) *format.Entry {
	w.t.Helper()
	n, h := w.last()
	sealed, err := format.SealBody(w.sealer, w.names, w.newID(), b)
	if err != nil {
		w.t.Fatal(err)
	}
	stored, hash, err := format.SealEntry(w.sealer, w.names, n+1, h, sealed)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.bucket.PutIfAbsent(context.Background(), w.names.Entry(n+1), int64(len(stored)), bytes.NewReader(stored)); err != nil {
		w.t.Fatal(err)
	}
	e, err := format.OpenEntry(w.sealer, w.names, n+1, stored)
	if err != nil {
		w.t.Fatal(err)
	}
	if e.Hash != hash {
		w.t.Fatalf("entry %d has the hash %x, sealed with %x", n+1, e.Hash, hash)
	}
	e.Created = epoch.Add(time.Duration(n+1) * time.Minute)
	w.log = append(w.log, e)
	return e
}

func (w *world) position(e *format.Entry) format.Position {
	return format.Position{Bucket: format.ID(w.sealer.Keyring().BucketID()), Number: e.Number, Hash: e.Hash}
}

// device is a page on one device.
type device struct {
	*world
	t       testing.TB
	id      format.ID
	s       *storage.Store
	fetcher *pack.Fetcher
	page    *ingest.Page
	// priority is that of values that are put.
	priority object.Priority
	read     int  // entries of the log
	broken   bool // the disk is
	clock    int64
}

// device opens a page in memory.
func (w *world) device(t testing.TB) *device {
	t.Helper()
	return w.deviceWith(t, storage.Options{FS: vfstest.NewMem(), Dir: "page", Page: testPage, MemoryIndex: index.NewMemory()}, w.bucket)
}

// deviceWith opens a page as o says, with a bucket that may be in front of the world's.
func (w *world) deviceWith(t testing.TB, o storage.Options, b bucket.Bucket) *device {
	t.Helper()
	if err := storage.Create(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{world: w, t: t, id: w.newID(), s: s}
	d.fetcher = pack.NewFetcher(pack.FetchOptions{Bucket: b, Sealer: w.sealer, Names: w.names, Store: s})
	d.page = ingest.New(ingest.Options{Store: s, Bucket: b, Sealer: w.sealer, Names: w.names, Fetcher: d.fetcher, Device: d.id})
	t.Cleanup(func() {
		d.fetcher.Close()
		if err := s.Close(); err != nil && !d.broken {
			t.Error(err)
		}
	})
	return d
}

// edit is one change of a page: a nil value deletes the key.
type edit map[string][]byte

// tree applies an edit to a root.
func (d *device) tree(ctx context.Context, j *storage.Journal, root object.Digest, e edit) object.Digest {
	d.t.Helper()
	root, err := btree.Tree{Page: testPage, Source: j, Root: root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(e)) {
			v := e[k]
			c := btree.Change{Delete: v == nil, Entry: fb.Entry{Key: []byte(k), Value: v, Inline: true, Size: uint64(len(v))}}
			var err error
			if len(v) > btree.InlineLimit {
				c.Entry = fb.Entry{Key: []byte(k), Size: uint64(len(v)), Priority: d.priority}
				c.Entry.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), object.Chunk, v, func(ctx context.Context, p split.Piece) error {
					return j.PutPiece(ctx, p.Digest, p.Content)
				})
			}
			if !yield(c, err) {
				return
			}
		}
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return root
}

// commit makes a commit on the given parents, by default the newest head; the tree is that of the
// first parent with e.
func (d *device) commit(e edit, parents ...*commit.Commit) *commit.Commit {
	d.t.Helper()
	ctx := context.Background()
	if len(parents) == 0 {
		parents = []*commit.Commit{d.s.NewestHead()}
	}
	j := d.s.NewJournal()
	defer j.Rollback()
	root := d.tree(ctx, j, parents[0].Root, e)
	d.clock += int64(time.Millisecond)
	c, err := commit.New(commit.Params{Now: epoch.Add(time.Duration(d.clock)), Root: root, Parents: parents, Device: d.id.String()[:6]})
	if len(parents) == 2 {
		c, err = commit.NewMerge(root, parents[0], parents[1])
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.submit(j, c)
	return c
}

func (d *device) submit(j *storage.Journal, c *commit.Commit) {
	d.t.Helper()
	p, err := d.s.Submit(context.Background(), j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// merge joins two heads: keys that differ get the greater value.
func (d *device) merge(a, b *commit.Commit) *commit.Commit {
	d.t.Helper()
	if commit.Compare(a, b) > 0 {
		a, b = b, a
	}
	e := edit{}
	ours, theirs := d.content(a), d.content(b)
	for k, v := range theirs {
		if v > ours[k] {
			e[k] = []byte(v)
		}
	}
	return d.commit(e, a, b)
}

// content reads all of a commit.
func (d *device) content(c *commit.Commit) map[string]string {
	d.t.Helper()
	ctx := context.Background()
	m := map[string]string{}
	cur := btree.Tree{Page: testPage, Source: d.s, Root: c.Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		v := bytes.Clone(e.Value)
		if !e.Inline {
			if v, err = io.ReadAll(split.NewReader(ctx, d.s, e.Digest, e.Size)); err != nil {
				d.t.Fatalf("value of %q: %v", e.Key, err)
			}
		}
		m[string(e.Key)] = string(v)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// diff returns the changes between two trees, and the digests of the values that it puts.
func (d *device) diff(from, to object.Digest) (b []byte, roots []fb.Entry) {
	d.t.Helper()
	var buf bytes.Buffer
	w := format.NewChangeWriter(&buf)
	left, right := btree.Tree{Page: testPage, Source: d.s, Root: from}, btree.Tree{Page: testPage, Source: d.s, Root: to}
	for x, err := range btree.Diff(context.Background(), left, right, nil) {
		if err != nil {
			d.t.Fatal(err)
		}
		c := format.Change{Key: x.Key, Removed: !x.HasRight}
		switch {
		case x.HasRight && x.Right.Inline:
			c.Inline = x.Right.Value
		case x.HasRight:
			c.Object, c.Size, c.Priority = x.Right.Digest, x.Right.Size, x.Right.Priority
			roots = append(roots, x.Right)
		}
		if err := w.Write(&c); err != nil {
			d.t.Fatal(err)
		}
	}
	return buf.Bytes(), roots
}

// pieces calls fn for each piece of a value.
func (d *device) pieces(root object.Digest, fn func(p object.Digest, content []byte)) {
	d.t.Helper()
	ctx := context.Background()
	err := split.Walk(ctx, d.s, root, func(p object.Digest, _ uint64, _ bool) error {
		content, err := d.s.Piece(ctx, p)
		if err == nil {
			fn(p, content)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// body makes the body that brings the given commits with all pieces of their values inline, except
// those that the bucket has.
func (d *device) body(cs ...*commit.Commit) *format.Body {
	d.t.Helper()
	b := &format.Body{Device: d.id}
	seen := map[object.Digest]bool{}
	for _, c := range cs {
		x, roots := d.change(c)
		b.Commits = append(b.Commits, x)
		for _, e := range roots {
			d.pieces(e.Digest, func(p object.Digest, content []byte) {
				if st, err := d.s.PieceState(p); err != nil || st.Synced || seen[p] {
					return
				}
				seen[p] = true
				b.Pieces = append(b.Pieces, format.InlinePiece{Digest: p, Content: content})
			})
		}
	}
	return b
}

// change returns a commit with the diff from its first parent.
func (d *device) change(c *commit.Commit) (format.CommitChange, []fb.Entry) {
	d.t.Helper()
	p, err := d.s.Commit(context.Background(), c.Parents[0])
	if err != nil {
		d.t.Fatal(err)
	}
	inline, roots := d.diff(p.Root, c.Root)
	x := format.CommitChange{Commit: c, Base: format.Base{Commit: p.ID}, Diff: format.Diff{Inline: inline}}
	if p.IsFirst() {
		x.Base = format.Base{Empty: true}
	}
	return x, roots
}

// upload puts the pieces of the values that commits bring into packs, and returns a body without
// pieces that announces them.
func (d *device) upload(cs ...*commit.Commit) *format.Body {
	d.t.Helper()
	b := &format.Body{Device: d.id}
	u := pack.NewUploader(context.Background(), pack.UploadOptions{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Uploaded: func(ctx context.Context, _ format.PackRef, pieces []storage.PlacedPiece) error {
		p, err := d.s.SubmitSync(ctx, nil, &storage.SyncBatch{Places: pieces})
		if err != nil {
			return err
		}
		return p.Wait()
	}})
	defer u.Close()
	for _, c := range cs {
		x, roots := d.change(c)
		b.Commits = append(b.Commits, x)
		for _, e := range roots {
			d.pieces(e.Digest, func(p object.Digest, content []byte) {
				if err := u.Add(p, content, e.Priority == object.Eager, true); err != nil {
					d.t.Fatal(err)
				}
			})
		}
	}
	refs, err := u.Finish()
	if err != nil {
		d.t.Fatal(err)
	}
	b.Packs = refs
	return b
}

// unsynced returns the commits that the bucket does not have.
func (d *device) unsynced() []*commit.Commit {
	d.t.Helper()
	ids, err := d.s.Unsynced(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	var cs []*commit.Commit
	for _, id := range ids {
		c, err := d.s.Commit(context.Background(), id)
		if err != nil {
			d.t.Fatal(err)
		}
		cs = append(cs, c)
	}
	return cs
}

// push sends all unsynced commits in one entry.
func (d *device) push() {
	d.t.Helper()
	d.pull()
	if cs := d.unsynced(); len(cs) > 0 {
		d.append(d.body(cs...))
		d.pull()
	}
}

// pull applies what the log has.
func (d *device) pull() ingest.Result {
	d.t.Helper()
	res, err := d.apply(d.log[d.read:]...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.read = len(d.log)
	return res
}

func (d *device) apply(es ...*format.Entry) (ingest.Result, error) {
	if len(es) == 0 {
		return ingest.Result{}, nil
	}
	return d.page.Apply(context.Background(), es, d.position(es[len(es)-1]))
}

// check fails the test when the page is not sound.
func (d *device) check() {
	d.t.Helper()
	r, err := d.s.Check(context.Background(), storage.CheckOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	if !r.Clean() {
		d.t.Fatalf("the page is not sound: %v", errors.Join(r.Problems...))
	}
}

// rows returns all rows of the page that say what it is, in one string: those of commits, heads,
// tags, metadata and what is in the cloud.
func (d *device) rows() string {
	d.t.Helper()
	var b bytes.Buffer
	for _, f := range []string{"commits", "heads", "merges", "conflicts", "tags", "sync_metadata", "cloud", "unsynced/commits", "refcounts"} {
		for r, err := range d.s.Rows(context.Background(), f) {
			if err != nil {
				d.t.Fatal(err)
			}
			fmt.Fprintln(&b, r.Key, r.Value)
		}
	}
	return b.String()
}

func headIDs(d *device) []commit.ID {
	var ids []commit.ID
	for _, c := range d.s.Heads() {
		ids = append(ids, c.ID)
	}
	return ids
}

// noise returns n bytes that depend on seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed)))
	_, _ = r.Read(b) // never fails
	return b
}

// uploadValues puts the pieces of values into packs, as who writes a checkpoint does.
func (d *device) uploadValues(es ...fb.Entry) []format.PackRef {
	d.t.Helper()
	u := pack.NewUploader(context.Background(), pack.UploadOptions{Bucket: d.bucket, Sealer: d.sealer, Names: d.names})
	defer u.Close()
	for _, e := range es {
		d.pieces(e.Digest, func(p object.Digest, content []byte) {
			if err := u.Add(p, content, e.Priority == object.Eager, true); err != nil {
				d.t.Fatal(err)
			}
		})
	}
	refs, err := u.Finish()
	if err != nil {
		d.t.Fatal(err)
	}
	return refs
}

// many returns an edit of n keys.
func many(n int) edit {
	e := make(edit, n)
	for i := range n {
		e[fmt.Sprintf("key %08d", i)] = noise(uint64(i), 32)
	}
	return e
}

// packOf puts pieces into a LAZY pack, whatever they are.
func (w *world) packOf(ps ...format.InlinePiece) []format.PackRef {
	w.t.Helper()
	u := pack.NewUploader(context.Background(), pack.UploadOptions{Bucket: w.bucket, Sealer: w.sealer, Names: w.names})
	defer u.Close()
	for _, p := range ps {
		if err := u.Add(p.Digest, p.Content, false, true); err != nil {
			w.t.Fatal(err)
		}
	}
	refs, err := u.Finish()
	if err != nil {
		w.t.Fatal(err)
	}
	return refs
}

// past is what a history says of the time behind a position.
func past(history func(yield func(*format.Entry) error) error, checkpoints ...uint64) ingest.Past {
	return ingest.Past{Checkpoints: checkpoints, Entries: func(from format.Position, yield func(*format.Entry) error) error {
		return history(func(e *format.Entry) error {
			if e.Number <= from.Number {
				return nil
			}
			return yield(e)
		})
	}}
}
