package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/keys"
)

// cloudWorld is a bucket in memory and a key, which repositories of a test share.
type cloudWorld struct {
	t      testing.TB
	bucket *mem.Bucket
	wrap   func(bucket.Bucket) bucket.Bucket
	key    string
}

func newCloudWorld(t testing.TB) *cloudWorld {
	w := &cloudWorld{t: t, bucket: mem.New(mem.Options{}), key: filepath.Join(t.TempDir(), "key")}
	must(t, keys.CreateFile(w.key, nil))
	return w
}

// stopped gives the world a bucket whose clock stands still until it is moved.
func (w *cloudWorld) stopped() *mem.Clock {
	now := mem.NewClock(time.Now())
	w.bucket = mem.New(mem.Options{Clock: now})
	return now
}

// options are those of a repository in memory that syncs when it is told.
func (w *cloudWorld) options() *ledger.Options {
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) {
		if w.wrap != nil {
			return w.wrap(w.bucket), nil
		}
		return w.bucket, nil
	}
	o := &ledger.Options{InMemory: true}
	o.Buckets = map[string]bucket.Opener{"mem": open}
	o.Sync = ledger.SyncOptions{Manual: true, MinPoll: 5 * time.Millisecond, MaxPoll: 20 * time.Millisecond}
	return o
}

func (w *cloudWorld) cloud() *ledger.Cloud {
	return &ledger.Cloud{URL: "mem:x", KeyFile: w.key}
}

