package cloudsync_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestBarrierHoldsUnderFaults(t *testing.T) {
	w := newWorld(t)
	ps := []*page{w.device(), w.device(), w.device()}
	w.b.SetFaults(mem.Faults{Conflict: 0.05, TooMany: 0.05, Unavailable: 0.1, Refused: 0.05, LostAnswer: 0.1, CutBody: 0.1, SlowBody: 0.1})
	for round := range 15 {
		for i, p := range ps {
			c := p.commit(edit{key(i): text(key(round)), "shared": text(key(i))})
			for err := errors.New("begin"); err != nil; {
				if err = p.Sync(t.Context()); err != nil && !errors.Is(err, base.ErrNetwork) {
					t.Fatal(err)
				}
			}
			if ids, err := p.store.Unsynced(t.Context()); err != nil || len(ids) > 0 {
				t.Fatalf("round %d: commit %s is not synced after Sync, %v", round, c.ID.Short(), err)
			}
		}
	}
	w.b.SetFaults(mem.Faults{})
	sync(t, ps...)
	sync(t, ps...)
	sameHeads(t, ps...)
	if m := ps[0].d.s.Metrics(); m.Retries == 0 || m.Entries == 0 || m.Applied == 0 {
		t.Errorf("metrics %+v", m)
	}
}

func TestNoNetworkIsAnErrorForCallersAndLaterNoMatter(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	w.b.SetBefore(func(bucket.Op, string) error { return errNet })
	c := a.commit(edit{"offline": text("x")})
	if err := a.Sync(t.Context()); !errors.Is(err, base.ErrNetwork) {
		t.Fatalf("sync without network: %v", err)
	}
	if st := a.State(); st.Unsynced != 1 || st.OldestUnsynced.UnixNano() != c.Timestamp {
		t.Errorf("state %+v", st)
	}
	if m := a.d.s.Metrics(); !m.OldestUnsynced.Equal(time.Unix(0, c.Timestamp)) {
		t.Errorf("metrics %+v", m)
	}
	w.b.SetBefore(nil)
	sync(t, a, b)
	sameHeads(t, a, b)
	if st := a.State(); st.Upload != cloudsync.Idle || st.Download != cloudsync.Idle || st.UploadErr != nil || st.LastSuccess.IsZero() || st.Unsynced != 0 {
		t.Errorf("state %+v", st)
	}
}

func TestUserIsNeeded(t *testing.T) {
	for name, cause := range map[string]error{"denied": fs.ErrPermission, "quota": base.ErrNoSpace} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := steady(t, w)
			b.commit(edit{"from b": text("x")})
			sync(t, b)
			w.b.SetBefore(func(op bucket.Op, _ string) error {
				if op == bucket.OpPut {
					return cause
				}
				return nil
			})
			a.commit(edit{"k": text("v")})
			if err := a.Sync(t.Context()); !errors.Is(err, cause) {
				t.Fatalf("sync: %v", err)
			}
			st := a.State()
			if st.Upload != cloudsync.NeedsUser || !errors.Is(st.UploadErr, cause) || st.Unsynced == 0 {
				t.Errorf("state %+v", st)
			}
			if st.Download == cloudsync.NeedsUser {
				t.Errorf("reading is still possible: %+v", st)
			}
			w.b.SetBefore(nil)
			sync(t, a, b)
			sameHeads(t, a, b)
		})
	}
}

// checkStop checks that sync stops with target, sends nothing and leaves what is here.
func checkStop(t *testing.T, w *world, p *page, target error) {
	t.Helper()
	content, names := p.content(), len(w.b.Names())
	if err := p.Sync(t.Context()); !errors.Is(err, target) {
		t.Fatalf("sync: %v, want %v", err, target)
	}
	if st := p.State(); st.Upload != cloudsync.NeedsUser || st.Download != cloudsync.NeedsUser || !errors.Is(st.UploadErr, target) {
		t.Errorf("state %+v", st)
	}
	if !maps.Equal(p.content(), content) {
		t.Error("the page has changed")
	}
	if n := len(w.b.Names()); n != names {
		t.Errorf("%d objects, there were %d", n, names)
	}
}

