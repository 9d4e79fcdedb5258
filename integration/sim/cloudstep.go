package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// cloudStep carries out a step that involves the bucket.
func (w *World) cloudStep(ctx context.Context, d *device, s Step) error {
	if w.cloud == nil {
		return nil
	}
	c := w.cloud
	switch s.Kind {
	case Sync:
		_, err := d.sync(ctx, s.Stop)
		return err
	case SyncCrash:
		return d.syncCrash(ctx, s)
	case Network:
		d.link.offline = s.Base == 0
	case Read:
		return d.read(ctx, s.Base)
	case Fetch:
		return d.fetch(ctx, s.Stop)
	case Drop:
		return d.drop(ctx, s.Heads)
	case Evict:
		return d.evict(ctx)
	case Build:
		return d.build(ctx, d.received[len(d.received)-1-s.Base%len(d.received)], s.Stop)
	case Tag:
		return d.tag(ctx, s)
	case Checkpoint:
		return d.upkeep(ctx, "checkpoint", s.Stop, d.link.page.Checkpoint)
	case Collect:
		return d.upkeep(ctx, "collect", s.Stop, func(ctx context.Context) error {
			r, err := d.link.page.CollectGarbage(ctx, cloudsync.GCOptions{})
			if err == nil {
				c.stats.Deleted += r.DeletedObjects
			}
			return err
		})
	case Retain:
		w.retained, w.graph.short = true, true
		return d.upkeep(ctx, "set retention", s.Stop, func(ctx context.Context) error {
			return d.link.page.SetRetention(ctx, cloudsync.Retention{Last: uint64(s.Base)})
		})
	case GiveUp:
		return d.giveUp(ctx, s.Stop)
	case Backup:
		d.link.backup = &backup{rows: d.rows.Clone(), mem: d.mem.CrashClone(vfstest.KeepAll), ring: d.link.ring, epoch: d.link.epoch,
			has: d.has, pruned: d.pruned, never: d.never, received: slices.Clone(d.received), heads: d.heads, told: maps.Clone(d.told)}
	case Restore:
		for i := range w.devices {
			if from := w.devices[(s.Peer+i)%len(w.devices)]; from.link.backup != nil {
				return d.restore(ctx, from.link.backup, s.Apart || from != d)
			}
		}
	case Forget:
		w.trace("device %d forgets rows %b", d.index, s.Heads)
		return d.forget(ctx, s.Heads)
	case Keep:
		c.kept = &keptBucket{c.b.State(), c.has, c.epoch}
	case Rollback:
		if c.kept != nil {
			// A device that has uploaded packs since then, and no entry, does not notice the
			// rollback. It announces the packs all the same, and no device can read on until one
			// uploads again.
			c.torn = true
			return w.trouble(ctx, "rolled back", c.kept.has, s.Apart, func() { c.b.Rollback(c.kept.state) })
		}
	case Wipe:
		return w.trouble(ctx, "wiped", set{}.with(0), s.Apart, c.b.Wipe)
	case Clone:
		return w.clone(ctx)
	case Reset:
		d.skew.Store(int64(s.Base) * int64(7*24*time.Hour))
	case Lose:
		return w.lose(ctx, s.Base)
	case Reupload:
		return d.reupload(ctx, s.Stop)
	}
	return nil
}

// trouble changes the bucket, which then has only some commits, and restarts all processes unless
// they go on. A device checks at its start that the bucket is unchanged. It also checks before it
// appends to a log that it has not looked at for an hour. Until then it may put entries above a
// hole.
func (w *World) trouble(ctx context.Context, what string, has set, goOn bool, change func()) error {
	change()
	w.cloud.epoch++
	w.cloud.has = has
	w.cloud.lossy = w.cloud.lossy || w.dropped
	w.excuseEvicted()
	w.trace("the bucket is %s, processes go on: %t", what, goOn)
	if goOn {
		w.cloud.torn = true
		return nil
	}
	for _, d := range w.devices {
		if err := d.reopen(ctx); err != nil {
			return err
		}
	}
	return nil
}