// device returns a repository that has the bucket as its cloud.
func (w *cloudWorld) device(o *ledger.Options) *ledger.Repository {
	w.t.Helper()
	r := open(w.t, "", o)
	if _, err := r.SetCloud(w.t.Context(), w.cloud()); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func syncAll(t testing.TB, rs ...*ledger.Repository) {
	t.Helper()
	for _, r := range rs {
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// offline takes the network away.
func (w *cloudWorld) offline(off bool) {
	if !off {
		w.bucket.SetBefore(nil)
		return
	}
	w.bucket.SetBefore(func(bucket.Op, string) error {
		return &bucket.Error{Class: bucket.ClassOther, Err: base.ErrNetwork} // of a class that is not tried again
	})
}

func TestDevicesMeet(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	pa := page(t, a, "notes", "inbox")
	put(t, pa, "color", "red", "size", "1")
	syncAll(t, a, b)
	pb := page(t, b, "notes", "inbox")
	if pb.Name() != "inbox" {
		t.Errorf("the page came as %q", pb.Name())
	}
	wantContent(t, pb, map[string]string{"color": "red", "size": "1"})
	put(t, pa, "color", "green")
	id := put(t, pb, "size", "2")
	syncAll(t, a, b, a)
	want := map[string]string{"color": "green", "size": "2"}
	wantContent(t, pa, want)
	wantContent(t, pb, want)
	must(t, pb.WaitSynced(t.Context(), id))
	ha, err := pa.Heads(t.Context())
	must(t, err)
	hb, err := pb.Heads(t.Context())
	must(t, err)
	if diff := cmp.Diff(ha, hb); diff != "" || len(ha) != 1 {
		t.Errorf("heads differ (-a +b):\n%s", diff)
	}
	if s := syncState(pa); s.Unsynced != 0 || s.Position == 0 || s.Upload != ledger.SyncIdle {
		t.Errorf("state %+v", s)
	}
	checkClean(t, a)
	checkClean(t, b)
}

func TestDevicesMeetInTheBackground(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	o.Sync.Manual = false
	a, b := w.device(o), w.device(o)
	pa, pb := page(t, a, "notes", "inbox"), page(t, b, "notes", "inbox")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for i, p := range []*ledger.Page{pa, pb} {
		must(t, p.WaitSynced(ctx, put(t, p, string(key(i)), "v")))
	}
	for _, p := range []*ledger.Page{pa, pb} {
		for n, err := range p.Watch(ctx, &ledger.WatchOptions{From: oldestCommit(t, p)}) {
			must(t, err)
			if c := pageContent(t, p); len(c) == 2 {
				break
			}
			_ = n
		}
	}
	states := 0
	for s, err := range a.WatchSync(ctx) {
		must(t, err)
		if states++; len(s) == 1 && s[0].Unsynced == 0 && !s[0].LastSuccess.IsZero() {
			break
		}
	}
	must(t, a.PauseSync(ctx, true))
	if info, _ := a.Cloud(); !info.Paused || !slices.ContainsFunc(a.SyncStates(), func(s ledger.SyncState) bool { return s.Paused }) {
		t.Errorf("no pause: %+v %+v", info, a.SyncStates())
	}
	must(t, a.PauseSync(ctx, false))
	closeIt(t, a)
	for _, err := range a.WatchSync(ctx) {
		wantErr(t, err, ledger.ErrClosed)
	}
}

func oldestCommit(t testing.TB, p *ledger.Page) (id ledger.CommitID) {
	t.Helper()
	for c, err := range p.Log(t.Context()) {
		must(t, err)
		id = c.ID
	}
	return id
}

// TestLazyValues reads what is only in the cloud: wholly, by range, without a network, and while
// the page closes.
func TestLazyValues(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	long := pseudo(1, 3<<20)
	update(t, page(t, a, "films", "f"), func(tx *ledger.Tx) error {
		return errors.Join(
			tx.PutReader(t.Context(), []byte("one"), bytes.NewReader(long), -1, ledger.Lazy),
			tx.PutReader(t.Context(), []byte("two"), bytes.NewReader(pseudo(2, 2<<20)), -1, ledger.Lazy),
		)
	})
	syncAll(t, a, b)
	p := page(t, b, "films", "f")
	down := admin.Metrics(b).Down
	if down > 1<<20 {
		t.Errorf("%d bytes came down with the commit", down)
	}
	w.offline(true)
	if _, err := get(t, p, "one"); !errors.Is(err, ledger.ErrNetwork) {
		t.Errorf("read without network: %v", err)
	}
	w.offline(false)
	must(t, p.View(t.Context(), func(s *ledger.Snapshot) error {
		v, err := s.Open(t.Context(), []byte("one"))
		if err != nil {
			return err
		}
		part := make([]byte, 1000)
		_, err = v.ReadAt(part, 1<<20)
		if !bytes.Equal(part, long[1<<20:1<<20+1000]) {
			t.Error("a range has other bytes")
		}
		return errors.Join(err, v.Close())
	}))
	if n := admin.Metrics(b).Down - down; n > 1<<20 {
		t.Errorf("%d bytes came down for a range of 1000", n)
	}
	s, err := p.Snapshot(t.Context())
	must(t, err)
	r, err := s.Prefetch(t.Context(), []byte("o"), nil)
	must(t, s.Close())
	if err != nil || r.Values != 1 || r.Bytes == 0 {
		t.Fatalf("prefetch: %+v, %v", r, err)
	}
	w.offline(true)
	if got, err := get(t, p, "one"); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes after prefetch, %v", len(got), err)
	}
}

// stalledBucket does not answer gets while it is stalled.
type stalledBucket struct {
	bucket.Bucket
	stalled *atomic.Bool
	asked   chan struct{}
}

func (b stalledBucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if b.stalled.Load() {
		b.asked <- struct{}{}
		<-ctx.Done()
		return bucket.Object{}, bucket.NewError(ctx, bucket.OpGet, name, false, ctx.Err())
	}
	return b.Bucket.Get(ctx, name, off, n)
}

// TestReadsThatHang reads lazy values from a bucket that does not answer: they end with their
// context, or with their page.
func TestReadsThatHang(t *testing.T) {
	w := newCloudWorld(t)
	var stalled atomic.Bool
	asked := make(chan struct{}, 1000)
	w.wrap = func(b bucket.Bucket) bucket.Bucket { return stalledBucket{b, &stalled, asked} }
	a, b := w.device(w.options()), w.device(w.options())
	update(t, page(t, a, "films", "f"), func(tx *ledger.Tx) error {
		return tx.PutReader(t.Context(), []byte("one"), bytes.NewReader(pseudo(1, 3<<20)), -1, ledger.Lazy)
	})
	syncAll(t, a, b)
	p := page(t, b, "films", "f")
	stalled.Store(true)
	read := make(chan error, 1)
	begin := func(ctx context.Context) {
		go func() {
			_, err := getWithin(ctx, p, "one")
			read <- err
		}()
		<-asked
	}
	ctx, cancel := context.WithCancel(t.Context())
	begin(ctx)
	cancel()
	wantErr(t, <-read, context.Canceled)
	begin(testContext)
	closeIt(t, p)
	wantErr(t, <-read, ledger.ErrClosed)
}

func get(t testing.TB, p *ledger.Page, k string) ([]byte, error) {
	t.Helper()
	return getWithin(t.Context(), p, k)
}

func getWithin(ctx context.Context, p *ledger.Page, k string) (v []byte, err error) {
	err = p.View(ctx, func(s *ledger.Snapshot) error {
		v, err = s.Get(ctx, []byte(k))
		return err
	})
	return v, err
}

func TestSetCloudRefuses(t *testing.T) {
	w := newCloudWorld(t)
	r := open(t, "", w.options())
	other := filepath.Join(t.TempDir(), "other")
	must(t, keys.CreateFile(other, nil))
	for name, o := range map[string]*ledger.Cloud{
		"no key":       {URL: "mem:x"},
		"two keys":     {URL: "mem:x", KeyFile: w.key, Plaintext: true},
		"no URL":       {KeyFile: w.key},
		"long URL":     {URL: "mem:" + string(bytes.Repeat([]byte("x"), 5000)), KeyFile: w.key},
		"other scheme": {URL: "gs://bucket", KeyFile: w.key},
		"no key file":  {URL: "mem:x", KeyFile: other + "x"},
	} {
		if _, err := r.SetCloud(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if len(w.bucket.Names()) != 0 {
		t.Errorf("objects were made: %q", w.bucket.Names())
	}
	w.device(w.options())
	for name, o := range map[string]*ledger.Cloud{
		"other key":  {URL: "mem:x", KeyFile: other},
		"passphrase": {URL: "mem:x", Passphrase: []byte("abc")},
		"plaintext":  {URL: "mem:x", Plaintext: true},
	} {
		_, err := r.SetCloud(t.Context(), o)
		if wantErr(t, err, ledger.ErrWrongKey); ledger.KindOf(err) != ledger.KindPermission {
			t.Errorf("%s: kind %d", name, ledger.KindOf(err))
		}
	}
	if info, ok := r.Cloud(); ok {
		t.Errorf("there is a cloud: %+v", info)
	}
	_, err := r.Sync(t.Context())
	wantErr(t, err, ledger.ErrNoCloud)
}

// TestSetCloudProvesTheBucket refuses a bucket that overwrites what is there.
func TestSetCloudProvesTheBucket(t *testing.T) {
	for _, liar := range buckettest.Liars()[:3] {
		t.Run(liar.Name, func(t *testing.T) {
			w := newCloudWorld(t)
			w.wrap = liar.Wrap
			_, err := open(t, "", w.options()).SetCloud(t.Context(), w.cloud())
			wantErr(t, err, ledger.ErrUnsupported)
			if slices.Contains(w.bucket.Names(), wire.FirstRing) {
				t.Error("keys were made in it")
			}
		})
	}
}

// TestEqualContentMeets has values that were cut with different secrets before, and with the
// bucket's after.
func TestEqualContentMeets(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	long := string(pseudo(3, 1<<20))
	put(t, page(t, a, "l", "p"), "k", long)
	put(t, page(t, b, "l", "p"), "k", long)
	roots := map[string]bool{}
	for _, r := range []*ledger.Repository{a, b} {
		h, err := page(t, r, "l", "p").Heads(t.Context())
		must(t, err)
		roots[h[0].Root] = true
	}
	if len(roots) != 1 {
		t.Error("equal content has different roots on two devices of one bucket")
	}
}

// TestCloudIsRemembered opens a repository again: without the network, without its key, as a copy,
// and with a damaged file.
func TestCloudIsRemembered(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	o.InMemory = false
	dir := filepath.Join(t.TempDir(), "r")
	r := open(t, dir, o)
	put(t, page(t, r, "l", "p"), "k", "v")
	before, err := r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	if !before.Founded {
		t.Error("the bucket was there before")
	}
	before.Founded = false // by the process that comes
	syncAll(t, r)
	closeIt(t, r)

	w.offline(true)
	r = open(t, dir, o)
	if after, _ := r.Cloud(); !cmp.Equal(before, after) {
		t.Errorf("the cloud is %+v, was %+v", after, before)
	}
	put(t, page(t, r, "l", "p"), "k", "offline")
	_, err = r.Sync(t.Context())
	wantErr(t, err, ledger.ErrNetwork)
	s, err := admin.Status(t.Context(), r)
	must(t, err)
	if s.Cloud == nil || s.Cloud.LastSuccess.IsZero() || s.Cloud.A == 0 || s.Cloud.OldestUnsynced.IsZero() || s.Pages[0].Sync.Position != 1 {
		t.Errorf("status %+v %+v", s.Cloud, s.Pages)
	}
	closeIt(t, r)
	w.offline(false)

	must(t, os.Rename(w.key, w.key+"x"))
	r = open(t, dir, o)
	_, err = r.Sync(t.Context())
	wantErr(t, err, fs.ErrNotExist)
	if info, ok := r.Cloud(); !ok || info.Err == nil {
		t.Errorf("cloud %+v says nothing of its key", info)
	}
	must(t, os.Rename(w.key+"x", w.key))
	syncAll(t, r)
	closeIt(t, r)

	copied := dir + "-copy"
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	r = open(t, copied, o)
	if info, _ := r.Cloud(); info.Device == before.Device || info.BucketID != before.BucketID {
		t.Errorf("a copied directory has the cloud %+v", info)
	}
	syncAll(t, r)
	closeIt(t, r)

	file := filepath.Join(copied, "1", "cloud")
	b, err := os.ReadFile(file)
	must(t, err)
	b[len(b)/2] ^= 1
	must(t, os.WriteFile(file, b, 0o600))
	r = open(t, copied, o)
	put(t, page(t, r, "l", "p"), "k", "still")
	_, err = r.Sync(t.Context())
	wantErr(t, err, ledger.ErrCorrupt)
	_, err = r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	syncAll(t, r)
	closeIt(t, r)
	noSecret(t, dir, w.key)
}

// noSecret wants no key in the files of a repository.
func noSecret(t *testing.T, dir, keyFile string) {
	text, err := os.ReadFile(keyFile)
	must(t, err)
	secret := bytes.Split(text, []byte("\n"))[1]
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, secret) {
			t.Errorf("%s has the key", path)
		}
		return err
	}))
}