func TestWipedBucket(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	a.commit(edit{"big": noise(3, 3_000_000)})
	sync(t, a, b)
	a.commit(edit{"unsynced": text("x")})
	w.b.Wipe()
	for _, p := range []*page{a, b} {
		p.reopen()
		checkStop(t, w, p, cloudsync.ErrBucketWiped)
		if _, err := p.Reupload(t.Context()); !errors.Is(err, cloudsync.ErrBucketWiped) {
			t.Fatalf("upload anew without a keyring: %v", err)
		}
	}
	w.connect() // another keyring
	for _, p := range []*page{a, b} {
		p.reopen()
		checkStop(t, w, p, cloudsync.ErrBucketReplaced)
	}
	for _, p := range []*page{a, b} {
		if missing, err := p.Reupload(t.Context()); err != nil || missing != 0 {
			t.Fatalf("%d missing, %v", missing, err)
		}
	}
	sync(t, a, b)
	sameHeads(t, a, b)
	c := w.device()
	sync(t, c)
	sameHeads(t, a, c)
	if !maps.Equal(c.content(), a.content()) {
		t.Error("a new device has another content")
	}
}

func TestAnotherBucketIsNoticedByWhoHasReadNothing(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	w.b.Wipe()
	checkStop(t, w, a, cloudsync.ErrBucketWiped)
	w.connect()
	checkStop(t, w, a, cloudsync.ErrBucketReplaced)
	a.reopen()
	sync(t, a)
}

func TestWipeIsNoticedInASession(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	w.b.Wipe()
	w.clock.Advance(61 * time.Minute)
	a.commit(edit{"k": text("v")})
	checkStop(t, w, a, cloudsync.ErrBucketWiped) // who appends
	w.clock.Advance(5 * time.Hour)
	checkStop(t, w, b, cloudsync.ErrBucketWiped) // who reads
}

// badEntry appends a well sealed entry that makes no sense.
func (p *page) badEntry() (name string) {
	t := p.d.w.t
	t.Helper()
	sealer, names := seal.NewSealer(p.d.w.ring, nil), p.names()
	st, err := cloudsync.StandingOf(t.Context(), p.store)
	if err != nil {
		t.Fatal(err)
	}
	root := object.Sum(object.Node, []byte("no such tree"))
	c, err := commit.New(commit.Params{Now: start, Root: root, Parents: []*commit.Commit{commit.First()}})
	if err != nil {
		t.Fatal(err)
	}
	diff, err := wire.AppendChange(nil, &btree.Change{Entry: fb.Entry{Key: []byte("k"), Inline: true, Value: []byte("v")}})
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	out := wire.NewWriter(&stream, wire.Body)
	for _, r := range []wire.Record{&wire.Size{}, &wire.Commit{Commit: c, Diff: wire.Diff{Inline: diff}}} {
		if err := out.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	stored, _, err := wire.SealEntry(sealer, names, st.At.Epoch, st.At.Number+1, st.At.Hash, wire.InlineBody(stream.Bytes(), out.Parts()))
	if err != nil {
		t.Fatal(err)
	}
	name = names.Entry(st.At.Epoch, st.At.Number+1)
	if err := p.d.w.b.PutIfAbsent(t.Context(), name, int64(len(stored)), bytes.NewReader(stored)); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestEntryThatMakesNoSense has a member append an entry that is well sealed and makes no sense: a
// new device, too, begins an epoch without it, once.
func TestEntryThatMakesNoSense(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 3 {
		a.commit(edit{key(i): text("y")})
		sync(t, a)
	}
	a.badEntry()
	c := w.device()
	for range 3 {
		sync(t, c)
		if st := c.State(); st.Download == cloudsync.Failing || w.cuts() != 1 {
			t.Fatalf("%d renewals, state %+v", w.cuts(), st)
		}
	}
	if c.store.NewestHead().ID != a.store.NewestHead().ID {
		t.Error("what stands before it is not here")
	}
	a.reopen()
	b.reopen()
	b.commit(edit{"mine": text("z")})
	sync(t, b, a, c)
	same(t, a, b, c)
	if got := c.content(); got["mine"] != "z" || got["k"] == "v" {
		t.Errorf("%v", got)
	}
}

func TestRolledBackBucket(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	old := w.b.State()
	a.commit(edit{"later": noise(4, 20_000)})
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, a, b)
	a.commit(edit{"unsynced": text("x")})
	w.b.Rollback(old)
	a.reopen()
	checkStop(t, w, a, cloudsync.ErrBucketRolledBack)
	if missing, err := a.Reupload(t.Context()); err != nil || missing != 0 {
		t.Fatalf("%d missing, %v", missing, err)
	}
	b.reopen()
	checkStop(t, w, b, cloudsync.ErrBucketRolledBack)
	if missing, err := b.Reupload(t.Context()); err != nil || missing != 0 {
		t.Fatalf("%d missing, %v", missing, err)
	}
	c := w.device()
	sync(t, a, b, c)
	sameHeads(t, a, b, c)
	if c.content()["unsynced"] != "x" {
		t.Error("something is lost")
	}
}

// TestLostPosition has a bucket go back to an older state, and a device that has lost the row of
// its position.
func TestLostPosition(t *testing.T) {
	for name, entries := range map[string]int{"before the log": 0, "within the log": 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.device()
			old := w.b.State()
			for i := range 5 {
				if i == entries {
					old = w.b.State()
				}
				a.commit(edit{key(i): text("x"), "long" + key(i): noise(uint64(i), 20_000)})
				sync(t, a)
			}
			a.lose(cloudsync.MetadataPosition)
			w.b.Rollback(old)
			a.reopen()
			sync(t, a)
			c := w.device()
			sync(t, c)
			sameHeads(t, a, c)
			if !maps.Equal(a.content(), c.content()) {
				t.Error("contents differ")
			}
		})
	}
}