// excuseEvicted excuses commits that only evicted pages had, when the bucket has lost them too: an
// eviction leaves the content of the page to the bucket alone.
func (w *World) excuseEvicted() {
	lost := w.evicted.minus(w.cloud.has)
	for _, d := range w.devices {
		lost = lost.minus(d.has)
	}
	w.excused = w.excused.or(lost)
}

// lose removes an object from the bucket. Content that no device has any more may be lost with it.
func (w *World) lose(ctx context.Context, n int) error {
	var names []string
	for _, name := range w.cloud.b.Names() {
		if strings.Contains(name, "/log/") || strings.Contains(name, "/epochs/") || strings.Contains(name, "/packs/") || strings.Contains(name, "/checkpoints/") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	name := names[n%len(names)]
	w.trace("the bucket loses %s", name)
	w.cloud.bereft = w.cloud.bereft || w.cloud.torn && strings.Contains(name, "/checkpoints/")
	w.cloud.torn = true
	w.renewed()
	w.now.Add(int64(time.Minute)) // it was written a while ago
	return w.cloud.b.Delete(ctx, name)
}

// clone makes a new device from the bucket. The clone may receive only part of the content, or
// nothing.
func (w *World) clone(ctx context.Context) error {
	if len(w.devices) >= maxDevices {
		return nil
	}
	d, err := w.newClone(ctx)
	if err == nil {
		_, err = d.sync(ctx, 0)
	}
	return err
}

// maxDevices bounds the number of devices, including clones.
const maxDevices = 8

// newClone makes a device that connects to the bucket.
func (w *World) newClone(ctx context.Context) (*device, error) {
	d, err := w.newDevice(ctx, Device{Name: "clone"}, len(w.devices))
	if err != nil {
		return nil, err
	}
	w.devices = append(w.devices, d) // so that it is closed
	ring, err := w.connect(ctx, seeded(w.h.Seed, 1<<33|uint64(d.index)))
	if err != nil {
		return nil, err
	}
	if err := d.leave(); err != nil {
		return nil, err
	}
	d.link.ring = ring
	d.join()
	return d, nil
}

// upkeep is a call that syncs first.
func (d *device) upkeep(ctx context.Context, what string, stop int, fn func(context.Context) error) error {
	before := d.w.cloud.has
	err := d.call(ctx, stop, fn)
	if failed := d.learn(ctx); failed != nil {
		return errors.Join(failed, err)
	}
	if failed := d.judge(what, err, errStopped); failed != nil || err != nil {
		return failed
	}
	if unsynced, err := d.s.Unsynced(ctx); err != nil || len(unsynced) > 0 { // after its sync it found an epoch of another device
		return err
	}
	return d.inStep(ctx, before)
}

// entryAt returns the entry with a number, modulo their count, of the newest head.
func (d *device) entryAt(ctx context.Context, n int) (e fb.Entry, want string, ok bool, err error) {
	head := d.heads[len(d.heads)-1]
	all := keys(head.content)
	if len(all) == 0 {
		return e, "", false, nil
	}
	k := all[n%len(all)]
	c := d.tree(d.s, head.c.Root).Cursor()
	ok, err = c.Seek(ctx, []byte(k))
	if err == nil && (!ok || string(c.Entry().Key) != k) {
		err = fmt.Errorf("S1: device %d has no key %s", d.index, k)
	}
	if err != nil {
		return e, "", false, err
	}
	return c.Entry(), head.content[k], true, nil
}

// read reads a value, and fetches it if necessary.
func (d *device) read(ctx context.Context, n int) error {
	e, want, ok, err := d.entryAt(ctx, n)
	if !ok || err != nil || e.Inline {
		return err
	}
	var b bytes.Buffer
	err = d.call(ctx, 0, func(ctx context.Context) error {
		_, err := split.NewReader(ctx, d.s, e.Digest, e.Size).WriteTo(&b)
		return err
	})
	if err == nil && b.String() != want {
		return fmt.Errorf("S1: device %d reads another value of %s", d.index, e.Key)
	}
	if err := d.learn(ctx); err != nil { // the read may have caught up with the log
		return err
	}
	return d.judge("read "+string(e.Key), err, d.unsent()...)
}

// walkValues calls fn with the root of each long value of a tree.
func (d *device) walkValues(ctx context.Context, root object.Digest, fn func(e *fb.Entry) error) error {
	c := d.tree(d.s, root).Cursor()
	ok, err := c.First(ctx)
	for ; ok && err == nil; ok, err = c.Next(ctx) {
		if e := c.Entry(); !e.Inline {
			if err := fn(&e); err != nil {
				return err
			}
		}
	}
	return err
}

// fetch fetches all values of the newest head.
func (d *device) fetch(ctx context.Context, stop int) error {
	err := d.call(ctx, stop, func(ctx context.Context) error {
		var roots []object.Digest
		root := d.heads[len(d.heads)-1].c.Root
		err := d.walkValues(ctx, root, func(e *fb.Entry) error { roots = append(roots, e.Digest); return nil })
		if err != nil {
			return err
		}
		if _, err := d.link.page.Fetch(ctx, roots); err != nil {
			return err
		}
		var pieces []object.Digest
		for _, r := range roots {
			err := split.Walk(ctx, d.s, r, func(p object.Digest, _ uint64) error { pieces = append(pieces, p); return nil })
			if err != nil {
				return err
			}
		}
		_, err = d.link.page.Fetch(ctx, pieces)
		return err
	})
	if err := d.learn(ctx); err != nil { // the fetch may have caught up with the log
		return err
	}
	return d.judge("fetch", err, append(d.unsent(), errStopped)...)
}

// unsent returns the errors that a read of a value may return. The bucket may have lost a value
// that others have, until they send it again. Or only versions below the heads of the device had
// the value, and others gave these up a month ago.
func (d *device) unsent() []error {
	w := d.w
	below := d.heads[len(d.heads)-1].above.and(w.pruned)
	if w.cloud.epoch == 0 && (below.last() <= 0 || w.now.Load() <= int64(30*24*time.Hour)) {
		return nil
	}
	return []error{base.ErrGone}
}

// drop drops pieces that the bucket has.
func (d *device) drop(ctx context.Context, mask uint64) error {
	placed, err := d.s.PlacedIn(ctx, func(storage.CloudPlace) bool { return true })
	if err != nil {
		return err
	}
	sent, err := cloudsync.Sent(ctx, d.s)
	if err != nil {
		return err
	}
	placed = slices.DeleteFunc(placed, func(p storage.PlacedPiece) bool { return sent(&p.Place) })
	var ds []object.Digest
	for _, p := range placed {
		if mask == 0 || mask>>(p.Digest[len(p.Digest)-1]%16)&1 == 1 {
			ds = append(ds, p.Digest)
		}
	}
	slices.SortFunc(ds, object.Digest.Compare)
	free, err := d.s.DropPieces(ctx, ds)
	d.w.trace("device %d drops %d pieces, %d bytes", d.index, len(ds), free)
	d.w.givesUp()
	return err
}

// gaveUpLongAgo reports whether a device may commit a value that it does not hold, after the bucket
// has deleted the value with given-up versions. A device does not hold what it has dropped, or a
// lazy value that it has never read. docs/sync.md: its version was given up more than 30 days
// before.
func (w *World) gaveUpLongAgo(lazy bool) bool {
	return w.retained && (w.dropped || lazy) && w.now.Load() > int64(30*24*time.Hour)
}

// givesUp records that the bucket may have the only copy of something.
func (w *World) givesUp() {
	w.dropped = true
	w.cloud.lossy = w.cloud.lossy || w.cloud.epoch > 0
}

// evict evicts the page.
func (d *device) evict(ctx context.Context) error {
	ok, err := d.inBucket(ctx)
	if err := errors.Join(err, d.learn(ctx)); !ok || err != nil { // a fetch may have caught up with the log
		return err
	}
	newest, err := d.inNewest(ctx)
	if err != nil {
		return err
	}
	if newest { // else a renewal may lack commits of this device and of the former log
		d.w.cloud.has = d.w.cloud.has.or(d.has)
	}
	disk := vfstest.NewMem()
	if err := errors.Join(disk.MkdirAll("repo"), disk.SyncDir(".")); err != nil {
		return err
	}
	d.w.givesUp()
	d.w.evicted = d.w.evicted.or(d.has)
	d.w.cloud.stats.Evictions++
	d.knowNothing()
	d.w.trace("device %d is evicted", d.index)
	return d.restart(ctx, disk, index.NewMemory())
}

// build builds the tree of an older commit.
func (d *device) build(ctx context.Context, n *node, stop int) error {
	if n.c.IsFirst() || d.pruned.has(n.index) {
		return nil
	}
	err := d.call(ctx, stop, func(ctx context.Context) error { return d.link.page.BuildTree(ctx, n.c.ID) })
	if err := d.learn(ctx); err != nil { // the call may have caught up with the log
		return err
	}
	targets := []error{errStopped}
	if d.w.mayRenew() {
		targets = append(targets, base.ErrGone, base.ErrNotFound, base.ErrNeedsFetch)
	}
	if d.w.retained && d.w.pruned.has(n.index) { // others have given it up, and the bucket has deleted it
		targets = append(targets, base.ErrGone, base.ErrNotFound)
	}
	if failed := d.judge("build "+n.c.ID.Short(), err, targets...); failed != nil || err != nil {
		return failed
	}
	got, err := d.content(ctx, n.c.Root)
	if err != nil {
		return err
	}
	if diff := changed(got, n.content); len(diff) > 0 {
		return fmt.Errorf("S1: device %d has built commit %s with another %s", d.index, n.c.ID.Short(), diff[0])
	}
	return nil
}

// removed marks the removal of a tag.
var removed commit.ID

// base returns the commit n before the newest received one, if the device has its tree.
func (d *device) base(ctx context.Context, n int) (*node, error) {
	at := d.received[len(d.received)-1-n%len(d.received)]
	if d.w.retained {
		if d.pruned.has(at.index) {
			return d.heads[len(d.heads)-1], nil
		}
	} else if d.w.prunedAbove(at) {
		return d.heads[len(d.heads)-1], nil
	}
	if at.c.IsFirst() || d.link == nil {
		return at, nil
	}
	if held, err := d.s.TreeHeld(ctx, at.c); held || err != nil {
		return at, err
	}
	return d.heads[len(d.heads)-1], nil
}

// prunedAbove reports whether a device has pruned a commit above n. Then n may be merged with a
// commit that contained it.
func (w *World) prunedAbove(n *node) bool {
	for i := range w.pruned.all() {
		if w.graph.nodes[i].above.has(n.index) {
			return true
		}
	}
	return false
}

// giveUp makes the device give up the history outside of the bucket's retention, for all devices.
func (d *device) giveUp(ctx context.Context, stop int) error {
	var n int
	err := d.call(ctx, stop, func(ctx context.Context) error {
		r, err := d.link.page.CollectGarbage(ctx, cloudsync.GCOptions{})
		if err == nil {
			n = r.Commits
			d.w.cloud.stats.Deleted += r.DeletedObjects
		}
		return err
	})
	d.w.swept.Pruned += n
	if failed := d.learn(ctx); failed != nil {
		return errors.Join(failed, err)
	}
	d.w.trace("device %d gives up %d commits", d.index, n)
	return d.judge("give up", err, errStopped)
}

// noticePruned records the commits that the device has given up under the retention of the bucket.
// Heads and tagged commits must stay (S12).
func (d *device) noticePruned(ctx context.Context) error {
	if !d.w.retained {
		return nil
	}
	tags, err := d.s.Tags(ctx)
	if err != nil {
		return err
	}
	tagged := map[commit.ID]bool{}
	for _, id := range tags {
		tagged[id] = true
	}
	for _, n := range d.received {
		if n.c.IsFirst() || d.pruned.has(n.index) {
			continue
		}
		_, err := d.s.Commit(ctx, n.c.ID)
		if err == nil {
			continue
		}
		if !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("S1: device %d: %w", d.index, err)
		}
		if tagged[n.c.ID] {
			return fmt.Errorf("S12: device %d has given up commit %s, which is tagged", d.index, n.c.ID.Short())
		}
		if d.pinned(n.c.ID) {
			return fmt.Errorf("S12: device %d has given up commit %s, which is in use", d.index, n.c.ID.Short())
		}
		d.gaveUp(n)
	}
	return nil
}

