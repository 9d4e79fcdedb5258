package cloudsync_test

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// cuts returns how many epochs began with a checkpoint.
func (w *world) cuts() (n int) {
	for _, name := range w.b.Names() {
		if strings.Contains(name, "/epochs/") {
			n++
		}
	}
	return n - 1 // the first is the founding
}

// checkpoints returns the names of the objects of checkpoints: headers and runs.
func (w *world) checkpoints() (names []string) {
	for _, n := range w.b.Names() {
		if strings.Contains(n, "/checkpoints/") {
			names = append(names, n)
		}
	}
	return names
}

func TestCheckpointsAreWrittenWhenTheLogIsLong(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	first := edit{}
	for i := range 2000 {
		first[key(i)] = noise(uint64(i), 200) // 400 KiB
	}
	a.commit(first)
	sync(t, a)
	if n := len(w.checkpoints()); n != 0 {
		t.Fatalf("%d checkpoints of a log that is as long as the page", n)
	}
	up := int64(0)
	for i := range 300 { // 300 entries of 2 KiB: 600 KiB
		e := edit{}
		for k := range 8 {
			e[key((8*i+k)%2000)] = noise(uint64(10_000+8*i+k), 200)
		}
		p := []*page{a, b}[i%2]
		sync(t, p)
		p.commit(e)
		up += p.counts(func() { sync(t, p) }).Up
	}
	sync(t, a, b)
	sameHeads(t, a, b)
	n := w.cuts()
	if n < 2 || n > 6 {
		t.Errorf("%d cuts", n)
	}
	if got := a.d.s.Metrics().Checkpoints + b.d.s.Metrics().Checkpoints; got != int64(n) {
		t.Errorf("%d written, %d there", got, n)
	}
	c := w.device()
	got := c.counts(func() { sync(t, c) })
	sameHeads(t, a, c)
	t.Logf("first sync: %+v, %d cuts, uploads %d", got, n, up)
	if got.A > 4 || got.A+got.B > 200 || got.Up > 0 || got.Down > 2*(2000*210) {
		t.Errorf("first sync cost %+v", got)
	}
	if !maps.Equal(a.content(), c.content()) {
		t.Error("contents differ")
	}
	old := firstParents(t, c, 280)
	if held, err := c.store.TreeHeld(t.Context(), old); err != nil || held {
		t.Fatalf("the tree of an old commit is here: %v, %v", held, err)
	}
	if err := c.BuildTree(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if held, err := c.store.TreeHeld(t.Context(), old); err != nil || !held {
		t.Errorf("the tree of an old commit is not here: %v", err)
	}
}

// firstParents goes n commits back.
func firstParents(t *testing.T, p *page, n int) *commit.Commit {
	c := p.store.NewestHead()
	for range n {
		var err error
		if c, err = p.store.Known(t.Context(), c.Parents[0]); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestCommitOnSomethingOlderThanTheCheckpoint(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	b.commit(edit{"away": text("b")})
	for i := range 3 {
		a.commit(edit{key(i): noise(uint64(i), 2000)})
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, b, a)
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(a.content(), c.content()) {
		t.Error("contents differ")
	}
}

// TestCheckpointOfLongHistory has so much history that a checkpoint of it cannot be taken in one
// step of storage. Messages stand for 190 000 commits.
func TestCheckpointOfLongHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a checkpoint of 32 MiB")
	}
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	a.talk(storage.MaxSyncBytes)
	sync(t, a)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := w.device()
	sync(t, b)
	sameHeads(t, a, b)
	n, head := 0, b.store.NewestHead()
	for _, err := range commit.Walk(t.Context(), b.store, []commit.ID{head.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if uint64(n) != head.Generation+1 {
		t.Errorf("%d commits, up to generation %d", n, head.Generation)
	}
}

// talk makes commits that take that many bytes, with long messages.
func (p *page) talk(bytes int) {
	message := strings.Repeat("m", limits.MaxMessageBytes)
	for range bytes/len(message) + 1 {
		h := p.store.NewestHead()
		p.submit(commit.Params{Root: h.Root, Parents: []*commit.Commit{h}, Message: message})
	}
}

func (p *page) submit(o commit.Params) {
	t := p.d.w.t
	o.Now = p.d.w.clock.Now()
	c, err := commit.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if pending, err := p.store.Submit(t.Context(), p.store.NewJournal(), c); err != nil || pending.Wait() != nil {
		t.Fatal(err)
	}
}

// TestMergeInALongEntry sends a merge with a conflict in one entry with so much history above it
// that a device takes the history ahead: the merge is no head there.
func TestMergeInALongEntry(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	base := a.commit(edit{"k": text("base")})
	mine := a.commit(edit{"k": text("mine")})
	a.commit(edit{"k": text("theirs")})
	a.submit(commit.Params{Root: mine.Root, Parents: []*commit.Commit{base}, Message: "beside"})
	if err := a.merge(t.Context()); err != nil || len(a.store.Heads()) != 1 {
		t.Fatalf("%d heads, %v", len(a.store.Heads()), err)
	}
	if _, ok, err := a.store.Explanation(t.Context(), a.store.NewestHead().ID); err != nil || !ok {
		t.Fatalf("the merge has no explanation: %v", err)
	}
	a.talk(9 << 20)
	sync(t, a)
	b := w.device()
	sync(t, b)
	sameHeads(t, a, b)
}

// longHistory returns a device with a long history, one that took it from a checkpoint, ahead of
// its head, and one that has its first commit. The bucket is then in the state with that commit.
func longHistory(t *testing.T, w *world) (a, b, c *page) {
	a, c = w.device(), w.device()
	a.commit(edit{"k": text("v")})
	sync(t, a, c)
	old := w.b.State()
	a.talk(9 << 20)
	a.commit(edit{"k": text("w")})
	sync(t, a)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = w.device()
	sync(t, b)
	w.b.Rollback(old)
	return a, b, c
}

// TestHistoryComesAgainWithItsTrees sends commits to a device that has them as a history without
// trees: those with descendants are no heads.
func TestHistoryComesAgainWithItsTrees(t *testing.T) {
	w := newWorld(t)
	a, b, _ := longHistory(t, w)
	reupload(t, b, a)
	sync(t, a, b)
	sameHeads(t, a, b)
}

// TestLongEntryIsReadAgain interrupts a device within an entry whose history it takes ahead. When
// it reads the entry again, the commit below that history is no head.
func TestLongEntryIsReadAgain(t *testing.T) {
	w := newWorld(t)
	_, b, c := longHistory(t, w)
	reupload(t, b)
	w.b.SetBefore(func(_ bucket.Op, name string) error {
		if strings.Contains(name, "/packs/") { // the entry's body
			w.b.SetFaults(mem.Faults{CutBody: 1})
		}
		return nil
	})
	if err := c.Sync(t.Context()); !errors.Is(err, base.ErrNetwork) {
		t.Fatal(err)
	}
	w.b.SetBefore(nil)
	w.b.SetFaults(mem.Faults{})
	sync(t, b, c)
	sameHeads(t, b, c)
}

// TestBadCheckpointIsRepaired damages what a checkpoint has: a new device says which object it is,
// and one that has the page repairs it.
func TestBadCheckpointIsRepaired(t *testing.T) {
	for i := 0; ; i++ {
		w := newWorld(t)
		a := w.device()
		for i := range 2 {
			a.commit(edit{key(i): noise(uint64(i), 1000)})
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		names := w.checkpoints()
		if i == len(names) {
			return
		}
		content, _ := w.b.Content(names[i])
		content[len(content)/2] ^= 4
		w.b.Replace(names[i], content)
		c := w.device()
		err := c.Sync(t.Context())
		if err != nil && (!errors.Is(err, base.ErrCorrupt) || !errors.Is(err, cloudsync.ErrBucketDamaged) || !strings.Contains(err.Error(), names[i])) {
			t.Errorf("a new device: %v", err)
		}
		if _, err := a.Reupload(t.Context()); err != nil {
			t.Fatal(err)
		}
		sync(t, c)
		same(t, a, c, w.synced())
	}
}

func TestLazyValuesComeWhenTheyAreRead(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	value := append([]byte("lazy:"), noise(7, 2_000_000)...)
	a.commit(edit{"lazy": value, "k": text("v")})
	sync(t, a)
	down := b.counts(func() { sync(t, b) }).Down
	if down > 100_000 {
		t.Errorf("%d bytes came down with the commit", down)
	}
	var missing []object.Digest
	placed, err := b.store.PlacedIn(t.Context(), func(storage.CloudPlace) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range placed {
		missing = append(missing, p.Digest)
	}
	if n, err := b.Fetch(t.Context(), missing); err != nil || n < 2_000_000 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	w.b.SetBefore(func(bucket.Op, string) error { return errNet })
	if b.content()["lazy"] != string(value) {
		t.Error("another value")
	}
	c := w.device()
	w.b.SetBefore(nil)
	sync(t, c)
	if c.content()["lazy"] != string(value) {
		t.Error("another value")
	}
}

func TestPagesAreAnnounced(t *testing.T) {
	w := newWorld(t)
	d := w.newDevice()
	for _, ledger := range []string{"zebra", "apple", "empty"} {
		p := d.page(ledger)
		if ledger != "empty" {
			p.commit(edit{"k": text("v")})
		}
		sync(t, p)
	}
	other := w.newDevice()
	list, err := other.s.Announced(t.Context())
	if err != nil || len(list) != 2 || list[0] != (wire.Announcement{Ledger: "apple", Name: "my apple", Page: testPage}) || list[1].Ledger != "zebra" {
		t.Fatalf("%+v, %v", list, err)
	}
	before := other.m.Counts()
	if _, err := other.s.Announced(t.Context()); err != nil || other.m.Counts().B != before.B {
		t.Errorf("announcements were read twice, %v", err)
	}
	for _, n := range w.b.Names() {
		if strings.HasPrefix(n, "pages/") {
			w.b.Replace(n, []byte("nonsense"))
			break
		}
	}
	list, err = w.newDevice().s.Announced(t.Context())
	if !errors.Is(err, base.ErrCorrupt) || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAnnouncementsAreReadAtOnce has the bucket answer the first only when another is asked for,
// and counts how many are under way.
func TestAnnouncementsAreReadAtOnce(t *testing.T) {
	w := newWorld(t)
	d := w.newDevice()
	for i := range 20 {
		p := d.page(key(i))
		p.commit(edit{"k": text("v")})
		sync(t, p)
	}
	second := make(chan struct{})
	var asked, flying, most atomic.Int64
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op != bucket.OpGet || !strings.HasPrefix(name, "pages/") {
			return nil
		}
		most.Store(max(most.Load(), flying.Add(1)))
		defer flying.Add(-1)
		if asked.Add(1) == 2 {
			close(second)
		}
		<-second
		return nil
	})
	list, err := w.newDevice().s.Announced(t.Context())
	if err != nil || len(list) != 20 || most.Load() > 8 {
		t.Fatalf("%d pages with up to %d requests at once, %v", len(list), most.Load(), err)
	}
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpGet {
			return fs.ErrPermission
		}
		return nil
	})
	if list, err := w.newDevice().s.Announced(t.Context()); !errors.Is(err, fs.ErrPermission) || list != nil {
		t.Errorf("%d pages, %v", len(list), err)
	}
}

func TestLimitsHold(t *testing.T) {
	w := newWorld(t)
	w.o.Limits = cloudsync.Limits{UploadBytesPerSecond: 100_000}
	a := w.device()
	a.commit(edit{"big": noise(8, 3_000_000)})
	begin := w.clock.Now()
	sync(t, a)
	if took := w.clock.Now().Sub(begin); took < 28*time.Second || took > 40*time.Second {
		t.Errorf("3 MB at 100 kB a second took %v", took)
	}
	w.o.Limits = cloudsync.Limits{DownloadBytesPerSecond: 200_000}
	b := w.device()
	begin = w.clock.Now()
	sync(t, b)
	if took := w.clock.Now().Sub(begin); took < 13*time.Second || took > 20*time.Second {
		t.Errorf("3 MB at 200 kB a second took %v", took)
	}
	w.o.Limits = cloudsync.Limits{RequestsPerSecond: 0.5}
	c := w.device()
	begin = w.clock.Now()
	n := c.counts(func() { sync(t, c) })
	if took := w.clock.Now().Sub(begin).Seconds(); took < 1.9*float64(n.A+n.B-1) || took > 2.1*float64(n.A+n.B) {
		t.Errorf("%d requests at one in two seconds took %v s", n.A+n.B, took)
	}
}

func TestConnect(t *testing.T) {
	b := mem.New(mem.Options{})
	ctx := t.Context()
	w := newWorld(t)
	if _, _, err := cloudsync.Connect(ctx, b, w.master, false, nil); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("an empty bucket: %v", err)
	}
	if _, err := cloudsync.ReadKeys(ctx, b); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("an empty bucket: %v", err)
	}
	old := mem.New(mem.Options{})
	old.Replace(wire.OldFormatName, []byte("keys of an older version"))
	if _, _, err := cloudsync.Connect(ctx, old, w.master, true, nil); !errors.Is(err, cloudsync.ErrOldFormat) || !errors.Is(err, base.ErrUnsupported) {
		t.Errorf("a bucket of an older version: %v", err)
	}
	type result struct {
		id      string
		created bool
		err     error
	}
	results := make(chan result)
	for range 8 {
		go func() {
			ring, created, err := cloudsync.Connect(ctx, b, w.master, true, nil)
			if err != nil {
				results <- result{err: err}
				return
			}
			results <- result{ring.BucketID().String() + string(ring.ChunkingSecret().Expose()), created, nil}
		}()
	}
	made, id := 0, ""
	for range 8 {
		r := <-results
		if r.err != nil || id != "" && r.id != id {
			t.Errorf("%+v", r)
		}
		if id = r.id; r.created {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d have made the keyring", made)
	}
	chain, err := cloudsync.ReadKeys(ctx, b)
	if err != nil || !strings.HasPrefix(id, chain.Newest().BucketID.String()) {
		t.Errorf("%v", err)
	}
	if _, _, err := cloudsync.Connect(ctx, b, newWorld(t).master, true, nil); err == nil {
		t.Error("another key opens the bucket")
	}
	lost := mem.New(mem.Options{})
	lost.SetFaults(mem.Faults{LostAnswer: 1})
	go func() { // once the write has landed
		for _, there := lost.Content(wire.FirstRing); !there; _, there = lost.Content(wire.FirstRing) {
		}
		lost.SetFaults(mem.Faults{})
	}()
	if _, created, err := cloudsync.Connect(ctx, lost, w.master, true, nil); err != nil || !created {
		t.Errorf("after a lost answer: %v, %v", created, err)
	}
}

// TestDeviceThatWasAwayOverACheckpoint comes back with commits, large and small, on something that
// is only history now. Whoever begins after that needs the checkpoint and what is behind it, and
// nothing before.
func TestDeviceThatWasAwayOverACheckpoint(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 100 {
		a.commit(edit{key(i): noise(uint64(i), 5000)})
		sync(t, a)
	}
	sync(t, b)
	for i := range 5 { // b is away
		b.commit(edit{"away" + key(i): noise(uint64(1000+i), 3000)})
	}
	for i := range 100 {
		a.commit(edit{key(i): noise(uint64(500+i), 5000)})
		sync(t, a)
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.commit(edit{"behind": text("x")})
	sync(t, a)
	w.clock.Advance(time.Hour)
	if n := b.counts(func() { sync(t, b) }); n.Up > 30_000 {
		t.Errorf("%d bytes went up for 15 000", n.Up)
	}
	sync(t, a)
	c := w.device()
	n := c.counts(func() { sync(t, c) })
	t.Logf("a new device: %+v", n)
	if n.B > 30 || n.Down > 1_600_000 { // the content has 515 kB, and so have the values of before, which the commits of b have; padding comes on top
		t.Errorf("a new device: %+v", n)
	}
	sync(t, a, b, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(a.content(), c.content()) || !maps.Equal(a.content(), b.content()) {
		t.Error("contents differ")
	}
}

// TestOvertakenEntry loses the race against entries behind which there is a checkpoint.
func TestOvertakenEntry(t *testing.T) {
	for _, others := range []int{1, 7, 40} {
		w := newWorld(t)
		a, b := steady(t, w)
		for i := range 100 {
			a.commit(edit{key(i): noise(uint64(i), 5000)})
			sync(t, a)
		}
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		sync(t, b)
		for i := range others {
			a.commit(edit{key(i): text("x")})
			sync(t, a)
		}
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.commit(edit{"b": text("b")})
		sync(t, b) // it does not look before
		c := w.device()
		n := c.counts(func() { sync(t, c) })
		t.Logf("%d entries before it: a new device: %+v", others, n)
		if n.B > 40 || n.Down > 1_200_000 {
			t.Errorf("%d entries before it: a new device: %+v", others, n)
		}
		sync(t, a, b, c)
		sameHeads(t, a, b, c)
		if !maps.Equal(a.content(), c.content()) {
			t.Error("contents differ")
		}
	}
}

// TestOldValueComesBackBehindACheckpoint puts values again that were there before the checkpoint
// and not in it.
func TestOldValueComesBackBehindACheckpoint(t *testing.T) {
	for _, lazy := range []string{"", "lazy:"} {
		w := newWorld(t)
		a, b := steady(t, w)
		large, small := append(text(lazy), noise(1, 3_000_000)...), append(text(lazy), noise(2, 5000)...)
		for range 2 {
			a.commit(edit{"large": large, "small": small})
			sync(t, a)
			a.commit(edit{"large": text("other"), "small": nil})
			sync(t, a)
		}
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.commit(edit{"large": large, "copy": large, "small": small})
		a.commit(edit{"edited": append(append([]byte(nil), large...), text("and more")...)})
		sync(t, a)
		c := w.device()
		n := c.counts(func() { sync(t, c) })
		t.Logf("a new device: %+v", n)
		if !maps.Equal(a.content(), c.content()) {
			t.Error("contents differ")
		}
		sync(t, b)
		sameHeads(t, a, b, c)
	}
}