// TestTreeIsBuiltWithoutPosition builds the tree of an older commit when the row of the position is
// lost, before anything else looks at the bucket.
func TestTreeIsBuiltWithoutPosition(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	old := a.commit(edit{"k": text("1")})
	a.commit(edit{"k": text("2")})
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, build := range map[string]func(p *page) error{
		"one":     func(p *page) error { return p.BuildTree(t.Context(), old.ID) },
		"several": func(p *page) error { return p.BuildTrees(t.Context(), []commit.ID{old.ID}) },
	} {
		b := w.device() // knows the commit without its tree
		sync(t, b)
		b.lose(cloudsync.MetadataPosition)
		b.reopen()
		if err := build(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if held, err := b.store.TreeHeld(t.Context(), old); err != nil || !held {
			t.Errorf("%s: the tree is held: %v, %v", name, held, err)
		}
	}
}

// TestLostPlaces has a device lose the row of its position when it knows places and no commits that
// are synced.
func TestLostPlaces(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"long": noise(1, 3_000_000)})
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut && strings.Contains(name, "/log/") {
			return errNet
		}
		return nil
	})
	if err := a.Sync(t.Context()); !errors.Is(err, base.ErrNetwork) {
		t.Fatal(err)
	}
	w.b.SetBefore(nil)
	packs := len(w.b.Names())
	a.lose(cloudsync.MetadataPosition)
	w.b.Wipe()
	w.connect()
	a.reopen()
	sync(t, a)
	if n := len(w.b.Names()); n != packs+1 {
		t.Errorf("%d objects, want %d and an entry", n, packs)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, c)
	if !maps.Equal(a.content(), c.content()) {
		t.Error("contents differ")
	}
}

