package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
)

// A merge that failed is tried again after minBackoff at first, and after maxBackoff at last.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Hour
)

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

// openFiles opens a repository in memory whose files are in fs.
func openFiles(ctx context.Context, fs vfs.FS, o Options) (*Repository, error) {
	o.InMemory = true
	m := machineOf(&o)
	m.fs = fs
	return openOn(ctx, m, "", o.withDefaults())
}

// openHand opens a repository in memory with a clock by hand. Its timers have no jitter, and a
// bucket may take as long as it likes.
func openHand(ctx context.Context, c *handClock, o Options) (*Repository, error) {
	o.InMemory = true
	m := machineOf(&o)
	m.clock, m.stall, m.jitter = c, 0, func() uint64 { return 0 }
	return openOn(ctx, m, "", o.withDefaults())
}

// onHand opens a page with a clock by hand and timers without jitter.
func onHand(t *testing.T, o Options) (*Page, *handClock) {
	t.Helper()
	c := &handClock{clock.System, make(chan handTimer, 100)}
	o.Collection.Off = true // its timer is none of those that a test waits for
	r, err := openHand(t.Context(), c, o)
	check(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	p, err := r.Page(t.Context(), "app", "page")
	check(t, err)
	return p, c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func putOn(t *testing.T, p *Page, base CommitID, key, value string) CommitID {
	t.Helper()
	tx, err := p.Begin(t.Context(), &TxOptions{Base: base})
	check(t, err)
	check(t, tx.Put(t.Context(), []byte(key), []byte(value)))
	id, err := tx.Commit(t.Context())
	check(t, err)
	return id
}

// counted is a resolver that fails until it is told otherwise.
type counted struct {
	mu    sync.Mutex
	calls int
	works bool
}

func (c *counted) Resolve(context.Context, *MergeConflict) (Resolution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.works {
		return Resolution{Take: TakeLeft}, nil
	}
	return Resolution{}, fmt.Errorf("attempt %d: %w", c.calls, errMine)
}

func (c *counted) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.works = true
}

var errMine = errors.New("my own error")

// Defect 17 of the original: what fails is tried again later and later, not at once; and who waits
// is always answered.
func TestFailedMergesBackOff(t *testing.T) {
	var r counted
	p, c := onHand(t, Options{MergeRules: func(string, PageID) []MergeRule { return []MergeRule{{Strategy: Automatic(r.Resolve)}} }})
	base := putOn(t, p, CommitID{}, "k", "0")
	putOn(t, p, base, "k", "1")
	putOn(t, p, base, "k", "2")
	want := minBackoff / 2
	for range 25 {
		timer := <-c.timers
		if timer.d != want {
			t.Fatalf("next attempt after %s, want %s", timer.d, want)
		}
		want = min(2*want, maxBackoff/2)
		timer.fire <- time.Time{}
	}
	if want != maxBackoff/2 {
		t.Errorf("the delay has not come to its greatest value: %s", want)
	}
	timer := <-c.timers
	for range 3 { // each tries, and is told what came of it
		var merr *MergeError
		if err := p.WaitForMerge(t.Context()); !errors.Is(err, errMine) || !errors.As(err, &merr) {
			t.Fatalf("got %v", err)
		}
	}
	putOn(t, p, CommitID{}, "other", "") // a new commit has it tried again too
	timer = <-c.timers
	if _, err := p.Merge(t.Context()); !errors.Is(err, errMine) {
		t.Errorf("got %v", err)
	}
	p.SetMergeRules(MergeRule{Strategy: Automatic(r.Resolve)}) // and new rules
	timer = <-c.timers
	select {
	case timer = <-c.timers:
		t.Errorf("tried again without a reason, in %s", timer.d)
	default:
	}
	r.mend()
	timer.fire <- time.Time{}
	check(t, p.WaitForMerge(t.Context()))

	// After a success the delay begins anew.
	p.SetMergeRules(MergeRule{Strategy: Automatic((&counted{}).Resolve)})
	base = putOn(t, p, CommitID{}, "k", "3")
	putOn(t, p, base, "k", "4")
	putOn(t, p, base, "k", "5")
	if timer = <-c.timers; timer.d != minBackoff/2 {
		t.Errorf("next attempt after %s, want %s", timer.d, minBackoff/2)
	}
}

func headCount(t *testing.T, p *Page) int {
	t.Helper()
	heads, err := p.Heads(t.Context())
	check(t, err)
	return len(heads)
}

// When the disk fails, the heads stay as they are, and nothing relies on what was lost.
func TestMergeOnAFailingDisk(t *testing.T) {
	boom := errors.New("boom")
	var armed atomic.Bool
	fs := vfstest.NewFaulty(vfstest.NewMem(), func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && armed.Load() {
			return boom
		}
		return nil
	})
	r, err := openFiles(t.Context(), fs, Options{ManualMerge: true})
	check(t, err)
	defer func() { check(t, r.Close()) }()
	p, err := r.Page(t.Context(), "app", "page")
	check(t, err)
	base := putOn(t, p, CommitID{}, "k", "0")
	putOn(t, p, base, "k", "1")
	putOn(t, p, base, "k", "2")
	armed.Store(true)
	var merr *MergeError
	if _, err := p.Merge(t.Context()); !errors.Is(err, boom) || !errors.As(err, &merr) {
		t.Errorf("got %v", err)
	}
	if n := headCount(t, p); n != 2 {
		t.Errorf("%d heads", n)
	}
	if _, err := p.Merge(t.Context()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("got %v", err)
	}
	_ = p.Close() // the page cannot fold any more
	armed.Store(false)
	p, err = r.Page(t.Context(), "app", "page")
	check(t, err)
	if _, err := p.Merge(t.Context()); err != nil {
		t.Error(err)
	}
	if err := admin.Check(t.Context(), r); err != nil {
		t.Error(err)
	}
}

