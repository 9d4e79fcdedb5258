package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// collectWorld is a repository whose rounds of collection begin when the test says so.
type collectWorld struct {
	t *testing.T
	*handClock
	r      *Repository
	events chan Event
	timer  handTimer
}

// Observe is for Options.
func (w *collectWorld) Observe(e Event) {
	if e.Kind == EventCollect {
		w.events <- e
	}
}

func newCollectWorld(t *testing.T, o Options) *collectWorld {
	t.Helper()
	w := &collectWorld{t: t, handClock: &handClock{clock.System, make(chan handTimer, 100)}, events: make(chan Event, 10000)}
	o.Observe = w.Observe
	o.ManualMerge, o.Sync.Manual = true, true
	o.Collection.Time = time.Hour // of the machine: the steps are counted here
	r, err := openHand(t.Context(), w.handClock, o)
	check(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	w.r = r
	if !o.Collection.Off {
		w.timer = <-w.timers
	}
	return w
}

// round has a round run and waits for its end.
func (w *collectWorld) round() {
	w.timer.fire <- time.Time{}
	w.timer = <-w.timers
}

func (w *collectWorld) page(name string) *Page {
	w.t.Helper()
	p, err := w.r.Page(w.t.Context(), "l", name)
	check(w.t, err)
	return p
}

var errGiveUp = errors.New("given up")

// giveUp leaves pieces of a transaction that was rolled back.
func (w *collectWorld) giveUp(p *Page, sizeBytes int) {
	w.t.Helper()
	content := make([]byte, sizeBytes)
	rng := rand.NewChaCha8([32]byte{byte(sizeBytes), byte(sizeBytes >> 8), byte(sizeBytes >> 16)})
	_, _ = rng.Read(content) // never fails
	_, err := p.Update(w.t.Context(), func(tx *Tx) error {
		if err := tx.PutReader(w.t.Context(), []byte("long"), bytes.NewReader(content), int64(sizeBytes), Eager); err != nil {
			return err
		}
		return errGiveUp
	})
	if !errors.Is(err, errGiveUp) {
		w.t.Fatal(err)
	}
}

func (w *collectWorld) state(p *Page) reclaim.Garbage { return p.shared.collector.Garbage() }

func (w *collectWorld) garbage() int64 {
	w.t.Helper()
	_, n, err := admin.Usage(w.t.Context(), w.r)
	check(w.t, err)
	return n
}

// TestGarbageGoesByItself: what a transaction that was rolled back has left, and what pruned
// commits alone have reached, goes with the next round, from pages that are open.
func TestGarbageGoesByItself(t *testing.T) {
	w := newCollectWorld(t, Options{})
	p := w.page("p")
	defer p.Close()
	q := w.page("closed")
	w.giveUp(p, 9<<20)
	w.giveUp(q, 9<<20)
	check(t, q.Close())
	if n := w.garbage(); n < 8<<20 {
		t.Errorf("%d bytes of garbage wait", n)
	}
	w.round()
	if st := w.state(p); st.Due || st.Last.IsZero() || st.Pieces < 100 || st.Bytes < 4<<20 || st.Err != nil {
		t.Errorf("after a round: %+v", st)
	}
	if n := w.garbage(); n < 4<<20 || n > 10<<20 {
		t.Errorf("%d bytes of garbage wait in the page that is closed", n)
	}
	sum := int64(0)
	for len(w.events) > 0 {
		e := <-w.events
		if sum += e.Bytes; e.Page != p.Ref().ID || e.Changes == 0 {
			t.Errorf("event %+v", e)
		}
	}
	if sum != w.state(p).Bytes {
		t.Errorf("events tell of %d bytes", sum)
	}

	// Nothing happens in a page where nothing has.
	last := w.state(p).Last
	w.round()
	if st := w.state(p); !st.Last.Equal(last) {
		t.Error("a page was looked through again for nothing")
	}

	// History that is given up, but for what somebody reads.
	for i := range 20 {
		_, err := p.Update(t.Context(), func(tx *Tx) error { return tx.Put(t.Context(), []byte("k"), fmt.Appendf(nil, "%d", i)) })
		check(t, err)
	}
	w.round()
	if st := w.state(p); !st.Last.Equal(last) {
		t.Error("commits are taken for garbage")
	}
	old, err := p.At(t.Context(), CommitID(p.store.Heads()[0].Parents[0]))
	check(t, err)
	_, err = admin.Collect(t.Context(), w.r, &gc.Policy{Commits: 1}, true)
	check(t, err)
	var ids []commit.ID
	for c, err := range commit.Walk(t.Context(), p.store, []commit.ID{p.store.Heads()[0].ID}) {
		check(t, err)
		ids = append(ids, c.ID)
	}
	if _, err := p.store.Prune(t.Context(), ids); !errors.Is(err, ErrConflict) {
		t.Fatal(err)
	}
	if !w.state(p).Due {
		t.Error("pruning leaves nothing to do")
	}
	was := w.state(p).Nodes
	w.round()
	if st := w.state(p); st.Nodes < was+10 || st.Due {
		t.Errorf("after pruning: %+v", st)
	}
	v, err := old.Get(t.Context(), []byte("k"))
	if err != nil || string(v) != "18" {
		t.Errorf("a snapshot reads %q, %v", v, err)
	}
	check(t, old.Close())
}

// TestRoundsAreBounded: a round deletes as much as it may and to the step more, and pages take
// turns.
func TestRoundsAreBounded(t *testing.T) {
	w := newCollectWorld(t, Options{Collection: CollectionOptions{Bytes: 1, NoCompact: true}})
	var pages []*Page
	for i := range 3 {
		p := w.page(fmt.Sprint(i))
		defer p.Close()
		w.giveUp(p, 40<<20+i)
		pages = append(pages, p)
	}
	rounds := 0
	for {
		due := slices.DeleteFunc(slices.Clone(pages), func(p *Page) bool { return !w.state(p).Due })
		if len(due) == 0 {
			break
		}
		if rounds++; rounds > 60 {
			t.Fatal("it does not come to an end")
		}
		w.round()
		if rounds == 3 {
			for _, p := range pages {
				if w.state(p).Bytes == 0 {
					t.Errorf("page %s had no turn", p.Name())
				}
			}
		}
		if len(w.events) > 1 {
			t.Errorf("%d deletions in a round", len(w.events))
		}
		for len(w.events) > 0 {
			if e := <-w.events; e.Changes > 1024 {
				t.Errorf("event %+v", e)
			}
		}
	}
	if rounds < 6 || w.garbage() != 0 {
		t.Errorf("%d rounds, %d bytes left", rounds, w.garbage())
	}
}

// TestCollectionIsOff has no goroutine that asks for time.
func TestCollectionIsOff(t *testing.T) {
	w := newCollectWorld(t, Options{Collection: CollectionOptions{Off: true}})
	if len(w.timers) != 0 {
		t.Error("somebody waits for a round")
	}
	for _, o := range []CollectionOptions{{Interval: -1}, {Time: -1}, {Bytes: -1}} {
		if err := (&Options{Collection: o}).validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestCollectingBesideAll has pages opened, written, collected on request and closed while rounds
// follow each other at once: what was committed is there.
func TestCollectingBesideAll(t *testing.T) {
	o := &Options{InMemory: true, Collection: CollectionOptions{Interval: 1, Time: time.Hour}}
	o.ManualMerge = true
	r, err := Open(t.Context(), "", o)
	check(t, err)
	const writers, rounds = 3, 12
	long := bytes.Repeat([]byte("0123456789abcdef"), 6<<20/16)
	write := func(n int) error {
		ctx := t.Context()
		for i := range rounds {
			p, err := r.Page(ctx, "l", "p")
			if err != nil {
				return err
			}
			_, err = p.Update(ctx, func(tx *Tx) error {
				return tx.Put(ctx, fmt.Appendf(nil, "%d %d", n, i), bytes.Repeat([]byte{byte(i)}, 3000))
			})
			if err == nil && i%6 == n {
				_, err = p.Update(ctx, func(tx *Tx) error {
					return cmpErr(tx.PutReader(ctx, fmt.Appendf(nil, "long %d", n), bytes.NewReader(long[n:]), int64(len(long)-n), Eager), errGiveUp)
				})
				if errors.Is(err, errGiveUp) {
					err = nil
				}
			}
			if err == nil && i%4 == 3 {
				_, err = admin.Collect(ctx, r, nil, false)
			}
			if err = errors.Join(err, p.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			if err := write(n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p, err := r.Page(t.Context(), "l", "p")
	check(t, err)
	check(t, p.View(t.Context(), func(s *Snapshot) error {
		for n := range writers {
			for i := range rounds {
				if v, err := s.Get(context.Background(), fmt.Appendf(nil, "%d %d", n, i)); err != nil || len(v) != 3000 || v[0] != byte(i) {
					t.Errorf("%d %d: %d bytes, %v", n, i, len(v), err)
				}
			}
		}
		return nil
	}))
	rep, err := p.store.Check(t.Context(), storage.CheckOptions{})
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("check: %v, %v", rep.Problems, err)
	}
	check(t, p.Close())
	check(t, r.Close())
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// TestFilesShrinkByThemselves: when much of a page was garbage its files are compacted, what that
// writes counts as work of further rounds, and an option leaves it.
func TestFilesShrinkByThemselves(t *testing.T) {
	for _, off := range []bool{false, true} {
		w := newCollectWorld(t, Options{SegmentBytes: 1 << 20, Collection: CollectionOptions{Bytes: 1 << 20, NoCompact: off}})
		p := w.page("p")
		defer p.Close()
		_, err := p.Update(t.Context(), func(tx *Tx) error { return tx.Put(t.Context(), []byte("k"), bytes.Repeat([]byte("value"), 1000)) })
		check(t, err)
		w.giveUp(p, 21<<20)
		size := func() int64 {
			n, err := w.r.disk.PageSize(p.shared.key)
			check(t, err)
			return n
		}
		was, rounds := size(), 0
		for ; w.state(p).Due; rounds++ {
			if w.round(); rounds > 200 {
				t.Fatal("it does not come to an end")
			}
		}
		if now := size(); (now < was/2) == off || rounds < 2 {
			t.Errorf("off: %v; %d bytes became %d in %d rounds", off, was, now, rounds)
		}
		check(t, hasValue(p))
	}
}

// hasValue reports whether the page has the value that a test has put.
func hasValue(p *Page) error {
	return p.View(context.Background(), func(s *Snapshot) error {
		v, err := s.Get(context.Background(), []byte("k"))
		if err == nil && len(v) != 5000 {
			err = fmt.Errorf("%d bytes", len(v))
		}
		return err
	})
}

// collectNow gives all history up that may go, and collects everything.
func collectNow(ctx context.Context, r *Repository) error {
	var keep *gc.Policy
	if _, ok := r.Cloud(); !ok {
		keep = &gc.Policy{Commits: 1}
	}
	_, err := admin.Collect(ctx, r, keep, false)
	return err
}

// TestCollectWhileSomethingRuns collects in the midst of a transaction, of a merge, of an upload
// and of a download: what they have in hand stays.
func TestCollectWhileSomethingRuns(t *testing.T) {
	ctx := t.Context()
	content := func(n byte) []byte {
		b := make([]byte, 6<<20)
		_, _ = rand.NewChaCha8([32]byte{n}).Read(b) // never fails
		return b
	}
	wantLong := func(t *testing.T, p *Page, key string, n byte) {
		t.Helper()
		check(t, p.View(ctx, func(s *Snapshot) error {
			v, err := s.Get(ctx, []byte(key))
			if err == nil && !bytes.Equal(v, content(n)) {
				err = fmt.Errorf("%q has other content", key)
			}
			return err
		}))
		rep, err := p.store.Check(ctx, storage.CheckOptions{})
		if err != nil || len(rep.Problems) > 0 {
			t.Errorf("check: %v, %v", rep.Problems, err)
		}
	}
	putLong := func(tx *Tx, key string, n byte) error {
		return tx.PutReader(ctx, []byte(key), bytes.NewReader(content(n)), -1, Eager)
	}
	page := func(t *testing.T, o *Options) (*Repository, *Page) {
		o.InMemory, o.ManualMerge = true, true
		r, err := Open(ctx, "", o)
		check(t, err)
		t.Cleanup(func() { check(t, r.Close()) })
		p, err := openIt(ctx, r)
		check(t, err)
		return r, p
	}

	t.Run("transaction", func(t *testing.T) {
		r, p := page(t, &Options{})
		_, err := p.Update(ctx, func(tx *Tx) error { return putLong(tx, "old", 1) })
		check(t, err)
		tx, err := p.Begin(ctx, nil)
		check(t, err)
		check(t, putLong(tx, "new", 2))
		check(t, tx.Delete(ctx, []byte("old")))
		check(t, collectNow(ctx, r))
		check(t, putLong(tx, "again", 1)) // the same pieces, which are there still
		_, err = p.Update(ctx, func(tx *Tx) error { return tx.Delete(ctx, []byte("old")) })
		check(t, err)
		check(t, collectNow(ctx, r))
		_, err = tx.Commit(ctx)
		check(t, err)
		_, err = p.Merge(ctx)
		check(t, err)
		check(t, collectNow(ctx, r))
		_, err = p.Refresh(ctx)
		check(t, err)
		wantLong(t, p, "new", 2)
		wantLong(t, p, "again", 1)
	})

	t.Run("merge", func(t *testing.T) {
		var r *Repository
		asked := 0
		inner := Resolver(func(ctx context.Context, c *MergeConflict) (Resolution, error) {
			asked++
			return Resolution{Take: TakeLeft}, collectNow(ctx, r)
		})
		o := &Options{}
		o.MergeRules = func(string, PageID) []MergeRule { return []MergeRule{{Strategy: Automatic(inner)}} }
		var p *Page
		r, p = page(t, o)
		base, err := p.Update(ctx, func(tx *Tx) error { return putLong(tx, "k", 1) })
		check(t, err)
		for n := byte(2); n < 4; n++ {
			tx, err := p.Begin(ctx, &TxOptions{Base: base})
			check(t, err)
			check(t, putLong(tx, "k", n))
			check(t, putLong(tx, fmt.Sprint(n), n))
			_, err = tx.Commit(ctx)
			check(t, err)
		}
		_, err = p.Merge(ctx)
		check(t, err)
		_, err = p.Refresh(ctx)
		check(t, err)
		check(t, collectNow(ctx, r))
		if asked == 0 {
			t.Error("the resolver was not asked")
		}
		wantLong(t, p, "k", 2)
		wantLong(t, p, "2", 2)
		wantLong(t, p, "3", 3)
	})

	t.Run("sync", func(t *testing.T) {
		w := newEvictWorld(t)
		r, _ := w.device(w.mem)
		p := w.page(r)
		defer p.Close()
		_, err := p.Update(ctx, func(tx *Tx) error { return putLong(tx, "one", 1) })
		check(t, err)
		_, err = p.Update(ctx, func(tx *Tx) error { return errors.Join(putLong(tx, "two", 2), tx.Delete(ctx, []byte("one"))) })
		check(t, err)
		collect := func(r *Repository) (calls *int) {
			calls = new(int)
			var inside sync.Mutex
			w.bucket.SetBefore(func(bucket.Op, string) error {
				inside.Lock()
				defer inside.Unlock()
				if *calls++; *calls > 20 {
					return nil
				}
				return collectNow(ctx, r)
			})
			return calls
		}
		up := collect(r)
		check(t, p.Sync(ctx))
		w.bucket.SetBefore(nil)
		other, err := w.open(vfstest.NewMem())
		check(t, err)
		defer other.Close()
		_, err = other.SetCloud(ctx, &Cloud{URL: "mem:x", KeyFile: w.key})
		check(t, err)
		q := w.page(other)
		defer q.Close()
		down := collect(other)
		check(t, q.Sync(ctx))
		w.bucket.SetBefore(nil)
		if *up < 3 || *down < 3 {
			t.Errorf("collected %d and %d times", *up, *down)
		}
		for _, p := range []*Page{p, q} {
			wantLong(t, p, "two", 2)
			old, err := p.At(ctx, CommitID(p.store.Heads()[0].Parents[0]))
			check(t, err)
			v, err := old.Get(ctx, []byte("one"))
			if err != nil || !bytes.Equal(v, content(1)) {
				t.Errorf("the commit before: %d bytes, %v", len(v), err)
			}
			check(t, old.Close())
		}
	})
}