// gaveUp records that the device has given up a commit.
func (d *device) gaveUp(n *node) {
	d.pruned, d.w.pruned = d.pruned.with(n.index), d.w.pruned.with(n.index)
	d.w.trace("device %d has given up %s", d.index, n.c.ID.Short())
}

// tag changes a tag.
func (d *device) tag(ctx context.Context, s Step) error {
	name := fmt.Sprint("tag ", s.Peer%3)
	to := d.w.cloud.tags[name]
	if to == nil {
		to = map[commit.ID]bool{}
		d.w.cloud.tags[name] = to
	}
	if s.Base < 0 {
		if err := d.s.DeleteTag(ctx, name); err != nil && !errors.Is(err, base.ErrNotFound) {
			return err
		}
		to[removed] = true
		return nil
	}
	n := d.received[len(d.received)-1-s.Base%len(d.received)]
	if n.c.IsFirst() || d.pruned.has(n.index) || d.w.pruned.has(n.index) && !d.w.retained {
		return nil
	}
	to[n.c.ID] = true
	d.w.trace("device %d tags %s as %s", d.index, n.c.ID.Short(), name)
	return d.s.SetTag(ctx, name, n.c.ID)
}

// restore replaces the disk of the device by a backup. Commits that only this device had are lost.
func (d *device) restore(ctx context.Context, b *backup, anew bool) error {
	d.w.cloud.stats.Restored++
	d.w.excused = d.w.excused.or(d.has.minus(b.has))
	d.pruned, d.never, d.lost = b.pruned, b.never, map[commit.ID]bool{}
	d.has, d.received, d.heads, d.told = b.has, slices.Clone(b.received), b.heads, maps.Clone(b.told)
	d.w.givesUp()
	rows := b.rows.Clone()
	if d.w.rng.IntN(2) == 0 {
		rows = index.NewMemory()
	}
	if anew {
		d.link.key = d.newKey()
	}
	d.w.trace("device %d is restored: heads %s", d.index, nodeIDs(d.heads))
	if err := d.shut(); err != nil {
		return err
	}
	d.link.ring, d.link.epoch = b.ring, b.epoch
	d.mem, d.rows = b.mem.CrashClone(vfstest.KeepAll), rows
	return d.open(ctx)
}