func TestWaitForMergeObeysItsContext(t *testing.T) {
	asked := make(chan struct{}, 1)
	p, _ := onHand(t, Options{MergeRules: func(string, PageID) []MergeRule {
		return []MergeRule{{Strategy: Automatic(Resolver(func(ctx context.Context, _ *MergeConflict) (Resolution, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return Resolution{}, ctx.Err()
		}))}}
	}})
	base := putOn(t, p, CommitID{}, "k", "0")
	putOn(t, p, base, "k", "1")
	putOn(t, p, base, "k", "2")
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- p.WaitForMerge(ctx) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { result <- p.WaitForMerge(t.Context()) }()
	check(t, p.Close())
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// mergeCommit adds a merge commit with some root.
func mergeCommit(t *testing.T, p *Page, root object.Digest, a, b CommitID) CommitID {
	t.Helper()
	left, err := p.store.Commit(t.Context(), commit.ID(a))
	check(t, err)
	right, err := p.store.Commit(t.Context(), commit.ID(b))
	check(t, err)
	c, err := commit.NewMerge(root, left, right)
	check(t, err)
	pending, err := p.store.Submit(t.Context(), nil, c)
	check(t, err)
	check(t, pending.Wait())
	return CommitID(c.ID)
}

func rootOf(t *testing.T, p *Page, id CommitID) object.Digest {
	t.Helper()
	c, err := p.store.Commit(t.Context(), commit.ID(id))
	check(t, err)
	return c.Root
}

// A resolver that ends its goroutine, as t.FailNow does, does not keep others from merging.
func TestResolverEndsItsGoroutine(t *testing.T) {
	p, _ := onHand(t, Options{})
	for i := range 300 {
		ended := make(chan struct{})
		end := sync.OnceFunc(func() { close(ended) })
		p.SetMergeRules(MergeRule{Strategy: Automatic(Resolver(func(context.Context, *MergeConflict) (Resolution, error) {
			end()
			runtime.Goexit()
			return Resolution{}, nil
		}))})
		base := putOn(t, p, CommitID{}, "k", "0")
		putOn(t, p, base, "k", "1")
		putOn(t, p, base, "k", fmt.Sprint("2 ", i))
		<-ended
		p.SetMergeRules()
		check(t, p.WaitForMerge(t.Context()))
		if n := headCount(t, p); n != 1 {
			t.Fatalf("%d heads", n)
		}
	}
}

func sortedIDs(a, b CommitID) []CommitID {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	return []CommitID{a, b}
}

// In a criss-cross history the base is made of several. A rule on values is asked for it, and what
// it made can be read by a group strategy and goes nowhere else.
func TestGroupsOverAVirtualBase(t *testing.T) {
	p, _ := onHand(t, Options{ManualMerge: true})
	long := func(s string) string { return strings.Repeat(s, 3000) }
	base := putOn(t, p, CommitID{}, "rule", long("0"))
	a, b := putOn(t, p, base, "rule", long("a")), putOn(t, p, base, "rule", long("b"))
	x := mergeCommit(t, p, rootOf(t, p, a), a, b)
	y := mergeCommit(t, p, rootOf(t, p, b), a, b)
	x = putOn(t, p, x, "g/k", "x")
	y = putOn(t, p, y, "g/k", "y")
	asked := 0
	p.SetMergeRules(MergeRule{Strategy: Strategy{Name: "joined", Value: func(_, left, right []byte) ([]byte, bool) {
		return append(append([]byte("joined "), left...), right...), true
	}}}, MergeRule{Prefix: []byte("g/"), Strategy: Strategy{Group: virtualBase{t, &asked, long}}})
	results, err := p.Merge(t.Context())
	check(t, err)
	if asked != 1 || len(results) != 1 || !cmp.Equal(results[0].Commit.Parents, sortedIDs(x, y)) {
		t.Errorf("asked %d times, results %+v", asked, results)
	}
	check(t, p.View(t.Context(), func(s *Snapshot) error {
		v, err := s.Get(t.Context(), []byte("g/base"))
		if !strings.HasPrefix(string(v), "joined ") {
			t.Errorf("value %.20q", v)
		}
		return err
	}))
	check(t, admin.Check(t.Context(), p.Repository()))
}

// virtualBase is a GroupStrategy that looks at the base and copies a value from it.
type virtualBase struct {
	t     *testing.T
	asked *int
	long  func(string) string
}

func (virtualBase) Name() string                                 { return "virtual" }
func (virtualBase) Group([]byte) []byte                          { return nil }
func (virtualBase) Finish(context.Context, *merging.Merge) error { return nil }
func (v virtualBase) MergeGroup(ctx context.Context, m *merging.Merge, g *merging.Group) error {
	*v.asked++
	b, err := m.Base.Get(ctx, []byte("rule"))
	if err != nil || !strings.HasPrefix(string(b), "joined ") || len(b) != len("joined ")+2*len(v.long("a")) {
		v.t.Errorf("the base has %.20q of %d bytes, %v", b, len(b), err)
	}
	if id := m.Base.Commit().ID; !id.IsZero() {
		v.t.Errorf("the virtual base is commit %s", id)
	}
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		if len(c.Pair.Bases) != 2 || c.HasBase {
			v.t.Errorf("conflict %+v", c)
		}
	}
	return m.Result.Put(ctx, []byte("g/base"), b, Eager)
}
