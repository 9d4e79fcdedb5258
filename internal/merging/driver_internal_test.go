package merging

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handClock is a clock whose timers end when the test says so. Short ones, with which commits wait
// for each other, end at once.
type handClock struct {
	clock.Clock
	timers chan handTimer
}

type handTimer struct {
	d    time.Duration
	fire chan time.Time
}

func (c *handClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := handTimer{d, make(chan time.Time, 1)}
	if d < minBackoff/2 {
		t.fire <- time.Time{}
		return t.fire, func() {}
	}
	c.timers <- t
	return t.fire, func() {}
}

// world is a page in memory with a session and a driver without jitter.
type world struct {
	t      *testing.T
	store  *storage.Store
	page   *session.Page
	driver *Driver
	clock  *handClock
	rules  Rules
}

func newWorld(t *testing.T, automatic bool) *world {
	w := &world{t: t, clock: &handClock{clock.System, make(chan handTimer, 100)}}
	o := storage.Options{FS: vfs.NewMem(), Dir: "/page", MemoryIndex: index.NewMemory(), Clock: w.clock}
	check(t, storage.Create(t.Context(), o))
	var err error
	w.store, err = storage.Open(t.Context(), o)
	check(t, err)
	table := split.NewTable(make([]byte, 32))
	env := &session.Env{
		Store: w.store, Clock: w.clock, Logger: slog.New(slog.DiscardHandler), JournalBytes: 1 << 20, Table: func() *split.Table { return table },
		Note: func(error) {}, WantMerge: func() { w.driver.Want(false) }, HasCloud: func() bool { return false },
	}
	w.driver = New(Env{
		Session: env, Automatic: automatic, Jitter: func() uint64 { return 0 }, Rules: func() Rules { return w.rules },
		Fetch:  func(context.Context, commit.ID) error { return base.ErrNoCloud },
		Merged: func(merge.Merged, time.Duration) {}, Failed: func(error) {},
	})
	w.page = session.New(env)
	t.Cleanup(func() {
		w.page.Close()
		w.driver.Close()
		check(t, w.store.Close())
	})
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) put(on commit.ID, key, value string) commit.ID {
	w.t.Helper()
	tx, err := w.page.Begin(w.t.Context(), on, false)
	check(w.t, err)
	check(w.t, tx.Put(w.t.Context(), []byte(key), []byte(value), object.Eager))
	id, err := tx.Commit(w.t.Context())
	check(w.t, err)
	return id
}

func (w *world) commit(id commit.ID) *commit.Commit {
	w.t.Helper()
	c, err := w.store.Commit(w.t.Context(), id)
	check(w.t, err)
	return c
}

// merge adds a merge commit with the content of a.
func (w *world) merge(a, b commit.ID) commit.ID {
	w.t.Helper()
	c, err := commit.NewMerge(w.commit(a).Root, w.commit(a), w.commit(b))
	check(w.t, err)
	pending, err := w.store.Submit(w.t.Context(), nil, c)
	check(w.t, err)
	check(w.t, pending.Wait())
	return c.ID
}

// computed returns a run that has merged two heads and not submitted that.
func (w *world) computed(rules Rules) (r *run, left, right commit.ID) {
	w.t.Helper()
	on := w.put(commit.ID{}, "k", "0")
	left, right = w.put(on, "k", "1"), w.put(on, "k", "2")
	r = &run{m: w.driver, rules: rules}
	w.t.Cleanup(r.rollback)
	r.begin()
	check(w.t, r.take(w.t.Context(), w.store.Heads()))
	check(w.t, r.compute(w.t.Context()))
	return r, left, right
}

func sorted(ids ...commit.ID) []commit.ID {
	slices.SortFunc(ids, commit.ID.Compare)
	return ids
}

// A merge that finds the page changed is made anew while nobody can commit, so that it catches up
// with a busy page; but not with code of the app, for which the writers would have to wait.
func TestMergesCatchUp(t *testing.T) {
	app := Rules{{Strategy: Strategy{Name: "mine", Value: func(_, _, right []byte) ([]byte, bool) { return right, true }}}}
	builtIn := Rules{{Strategy: Strategy{Decider: merge.ByValue{Name: "counter", Rule: merge.Counter, Equal: true}}}}
	for i, rules := range []Rules{nil, builtIn, app} {
		want := 1 + i/2 // two heads for the app's code
		w := newWorld(t, false)
		r, left, right := w.computed(rules)
		newer := w.put(left, "other", "")
		pending, err := r.submit(t.Context())
		check(t, err)
		check(t, pending.Wait())
		if n := len(w.store.Heads()); n != want {
			t.Errorf("%d heads, want %d", n, want)
		}
		if c := r.merged[0].Commit; want == 1 && !slices.Equal(c.Parents, sorted(newer, right)) {
			t.Errorf("the merge is %+v", c)
		}
	}
}

func TestMergesThatCameTooLate(t *testing.T) {
	w := newWorld(t, false)
	r, _, _ := w.computed(nil)
	if _, err := w.driver.Merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pending, err := r.submit(t.Context()); pending != nil || err != nil {
		t.Errorf("nothing is left to be done: got %v, %v", pending, err)
	}
	r, _, _ = w.computed(nil)
	run, done := w.driver.beginRun(t.Context())
	defer done()
	w.driver.RulesChanged()
	if _, err := r.submit(run); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(run), errRulesChanged) {
		t.Errorf("got %v, caused by %v", err, context.Cause(run))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.submit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := len(w.store.Heads()); n != 2 {
		t.Errorf("%d heads", n)
	}
}

// Merges that came from elsewhere are left alone for a while: their devices may be about to merge
// them too.
func TestMergesOfOthersAreMergedLater(t *testing.T) {
	w := newWorld(t, true)
	on := w.put(commit.ID{}, "k", "0")
	w.driver.env.Automatic = false // as if the commits came all at once
	a, b := w.put(on, "k", "a"), w.put(on, "k", "b")
	x, y := w.merge(a, b), w.merge(b, a)
	for last, want := range map[time.Duration]time.Duration{0: minBackoff, minBackoff: 2 * minBackoff, maxBackoff: maxBackoff} {
		w.driver.remote = true
		if d := w.driver.hesitation(last); d != want {
			t.Errorf("merged after %s, want %s", d, want)
		}
	}
	w.driver.env.Automatic = true
	w.driver.Want(true)
	timer := <-w.clock.timers
	if want := minBackoff / 2; timer.d != want {
		t.Errorf("merged after %s, want %s", timer.d, want)
	}
	timer.fire <- time.Time{}
	check(t, w.driver.Wait(t.Context()))
	heads := w.store.Heads()
	greater := sorted(x, y)[1] // the merges have equal timestamps
	if len(heads) != 1 || !slices.Equal(sorted(x, y), heads[0].Parents) || heads[0].Root != w.commit(greater).Root {
		t.Fatalf("heads %+v", heads)
	}
	w.put(heads[0].ID, "k", "own")
	if w.driver.hesitation(minBackoff) != 0 {
		t.Error("a usual commit waits")
	}
}
