package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	turns "github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	logwire "github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// passing is the clock of the bucket and of sync. A wait ends at once and advances the time for all
// devices.
type passing struct {
	w *World
	d *device // the device of this clock; nil: the bucket's clock
}

// Now implements clock.Clock.
func (p passing) Now() time.Time {
	if p.d != nil {
		return p.d.Now()
	}
	return epoch.Add(time.Duration(p.w.now.Load()))
}

// After implements clock.Clock.
func (p passing) After(d time.Duration) (<-chan time.Time, func()) {
	p.w.now.Add(int64(max(d, 0)))
	c := make(chan time.Time, 1)
	c <- p.Now()
	return c, func() {}
}

// cloud is the bucket that the devices share, with its state in the model.
type cloud struct {
	b      *mem.Bucket
	master seal.MasterKey
	ring   *seal.Keyring // the first one
	faults mem.Faults
	has    set // commits reported as being in the log
	epoch  int // how often the bucket was wiped or rolled back
	kept   *keptBucket
	tags   map[string]map[commit.ID]bool
	seen   map[string]bool // the contents of epochs that noticeRenewal has seen
	torn   bool            // objects are missing in the middle of the log
	bereft bool            // a checkpoint was lost after another loss that it may have covered
	lossy  bool            // values may be lost, because devices and the bucket have lost their copies
	stats  CloudResult
}

type keptBucket struct {
	state mem.State
	has   set
	epoch int
}

func (w *World) newCloud(ctx context.Context) error {
	c := &cloud{b: mem.New(mem.Options{Name: "sim", Clock: passing{w, nil}}), has: set{}.with(0), seen: map[string]bool{}, tags: map[string]map[commit.ID]bool{}}
	w.cloud = c
	random := seeded(w.h.Seed, 1<<32)
	if !w.h.Cloud.Plain {
		c.master = seal.NewMasterKey(random)
	}
	var err error
	if c.ring, err = w.connect(ctx, random); err != nil {
		return err
	}
	w.setFaults(w.h.Cloud.Faults)
	return nil
}

// setFaults sets the faults of requests from now on. The bucket itself enforces one write a second
// for each name.
func (w *World) setFaults(f mem.Faults) {
	w.cloud.b.SetFaults(mem.Faults{WriteInterval: f.WriteInterval})
	f.WriteInterval = 0
	w.cloud.faults = f
}

// connect reads the keyring, or creates one. When the bucket allows one write a second for each
// name, connect waits in the time of the history, because real time does not reach that second.
func (w *World) connect(ctx context.Context, random io.Reader) (*seal.Keyring, error) {
	b := bucket.NewRetry(w.cloud.b, bucket.RetryOptions{Clock: passing{w, nil}, Jitter: func() float64 { return 0 }})
	ring, _, err := cloudsync.Connect(ctx, b, w.cloud.master, true, random)
	return ring, err
}

// seeded returns random bytes for one part of a history. A read of eight bytes is for a retry
// pause. It always returns the same bytes, because requests may run concurrently.
func seeded(seed, part uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], part)
	s := &stream{r: rand.NewChaCha8(key)}
	_, _ = s.r.Read(s.pause[:])
	return s
}