// knowNothing resets the device to a new one in the model.
func (d *device) knowNothing() {
	first := d.w.graph.nodes[0]
	d.pruned, d.never, d.lost = nil, nil, map[commit.ID]bool{}
	d.has, d.received, d.heads, d.told = set{}.with(0), []*node{first}, []*node{first}, map[*node]bool{}
}

// syncCrash syncs until the power fails, and checks the state after the restart.
func (d *device) syncCrash(ctx context.Context, s Step) error {
	rows := d.rows.Clone() // slightly older, never newer than the log
	if d.w.rng.IntN(4) == 0 {
		rows = index.NewMemory()
	}
	d.arm(s.At)
	if s.Stop > 0 {
		d.arm(-1)
	}
	d.link.wire.begins(0, nil, s.Stop, s.Apart)
	began, asked := d.w.now.Load(), d.link.wire.counted()
	err := d.link.page.Sync(ctx)
	if d.dark() {
		d.w.now.Store(began + int64(brokenTime))
		defer func() { d.link.wire.forgo(asked) }()
	}
	if failed := d.judge("sync while the power fails", err, errCrash); failed != nil {
		return failed
	}
	d.w.cloud.stats.Crashes++
	acked := err == nil && d.link.session == d.w.cloud.epoch
	merges := d.link.merges
	d.link.merges = nil
	if err := d.comeBack(ctx, rows); err != nil {
		return err
	}
	for i := range merges {
		if _, err := d.s.Commit(ctx, merges[i].Commit.ID); errors.Is(err, base.ErrNotFound) {
			continue
		} else if err != nil {
			return fmt.Errorf("S1: after a crash: %w", err)
		}
		if err := d.madeMerge(ctx, &merges[i]); err != nil {
			return err
		}
	}
	if err := d.learn(ctx); err != nil {
		return err
	}
	if newest, err := d.inNewest(ctx); !acked || !newest || err != nil { // see evict
		return err
	}
	d.w.cloud.has = d.w.cloud.has.or(d.has)
	return nil
}