// TestReadOnlyAsksNobody reads a repository with a cloud that is open for reading.
func TestReadOnlyAsksNobody(t *testing.T) {
	w := newCloudWorld(t)
	a := w.device(w.options())
	update(t, page(t, a, "films", "f"), func(tx *ledger.Tx) error {
		return tx.PutReader(t.Context(), []byte("one"), bytes.NewReader(pseudo(1, 3<<20)), -1, ledger.Lazy)
	})
	syncAll(t, a)
	o := w.options()
	o.InMemory = false
	dir := filepath.Join(t.TempDir(), "r")
	r, err := ledger.Clone(t.Context(), dir, o, w.cloud())
	must(t, err)
	pages, err := r.Sync(t.Context())
	must(t, err)
	if len(pages) != 1 || !pages[0].Created || pages[0].Name != "f" {
		t.Errorf("cloned %+v", pages)
	}
	closeIt(t, r)
	o.ReadOnly = true
	r = open(t, dir, o)
	w.offline(true)
	p := page(t, r, "films", "f")
	_, err = get(t, p, "one")
	wantErr(t, err, ledger.ErrNeedsFetch)
	_, err = r.Sync(t.Context())
	wantErr(t, err, ledger.ErrReadOnly)
	wantErr(t, errorOf(r.SetCloud(t.Context(), nil)), ledger.ErrReadOnly)
}