type stream struct {
	mu    sync.Mutex
	r     *rand.ChaCha8 // guarded by mu
	pause [8]byte
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == len(s.pause) {
		return copy(p, s.pause[:]), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.Read(p)
}

// link is the connection of a device to the bucket.
type link struct {
	wire    *wire
	ring    *seal.Keyring
	key     seal.DeviceKey
	syncer  *cloudsync.Syncer
	page    *cloudsync.Page
	opened  uint64    // how often
	epoch   int       // of the bucket when the device was last in step
	session int       // of the bucket when the page was opened
	looked  bool      // the page was synced since then
	proved  time.Time // by the device's clock, the estimated time of the last check of its own entries; zero: none since the page was opened
	offline bool
	backup  *backup
	merges  []merge.Merged // may be durable or not, after a power failure
}

// backup is a copy of a device's disk, with its state in the model.
type backup struct {
	mem      *vfstest.Mem
	rows     *index.Memory
	ring     *seal.Keyring
	epoch    int
	has      set
	pruned   set
	never    set
	received []*node
	heads    []*node
	told     map[*node]bool
}

func (d *device) newLink() {
	d.link = &link{wire: &wire{d: d, b: d.w.cloud.b, seen: map[string]uint64{}}, ring: d.w.cloud.ring, key: d.newKey()}
}

func (d *device) newKey() seal.DeviceKey {
	key := seal.NewDeviceKey(seeded(d.w.h.Seed, 1<<34|uint64(d.w.keys)))
	d.w.keys++
	return key
}

// join opens the page for sync.
func (d *device) join() {
	l := d.link
	l.opened++
	l.syncer = cloudsync.New(cloudsync.Options{
		Bucket: l.wire, Keyring: l.ring, Key: l.key, Clock: passing{d.w, d}, Random: seeded(d.w.h.Seed, uint64(d.index)<<40|l.opened), Manual: true,
	})
	l.page = l.syncer.OpenPage(cloudsync.PageOptions{Store: d.s, Ledger: "ledger", Name: "page", Merge: d.mergeAll})
	l.session, l.looked, l.proved = d.w.cloud.epoch, false, time.Time{}
}

// leave ends the sync of the page.
func (d *device) leave() error {
	if d.link == nil || d.link.page == nil {
		return nil
	}
	d.link.wire.begins(0, nil, 0, false)
	err := errors.Join(d.link.page.Close(), d.link.syncer.Close())
	d.link.page, d.link.syncer = nil, nil
	return err
}

// mergeAll merges the heads during a sync.
func (d *device) mergeAll(ctx context.Context) error {
	for before := 0; ; {
		if err := d.learn(ctx); err != nil {
			return err
		}
		n := len(d.heads)
		if n < 2 || n == before {
			return nil
		}
		d.w.trace("device %d merges %s", d.index, nodeIDs(d.heads))
		if err := d.merge(ctx, d.heads); err != nil {
			return err
		}
		before = n
	}
}

// learn records the commits that the device received from the bucket. The heads of the store must
// be commits that a device made, and must be above all commits that the device had (S1).
func (d *device) learn(ctx context.Context) error {
	if err := d.noticePruned(ctx); err != nil {
		return err
	}
	if err := d.noticeRenewal(); err != nil {
		return err
	}
	var has set
	heads := d.s.Heads()
	for _, c := range heads {
		n := d.w.graph.byID[c.ID]
		if n == nil {
			return fmt.Errorf("S1: device %d has head %s, which nobody made", d.index, c.ID.Short())
		}
		has = has.or(n.above)
	}
	if lost := d.has.minus(has); lost.last() >= 0 {
		return fmt.Errorf("S1: device %d has lost commit %s", d.index, d.w.graph.nodes[lost.last()].c.ID.Short())
	}
	strange, err := d.strangers(heads, d.w.graph.bases(has))
	if err != nil {
		return err
	}
	d.w.forgetful = d.w.forgetful || strange // a merge partner of this head may contain or change it
	for i := range has.minus(d.has).all() {
		n := d.w.graph.nodes[i]
		lacks, err := d.mayLack(ctx, n)
		if err != nil {
			return err
		}
		if lacks {
			d.never = d.never.with(i)
		}
		d.hold(n)
	}
	if d.w.retained || strange || d.w.unnoted.last() >= 0 {
		d.heads = d.heads[:0:0]
		for _, c := range heads {
			d.heads = append(d.heads, d.w.graph.byID[c.ID])
		}
	}
	return nil
}

// strangers compares the heads of a device with those that the graph implies, and reports
// additional heads. These are valid only in the following cases (S1):
//
//   - History was given up. A former head of the device stands beside a head above it, because
//     others gave up the commits between without waiting for this device.
//   - The device has read such a head only now, on from its position and before the place where
//     the log skips it. This is as if it had synced at that time. A new device begins at the start
//     of a log that was put back, or at an older checkpoint when the newest could not be read.
//   - The bucket has changed. A head given up before the device joined, or by Prune, which the page
//     does not record, may be back; the latter also for a reader of the whole log.
func (d *device) strangers(heads []*commit.Commit, top []*node) (strange bool, err error) {
	fail := func() (bool, error) {
		return false, fmt.Errorf("S1: device %d has heads %s, want %s", d.index, ids(heads), nodeIDs(top))
	}
	for _, n := range top {
		if !slices.ContainsFunc(heads, func(c *commit.Commit) bool { return c.ID == n.c.ID }) {
			return fail()
		}
	}
	for _, c := range heads {
		n := d.w.graph.byID[c.ID]
		if slices.Contains(top, n) {
			continue
		}
		had := slices.Contains(d.heads, n) || !d.has.has(n.index) && (n.above.and(d.has).last() > 0 || d.w.mayRenew()) // 0 is the first commit, common to all
		back := d.w.cloud.epoch > 0 && d.w.retained && d.never.has(n.index) || d.w.unnoted.has(n.index)
		afresh := d.w.cloud.epoch > 0 && d.w.retained && had // the commits between are not sent again
		if !afresh && (!d.w.prunedAbove(n) || !(d.w.retained && had) && !back) {
			return fail()
		}
		strange = true
	}
	return strange, nil
}

// call calls fn with a context that ends at a given request.
func (d *device) call(ctx context.Context, stop int, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := d.link.wire
	w.begins(stop, cancel, 0, false)
	began, asked := d.w.now.Load(), w.counted()
	err := fn(ctx)
	if ctx.Err() != nil {
		d.w.now.Store(began + int64(brokenTime))
		defer func() { d.link.wire.forgo(asked) }()
	}
	w.mu.Lock()
	flight := w.flight
	w.stop, w.flight = 0, false
	w.mu.Unlock()
	if flight { // the request may go on for others; the model cannot wait for it
		return errors.Join(err, d.reopen(context.WithoutCancel(ctx)))
	}
	return err
}

// judge returns nil if a call to the bucket may have ended with err (S9).
func (d *device) judge(what string, err error, targets ...error) error {
	f := &d.w.cloud.faults
	if slices.Contains(targets, errStopped) { // the store reports the end of the context, others its cause
		targets = append(targets, context.Canceled)
	}
	if d.link.offline || *f != (mem.Faults{}) {
		targets = append(targets, base.ErrNetwork)
	}
	if f.WrongByte > 0 { // nothing authenticates the byte with the version of an object
		targets = append(targets, base.ErrCorrupt, base.ErrUnsupported)
	}
	if d.link.epoch < d.w.cloud.epoch {
		targets = append(targets, cloudsync.ErrBucketRolledBack, cloudsync.ErrBucketReplaced)
	}
	if d.w.cloud.lossy {
		targets = append(targets, base.ErrGone, base.ErrNeedsFetch)
	}
	if d.w.cloud.torn {
		targets = append(targets, base.ErrCorrupt, base.ErrNotFound, base.ErrGone, base.ErrNeedsFetch)
	}
	if err == nil || slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) }) {
		if errors.Is(err, errStopped) || errors.Is(err, context.Canceled) || d.dark() { // the message depends on which of several requests was last
			err = errStopped
		}
		d.w.trace("device %d: %s: heads %s, %v", d.index, what, nodeIDs(d.heads), err)
		return nil
	}
	return fmt.Errorf("S9: device %d: %s: %w", d.index, what, err)
}

