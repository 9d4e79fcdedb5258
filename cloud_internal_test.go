package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// historyWorld has a bucket with a checkpoint, so that new devices know older commits as history
// only.
type historyWorld struct {
	t      *testing.T
	bucket *mem.Bucket
	key    string
}

func (w *historyWorld) device(mergeOnSync bool) *Repository {
	w.t.Helper()
	o := &Options{InMemory: true}
	o.ManualMerge = true
	o.Sync = SyncOptions{Manual: true, Merge: mergeOnSync}
	o.Buckets = map[string]bucket.Opener{
		"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return w.bucket, nil },
	}
	r, err := Open(w.t.Context(), "", o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.Close() }) // idempotent
	if _, err := r.SetCloud(w.t.Context(), &Cloud{URL: "mem:x", KeyFile: w.key}); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *historyWorld) page(r *Repository) *Page {
	w.t.Helper()
	p, err := r.Page(w.t.Context(), "l", "p")
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *historyWorld) put(p *Page, key, value string) CommitID {
	w.t.Helper()
	id, err := p.Update(w.t.Context(), func(tx *Tx) error { return tx.Put(w.t.Context(), []byte(key), []byte(value)) })
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *historyWorld) sync(p *Page) {
	w.t.Helper()
	if err := p.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestOlderTreesAreFetched has a device that began with a checkpoint read, compare, explain, undo,
// restore and merge with what it knows as history only.
func TestOlderTreesAreFetched(t *testing.T) {
	w := &historyWorld{t, mem.New(mem.Options{}), filepath.Join(t.TempDir(), "key")}
	if err := createKeyFile(w.key); err != nil {
		t.Fatal(err)
	}
	a := w.page(w.device(true))
	ids := []CommitID{w.put(a, "k", "v0")}
	w.sync(a)
	late := w.page(w.device(false)) // has the first commit only for long
	w.sync(late)
	for i := range 5 {
		ids = append(ids, w.put(a, "k", fmt.Sprint("v", i+1)))
	}
	w.sync(a)
	if err := a.shared.cloud.Do(t.Context(), func(ctx context.Context, s *cloudsync.Page) error { return s.Checkpoint(ctx) }); err != nil {
		t.Fatal(err)
	}

	fresh := func() *Page {
		n := w.page(w.device(true))
		w.sync(n)
		c, err := n.in.Commit(t.Context(), commit.ID(ids[2]))
		if err != nil {
			t.Fatal(err)
		}
		if held, err := n.store.TreeHeld(t.Context(), c); err != nil || held {
			t.Fatalf("the tree of an older commit is here: %t, %v", held, err)
		}
		return n
	}
	n := fresh()
	s, err := n.At(t.Context(), ids[2])
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get(t.Context(), []byte("k")); string(v) != "v2" || err != nil {
		t.Errorf("k was %q, %v", v, err)
	}
	_ = s.Close() // always nil

	changes := 0
	for _, err := range fresh().Diff(t.Context(), ids[1], ids[4], nil) {
		if changes++; err != nil {
			t.Error(err)
		}
	}
	steps := 0
	for _, err := range fresh().Why(t.Context(), ids[3], []byte("k")) {
		if steps++; err != nil {
			t.Error(err)
		}
	}
	if changes != 1 || steps == 0 {
		t.Errorf("%d changes, %d steps", changes, steps)
	}
	if _, err := fresh().Undo(t.Context(), ids[3], nil); err != nil {
		t.Error(err)
	}
	n = fresh()
	if _, err := n.Restore(t.Context(), ids[1], ""); err != nil {
		t.Error(err)
	}
	if old, err := fresh().At(t.Context(), ids[3]); err != nil {
		t.Error(err)
	} else {
		check(t, old.Close())
	}
	testMergeWithHistory(w, fresh(), late)
}

// testMergeWithHistory merges on a device what another one has built on a commit whose tree it does
// not have.
func testMergeWithHistory(w *historyWorld, n, late *Page) {
	w.t.Helper()
	w.put(late, "other", "late")
	w.sync(late)
	w.sync(n)
	heads, err := n.Heads(w.t.Context())
	if err != nil || len(heads) != 1 {
		w.t.Fatalf("%d heads, %v", len(heads), err)
	}
	var all []string
	err = n.View(w.t.Context(), func(s *Snapshot) error {
		for e, err := range s.Scan(w.t.Context(), ScanOptions{}) {
			if err != nil {
				return err
			}
			v, err := e.Value(w.t.Context())
			if err != nil {
				return err
			}
			all = append(all, string(e.Key)+"="+string(v))
		}
		return nil
	})
	if got := strings.Join(all, " "); err != nil || got != "k=v5 other=late" {
		w.t.Errorf("merged to %s, %v", got, err)
	}
}

// TestCloudThatCannotBeRemembered has the disk refuse the file that remembers a cloud: open pages
// go on with the one before.
func TestCloudThatCannotBeRemembered(t *testing.T) {
	ctx, boom := t.Context(), errors.New("boom")
	var armed atomic.Bool
	files := vfstest.NewFaulty(vfstest.NewMem(), func(op vfstest.Op) error {
		if armed.Load() && strings.HasSuffix(op.Name, cloudlink.FileName+".new") {
			return boom
		}
		return nil
	})
	bucketInMemory := mem.New(mem.Options{})
	openers := map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return bucketInMemory, nil }}
	r, err := openFiles(ctx, files, Options{Buckets: openers, Sync: SyncOptions{MinPoll: time.Millisecond, MaxPoll: 5 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.SetCloud(ctx, &Cloud{URL: "mem:x", Plaintext: true}); err != nil {
		t.Fatal(err)
	}
	p, err := r.Page(ctx, "l", "p")
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	if _, err := r.SetCloud(ctx, &Cloud{URL: "mem:y", Plaintext: true}); !errors.Is(err, boom) {
		t.Fatalf("set cloud: %v", err)
	}
	if info, _ := r.Cloud(); info.URL != "mem:x" {
		t.Errorf("cloud %+v", info)
	}
	if states := r.SyncStates(); len(states) != 1 {
		t.Errorf("%d pages are synced in the background", len(states))
	}
	if _, err := r.SetCloud(ctx, nil); err != nil { // which writes nothing
		t.Fatal(err)
	}
	if _, ok := r.Cloud(); ok || p.shared.cloud.State(ctx).Position != 0 {
		t.Error("there is a cloud")
	}
}

// TestRangeOfALazyValue reads ranges of 1 MiB of a value that is in the cloud: each takes two
// requests at the most, since its chunks stand in two runs of a pack, and what lists them has come
// with the commit.
func TestRangeOfALazyValue(t *testing.T) {
	const length, stride = 1 << 20, 3 << 19
	w := &historyWorld{t: t, bucket: mem.New(mem.Options{}), key: filepath.Join(t.TempDir(), "key")}
	if err := createKeyFile(w.key); err != nil {
		t.Fatal(err)
	}
	long := make([]byte, 36<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(long)
	a, b := w.device(false), w.device(false)
	if _, err := w.page(a).Update(t.Context(), func(tx *Tx) error {
		return tx.PutReader(t.Context(), []byte("film"), bytes.NewReader(long), -1, Lazy)
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Repository{a, b} {
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p := w.page(b)
	err := p.View(t.Context(), func(s *Snapshot) error {
		e, err := s.Stat(t.Context(), []byte("film"))
		if err != nil {
			return err
		}
		v, err := e.Open(t.Context())
		if err != nil {
			return err
		}
		part := make([]byte, length)
		ranges, requests := 0, int64(0)
		for at := int64(stride / 3); at+length <= int64(len(long)); at += stride {
			before := b.cloud.Metrics()
			if _, err := v.ReadAt(part, at); err != nil || !bytes.Equal(part, long[at:at+length]) {
				t.Fatalf("read other bytes at %d, %v", at, err)
			}
			after := b.cloud.Metrics()
			n, down := after.B-before.B, after.Down-before.Down
			ranges, requests = ranges+1, requests+n
			if n > 2 || down > length*3/2 {
				t.Errorf("%d requests and %d bytes for the range at %d", n, down, at)
			}
		}
		t.Logf("%d requests for %d ranges", requests, ranges)
		return v.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