// TestCloneReturnsOneOrTheOther: an error, or an open repository, whose first sync may have failed.
func TestCloneReturnsOneOrTheOther(t *testing.T) {
	w := newCloudWorld(t)
	a := w.device(w.options())
	put(t, page(t, a, "l", "p"), "k", "v")
	syncAll(t, a)
	o := w.options()
	o.InMemory = false
	dir := filepath.Join(t.TempDir(), "clone")
	clone := func() (*ledger.Repository, error) { return ledger.Clone(t.Context(), dir, o, w.cloud()) }

	w.offline(true)
	r, err := clone()
	wantErr(t, err, ledger.ErrNetwork)
	if r != nil {
		t.Errorf("an error and %v", r)
	}
	w.bucket.SetBefore(func(_ bucket.Op, name string) error { // the keyring can be read, and no page
		if strings.HasPrefix(name, wire.KeysPrefix) {
			return nil
		}
		return &bucket.Error{Class: bucket.ClassOther, Err: base.ErrNetwork}
	})
	r, err = clone()
	must(t, err)
	_, err = r.Sync(t.Context())
	wantErr(t, err, ledger.ErrNetwork)
	closeIt(t, r)
	w.offline(false)
	r, err = clone() // it goes on
	must(t, err)
	_, err = r.Sync(t.Context())
	must(t, err)
	wantContent(t, page(t, r, "l", "p"), map[string]string{"k": "v"})
	closeIt(t, r)
}

// TestBadPageKeepsNoOther damages the log of one of two pages in the bucket.
func TestBadPageKeepsNoOther(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	for i, name := range []string{"one", "two"} {
		put(t, page(t, a, "l", name), "k", "v")
		if i == 0 {
			syncAll(t, a)
			for _, n := range w.bucket.Names() {
				if c, ok := w.bucket.Content(n); ok && bytes.Contains([]byte(n), []byte("/log/")) {
					c[len(c)/2] ^= 1
					w.bucket.Replace(n, c)
				}
			}
		}
	}
	if _, err := a.Sync(t.Context(), ledger.PageRef{Ledger: "l", ID: ledger.DerivePageID("l", "two")}); err != nil {
		t.Fatal(err)
	}
	done, err := b.Sync(t.Context())
	wantErr(t, err, ledger.ErrCorrupt)
	if len(done) != 2 {
		t.Fatalf("tried %+v", done)
	}
	for _, d := range done {
		if (d.Err != nil) != (d.Name == "one") {
			t.Errorf("page %s: %v", d.Name, d.Err)
		}
	}
	wantContent(t, page(t, b, "l", "two"), map[string]string{"k": "v"})
	_, err = b.Sync(t.Context(), ledger.PageRef{Ledger: "l", ID: ledger.DerivePageID("l", "three")})
	wantErr(t, err, ledger.ErrNotFound)
}