// sync syncs. It returns the result of the call, and an error when that breaks a promise.
func (d *device) sync(ctx context.Context, stop int) (result, err error) {
	c := d.w.cloud
	before, asked := c.has, d.link.wire.counted()
	m, at := d.link.syncer.Metrics(), d.link.page.State().Position
	was, err := cloudsync.StandingOf(ctx, d.s)
	if err != nil {
		return nil, err
	}
	first := !d.link.looked || at == 0 // a restarted device reads the log from scratch
	result = d.call(ctx, stop, d.link.page.Sync)
	c.stats.Syncs++
	if err := d.learn(ctx); err != nil {
		return result, errors.Join(err, result) // a merge unlike the model's fails there, and leaves a head that no device made
	}
	if err := d.judge("sync", result, errStopped); err != nil || result != nil {
		c.stats.Failed++
		return result, err
	}
	d.link.looked = true
	now, err := cloudsync.StandingOf(ctx, d.s)
	if err != nil {
		return nil, err
	}
	if err := d.cheap(first, now.At.Epoch != was.At.Epoch, m, at, d.link.wire.counted().minus(asked)); err != nil {
		return nil, err
	}
	return nil, d.inStep(ctx, before)
}

// cheap compares the requests of a sync without faults with the model (S10). A sync may look, send
// and receive, each with one more request for a lost race. Further requests are: those of a new
// process; hourly and daily ones; the entries of a range of 32; the whole log where a tree needs
// history; and the runs of the checkpoint of a new epoch. Repeated requests of a call do not count,
// because it reads history more than once.
func (d *device) cheap(first, entered bool, was cloudsync.Metrics, position uint64, asked tally) error {
	if d.w.cloud.faults != (mem.Faults{}) {
		return nil
	}
	const (
		look      = 2
		process   = 10
		hour      = 13 // the heads of entries, from the first own entry on
		day       = 12 // a look at the format, the floor, entries after the end and checkpoints; the position sent again
		turn      = 6  // looks at the log before and after a turn: a renewal takes more than a cut
		rangeSize = 32
	)
	m, now := d.link.syncer.Metrics(), d.link.page.State().Position
	most := look + day + asked.again + 2*int(m.Entries-was.Entries) + 2*int(now-min(now, position)) + 2*asked.read + 3*asked.packs + 3*asked.checkpoints
	if first {
		most += process
	}
	if entered {
		most += asked.runs + turn
	}
	if d.w.retained { // before history is given up, entries unread by others are looked up
		most += process
	}
	if now/rangeSize != position/rangeSize {
		most += rangeSize + 2
	}
	if asked.again > 2 {
		most += int(now)
	}
	if age := d.Now().Sub(d.link.proved); asked.total() > most && (d.link.proved.IsZero() || age < 0 || age >= time.Hour) {
		most += hour
		d.link.proved = d.Now()
	}
	if asked.total() > most {
		return fmt.Errorf("S10: device %d comes from entry %d to %d, of which it made %d, with %+v: %d requests too many", d.index, position, now, m.Entries-was.Entries, asked,
			asked.total()-most)
	}
	return nil
}