// TestValueIsReadWithoutPosition reads a value that is in the bucket alone when the row of the
// position was lost, and the page has forgotten where values are and not read the log since.
func TestValueIsReadWithoutPosition(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	long := noise(1, 2000)
	a.commit(edit{"long": long})
	sync(t, a)
	d := object.Sum(0, long)
	if n, err := a.store.DropPieces(t.Context(), []object.Digest{d}); err != nil || n == 0 {
		t.Fatalf("dropped %d bytes, %v", n, err)
	}
	a.lose(cloudsync.MetadataPosition)
	a.reopen()
	w.b.SetBefore(func(_ bucket.Op, name string) error {
		if strings.Contains(name, "/epochs/") {
			return errNet
		}
		return nil
	})
	if err := a.Sync(t.Context()); !errors.Is(err, base.ErrNetwork) {
		t.Fatal(err)
	}
	w.b.SetBefore(nil)
	if got, err := a.store.Piece(t.Context(), d); err != nil || !bytes.Equal(got, long) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

// lose takes a row of metadata away.
func (p *page) lose(typ string) {
	p.d.w.t.Helper()
	pending, err := p.store.SubmitSync(p.d.w.t.Context(), nil, &storage.SyncBatch{Metadata: []storage.Metadata{{Type: typ}}})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		p.d.w.t.Fatal(err)
	}
}

func TestReuploadOfHistoryWithoutTrees(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	for i := range 5 {
		a.commit(edit{key(i): text("x"), "eager": noise(uint64(i), 5000)})
		sync(t, a)
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := w.device() // knows history without trees
	b.commit(edit{"own": text("y")})
	sync(t, b, a)
	sameHeads(t, a, b)
	w.b.Wipe()
	w.connect()
	b.reopen()
	// The first time, the entry cannot be put, and the process ends.
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut && strings.Contains(name, "/log/") {
			return fs.ErrPermission
		}
		return nil
	})
	if _, err := b.Reupload(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if ids, err := b.store.Unsynced(t.Context()); err != nil || len(ids) == 0 {
		t.Fatalf("%d commits are not synced, %v", len(ids), err)
	}
	// The second time the process is killed before the checkpoint is put.
	var killed *vfstest.Mem
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if killed == nil && op == bucket.OpPut && strings.Contains(name, "/log/") {
			killed = b.d.fs.CrashClone(vfstest.KeepNone)
			return fs.ErrPermission
		}
		return nil
	})
	if _, err := b.Reupload(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	b.close()
	b.d.fs, b.o.FS, b.o.MemoryIndex = killed, killed, index.NewMemory()
	b.d.page(b.ledger)
	sync(t, b)
	c := w.device()
	sync(t, b, c)
	sameHeads(t, b, c)
	a.reopen()
	if missing, err := a.Reupload(t.Context()); err != nil || missing != 0 {
		t.Fatalf("%d missing, %v", missing, err)
	}
	sync(t, a, b, c)
	sameHeads(t, a, b, c)
	if !maps.Equal(a.content(), c.content()) {
		t.Error("contents differ")
	}
}

func TestReuploadCountsWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"lazy": append([]byte("lazy:"), noise(5, 2_500_000)...), "eager": noise(6, 5000)})
	sync(t, a)
	b := w.device() // has no lazy value
	sync(t, b)
	w.b.Wipe()
	w.connect()
	b.reopen()
	missing, err := b.Reupload(t.Context())
	if err != nil || missing == 0 {
		t.Fatalf("%d missing, %v", missing, err)
	}
	early := w.device() // comes when nobody has sent the value
	sync(t, early)
	for _, p := range []*page{b, early} {
		r, err := p.store.Check(t.Context(), storage.CheckOptions{})
		if err != nil || !r.Clean() || r.Missing == 0 || len(r.MissingPieces) != r.Missing {
			t.Fatalf("%d problems, %d pieces are missing, %v", len(r.Problems), r.Missing, err)
		}
		for _, d := range r.MissingPieces {
			if _, err := p.store.Piece(t.Context(), d); !errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt) {
				t.Errorf("piece that nobody has sent: %v", err)
			}
		}
		if why := p.store.Recovery().IndexRebuilt; why != "" {
			t.Errorf("the index was made anew: %s", why)
		}
	}
	a.reopen()
	if missing, err := a.Reupload(t.Context()); err != nil || missing != 0 {
		t.Fatalf("%d missing, %v", missing, err)
	}
	late := w.device()
	sync(t, a, b, early, late)
	sameHeads(t, a, b, early, late)
	for i, p := range []*page{b, early, late} {
		if !maps.Equal(a.content(), p.content()) { // which reads the value
			t.Errorf("page %d: contents differ", i)
		}
	}
}