// arm makes the power fail after a number of file system operations; -1: never.
func (d *device) arm(at int) {
	d.power.Lock()
	defer d.power.Unlock()
	d.fails, d.torn = at, d.w.rng.Uint64()
}

// dark reports whether the power has failed.
func (d *device) dark() bool {
	d.power.Lock()
	defer d.power.Unlock()
	return d.left != nil
}

// cutPower makes the power fail, if it has not failed yet.
func (d *device) cutPower() {
	d.power.Lock()
	defer d.power.Unlock()
	if d.left == nil {
		d.left = d.mem.CrashClone(vfstest.KeepSome(d.torn))
	}
}

// comeBack makes the power fail, if it has not failed yet, and opens the remaining disk.
func (d *device) comeBack(ctx context.Context, rows *index.Memory) error {
	d.cutPower()
	_ = d.shut() // on a disk without power
	d.power.Lock()
	d.mem, d.rows, d.left, d.fails = d.left, rows, nil, -1
	d.power.Unlock()
	if err := d.open(ctx); err != nil {
		return fmt.Errorf("S1: open after a crash: %w", err)
	}
	return nil
}

// treeSource reads the nodes of a commit's tree for a merge. The bases of the merge may be
// treeless.
type treeSource struct {
	btree.Source
	d  *device
	id commit.ID
}