// mayRenew reports whether the log may have been renewed: the bucket was lost, or a device read
// wrong bytes. A renewed log has old commits with the trees of the renewing device.
func (w *World) mayRenew() bool { return w.cloud.epoch > 0 || w.h.Cloud.Faults.WrongByte > 0 }

// noticeRenewal records that a device has renewed the log, because it read wrong bytes repeatedly.
// The log then has only the commits that devices send again.
func (d *device) noticeRenewal() error {
	c := d.w.cloud
	names := logwire.NamesOf(d.link.ring, "ledger", d.w.page)
	for _, name := range c.b.Names() {
		n, ok := names.Parse(name)
		stored, _ := c.b.Content(name)
		if !ok || n.Kind != logwire.KindEpoch || n.Number == 0 || c.seen[string(stored)] {
			continue
		}
		c.seen[string(stored)] = true
		if x, err := logwire.OpenEpoch(seal.NewSealer(d.link.ring, nil), names, stored); err == nil && x.Kind == turns.Renewal {
			c.has = set{}.with(0)
			d.w.forgetful = d.w.forgetful || d.w.retained // as after the loss of the bucket
			d.w.trace("device %d notices renewal %d", d.index, n.Number)
		}
	}
	return nil
}

// inNewest reports whether the device is in the newest epoch of the bucket. It looks once a day.
func (d *device) inNewest(ctx context.Context) (bool, error) {
	at, err := cloudsync.StandingOf(ctx, d.s)
	if err != nil {
		return false, err
	}
	k, most := int64(-1), int64(-1)
	if at.At.Joined() {
		k = int64(at.At.K)
	}
	names := logwire.NamesOf(d.link.ring, "ledger", d.w.page)
	for _, name := range d.w.cloud.b.Names() {
		if n, ok := names.Parse(name); ok && n.Kind == logwire.KindEpoch {
			most = max(most, int64(n.Number))
		}
	}
	return k == most, nil
}

// inStep is called after a sync has reported that everything is up and down. before is the content
// of the bucket before the sync (S9).
func (d *device) inStep(ctx context.Context, before set) error {
	c := d.w.cloud
	unsynced, err := d.s.Unsynced(ctx)
	if err != nil || len(unsynced) > 0 {
		return fmt.Errorf("S9: device %d has synced, and %d commits are unsynced: %w", d.index, len(unsynced), err)
	}
	newest, err := d.inNewest(ctx)
	if err != nil {
		return err
	}
	if !newest || d.link.session != c.epoch || c.torn { // a device notices within a day
		return nil
	}
	if lacks := before.and(c.has).minus(d.has); lacks.last() >= 0 {
		return fmt.Errorf("S9: device %d has synced, and lacks commit %s", d.index, d.w.graph.nodes[lacks.last()].c.ID.Short())
	}
	c.has = c.has.or(d.has)
	d.link.epoch = c.epoch
	return nil
}