// entryNames returns the names of the entries in the order of their numbers, which go on from epoch
// to epoch: the ids of epochs have no order.
func (w *world) entryNames(dirOf string) (names []string) {
	for _, n := range w.b.Names() {
		if strings.Contains(n, "/log/") && !strings.Contains(n[strings.LastIndex(n, "/"):], "-") && strings.HasPrefix(n, dirOf) {
			names = append(names, n)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return names
}

func TestOneBadPageStopsNoOther(t *testing.T) {
	w := newWorld(t)
	da, db := w.newDevice(), w.newDevice()
	var as, bs []*page
	bad := ""
	for _, ledger := range []string{"one", "two", "three", "four"} {
		before := w.entryNames("")
		a := da.page(ledger)
		a.commit(edit{"k": text(ledger)})
		sync(t, a)
		as, bs = append(as, a), append(bs, db.page(ledger))
		if ledger == "three" {
			for _, n := range w.entryNames("") {
				if !strings.Contains(strings.Join(before, " "), n) {
					bad = n
				}
			}
		}
	}
	good, _ := w.b.Content(bad)
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)/2] ^= 1
	w.b.Replace(bad, damaged)
	for i, b := range bs {
		onBad := 0
		w.b.SetBefore(func(_ bucket.Op, name string) error {
			if name == bad {
				onBad++
			}
			return nil
		})
		got := b.counts(func() {
			err := b.Sync(t.Context())
			if i == 2 != errors.Is(err, base.ErrCorrupt) || i == 2 && !strings.Contains(err.Error(), bad) || i != 2 && err != nil {
				t.Errorf("page %d: %v", i, err)
			}
		})
		if got.A+got.B > 16 || onBad > 8 {
			t.Errorf("page %d: %+v, %d for the bad object", i, got, onBad)
		}
	}
	if st := bs[2].State(); st.Download != cloudsync.Failing || st.DownloadErr == nil {
		t.Errorf("state %+v", st)
	}
	if st := bs[1].State(); st.Download != cloudsync.Idle {
		t.Errorf("state %+v", st)
	}
	w.b.Replace(bad, good)
	sync(t, bs...)
	sameHeads(t, as[2], bs[2])
}

func TestCloseDoesNotWaitForABucketThatHangs(t *testing.T) {
	bubble(t, testCloseDoesNotWaitForABucketThatHangs)
}

func testCloseDoesNotWaitForABucketThatHangs(t *testing.T) {
	w := liveWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	w.eventually("the first upload", 0, func() bool { return a.State().Position == 1 }, a.d)
	w.eventually("a rest", 0, func() bool { return w.clock.Timers() > 0 }, a.d)
	hang := make(chan struct{})
	entered := make(chan struct{}, 100)
	a.d.s.Pause()
	if err := a.d.s.Close(); err != nil {
		t.Fatal(err)
	}
	o := w.o
	o.Keyring, o.Key, o.Bucket = w.ring, a.d.key, hanging{w.b, hang, entered}
	a.d.s = cloudsync.New(o)
	a.Page = a.d.s.OpenPage(cloudsync.PageOptions{Store: a.store, Ledger: "notes"})
	<-entered // the background
	done := make(chan error, 2)
	go func() { done <- a.Sync(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // against a test that hangs
	defer cancel()
	go func() { done <- a.d.s.Close() }()
	for range 2 {
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, base.ErrClosed) {
				t.Errorf("%v", err)
			}
		case <-ctx.Done():
			t.Fatal("closing waits for the bucket")
		}
	}
	if err := a.Sync(t.Context()); !errors.Is(err, base.ErrClosed) {
		t.Errorf("sync after close: %v", err)
	}
}

// hanging is a bucket that answers nothing until the caller leaves.
type hanging struct {
	bucket.Bucket
	hang    chan struct{}
	entered chan struct{}
}

func (h hanging) Get(ctx context.Context, name string, _, _ int64) (bucket.Object, error) {
	h.entered <- struct{}{}
	<-ctx.Done()
	return bucket.Object{}, bucket.NewError(ctx, bucket.OpGet, name, false, ctx.Err())
}