// mergeTree returns the tree of a commit, with nodes from src and fetched ones.
func (d *device) mergeTree(src btree.Source, c *commit.Commit) btree.Tree {
	return btree.Tree{Page: d.w.page, Source: treeSource{src, d, c.ID}, Root: c.Root}
}

// Node implements btree.Source.
func (t treeSource) Node(ctx context.Context, digest object.Digest) (*fb.Node, error) {
	n, err := t.Source.Node(ctx, digest)
	w, q := t.d.w, t.d.w.graph.byID[t.id]
	if err == nil || t.d.link == nil || q == nil || !errors.Is(err, base.ErrNeedsFetch) {
		return n, err
	}
	if err := t.d.link.page.BuildTree(ctx, t.id); err != nil {
		givenUp := w.retained && w.pruned.has(q.index)
		if errors.Is(err, base.ErrGone) && !t.d.lost[t.id] && (givenUp || w.mayRenew()) {
			t.d.lost[t.id] = true
			if err = errTreeLost; givenUp {
				t.d.pruned = t.d.pruned.with(q.index)
			} else {
				w.forgetful = true
			}
		}
		return nil, fmt.Errorf("fetch the tree of commit %s: %w", t.id.Short(), err)
	}
	return t.Source.Node(ctx, digest)
}

// valueSource reads values for a merge. A merge rule is not called for a lost value.
type valueSource struct {
	split.Source
	d *device
}

// Piece implements split.Source.
func (v valueSource) Piece(ctx context.Context, id object.Digest) ([]byte, error) {
	b, err := v.Source.Piece(ctx, id)
	if w := v.d.w; errors.Is(err, base.ErrGone) && (w.lossy() || w.retained && (w.dropped || w.forsook) || w.gaveUpLongAgo(true)) {
		w.forgetful = true
	}
	return b, err
}

// errTreeLost ends a merge that needs a lost tree; the next merge does without.
var errTreeLost = errors.New("a tree is lost")

func (d *device) isLost(id commit.ID) bool { return d.lost[id] }

// longValue returns the value with a given root, if it is recorded.
func (w *World) longValue(root object.Digest) (string, bool) {
	v, ok := w.values[root]
	return v, ok
}

// knowValue records the value with a given root.
func (w *World) knowValue(root object.Digest, v string) {
	w.values[root] = v
}