// reupload repairs the bucket.
func (d *device) reupload(ctx context.Context, stop int) error {
	if err := d.leave(); err != nil {
		return err
	}
	ring, err := d.w.connect(ctx, seeded(d.w.h.Seed, uint64(d.index)<<40|1<<38|d.link.opened))
	if err != nil {
		return err
	}
	d.link.ring = ring
	d.join()
	missing := 0
	d.w.cloud.stats.Reuploads++
	err = d.call(ctx, stop, func(ctx context.Context) (err error) {
		missing, err = d.link.page.Reupload(ctx)
		return err
	})
	if failed := d.learn(ctx); failed != nil {
		return errors.Join(failed, err)
	}
	if failed := d.judge("reupload", err, errStopped); failed != nil || err != nil {
		return failed
	}
	d.w.renewed()
	d.link.session = d.w.cloud.epoch
	if missing > 0 && !d.w.cloud.lossy {
		d.w.trace("device %d misses %d pieces", d.index, missing)
	}
	return d.inStep(ctx, set{}.with(0))
}

// renewed is called after a new epoch that not all devices have entered. The log then has only the
// commits that devices send again.
func (w *World) renewed() {
	var has set
	for _, d := range w.devices {
		has = has.or(d.has)
	}
	for i := range w.graph.nodes {
		if !has.has(i) {
			w.excused = w.excused.with(i)
		}
	}
	w.cloud.has = set{}.with(0)
	w.cloud.epoch++
	w.cloud.lossy = w.cloud.lossy || w.dropped
	w.forgetful = w.forgetful || w.retained // each device merges with its remaining history
	w.trace("the log begins anew")
}

// inBucket reports whether the bucket has everything that the device has.
func (d *device) inBucket(ctx context.Context) (bool, error) {
	if d.link.session != d.w.cloud.epoch || d.link.epoch != d.w.cloud.epoch {
		return false, nil
	}
	unsynced, err := d.s.Unsynced(ctx)
	if err != nil || len(unsynced) > 0 {
		return false, err
	}
	tags, err := d.s.UnsyncedTags(ctx)
	if err != nil || len(tags) > 0 {
		return false, err
	}
	local := 0
	count := func(object.Digest) error { local++; return nil }
	if err = d.s.LocalPieces(ctx, count); local == 0 || err != nil {
		return err == nil, err
	}
	// Pieces that only given up commits need are not sent again. The collector deletes them, except
	// when commits without trees exist, which may need them as far as the collector can tell.
	local = 0
	for c := d.s.NewCollector(storage.CollectOptions{}); c.Stats().Cycles < 4 && err == nil; {
		_, err = c.Step(ctx)
	}
	if err == nil {
		err = d.s.LocalPieces(ctx, count)
	}
	if local == 0 || err != nil {
		return err == nil, err
	}
	needed, err := d.needed(ctx)
	if err != nil {
		return false, err
	}
	local = 0
	err = d.s.LocalPieces(ctx, func(p object.Digest) error {
		if needed[p] {
			local++
		}
		return nil
	})
	return local == 0, err
}

// needed returns the pieces of the trees and explanations that the device stores.
func (d *device) needed(ctx context.Context) (map[object.Digest]bool, error) {
	all := map[object.Digest]bool{}
	values := func(root object.Digest) error {
		return d.walkValues(ctx, root, func(e *fb.Entry) error {
			err := split.Walk(ctx, d.s, e.Digest, func(p object.Digest, _ uint64) error { all[p] = true; return nil })
			if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNeedsFetch) {
				return nil
			}
			return err
		})
	}
	ids, err := d.s.FindCommits(ctx, nil, false, 1<<30)
	for _, id := range ids {
		if err != nil {
			break
		}
		var c *commit.Commit
		var root object.Digest
		held := false
		if c, err = d.s.Commit(ctx, id); err == nil {
			held, err = d.s.TreeHeld(ctx, c)
		}
		if err == nil && held {
			err = values(c.Root)
		}
		if err == nil {
			root, held, err = d.s.Explanation(ctx, id)
		}
		if err == nil && held {
			err = values(root)
		}
	}
	return all, err
}

// restart ends the process of the device, and starts it on another disk.
func (d *device) restart(ctx context.Context, disk *vfstest.Mem, rows *index.Memory) error {
	if err := d.shut(); err != nil {
		return err
	}
	d.mem, d.rows = disk, rows
	return d.open(ctx)
}

// forget removes rows of metadata.
func (d *device) forget(ctx context.Context, mask uint64) error {
	rows := []string{cloudsync.MetadataPosition}
	var b storage.SyncBatch
	for i, row := range rows {
		if mask == 0 || mask>>i&1 == 1 {
			b.Metadata = append(b.Metadata, storage.Metadata{Type: row})
		}
	}
	if err := d.leave(); err != nil {
		return err
	}
	p, err := d.s.SubmitSync(ctx, nil, &b)
	if err == nil {
		err = p.Wait()
	}
	d.join()
	return err
}
