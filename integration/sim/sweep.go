package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// SweepResult counts commits given up and garbage collected on devices.
type SweepResult struct {
	// Steps counts steps of collectors, Deleted the pieces and nodes that they deleted, Aborted
	// those found to be in use.
	Steps, Deleted, Aborted int
	// Pruned counts commits, once on each device that pruned them. Snapshots counts those read to
	// the end.
	Pruned, Snapshots int
	// Rewritten counts rewritten segments.
	Rewritten int
}

func (r *SweepResult) add(o SweepResult) {
	r.Steps += o.Steps
	r.Deleted += o.Deleted
	r.Aborted += o.Aborted
	r.Pruned += o.Pruned
	r.Snapshots += o.Snapshots
	r.Rewritten += o.Rewritten
}

// workshop is the unfinished work of a process besides its store. It is lost when the process ends.
type workshop struct {
	turn      sync.Mutex
	collector *storage.Collector // guarded by turn
	err       error              // guarded by turn: of a step before a request
	counted   storage.CollectStats
	snapshots []snapshot
	open      []*transaction
}

type snapshot struct {
	n       *node
	release func()
}

// transaction is a transaction of several steps.
type transaction struct {
	j       *storage.Journal
	parent  *node
	release func()
	changes []Change
}

func (d *device) newShop() {
	d.shop.turn.Lock()
	defer d.shop.turn.Unlock()
	d.shop.collector = d.s.NewCollector(storage.CollectOptions{Candidates: 1 + int(d.w.h.Seed%7)*40, Deletions: 1 + int(d.w.h.Seed%3)*2})
	d.shop.counted = storage.CollectStats{}
}

// clearShop gives up the unfinished work of the process.
func (d *device) clearShop() {
	for _, t := range d.shop.open {
		t.j.Rollback()
		t.release()
	}
	for _, s := range d.shop.snapshots {
		s.release()
	}
	d.shop.open, d.shop.snapshots = nil, nil
}

// sweep runs one step of the collector (S12).
func (d *device) sweep(ctx context.Context) error {
	d.shop.turn.Lock()
	defer d.shop.turn.Unlock()
	return d.sweepLocked(ctx)
}

func (d *device) sweepLocked(ctx context.Context) error {
	if _, err := d.shop.collector.Step(ctx); err != nil {
		return fmt.Errorf("S12: device %d: %w", d.index, err)
	}
	was, is, r := d.shop.counted, d.shop.collector.Stats(), &d.w.swept
	r.Steps++
	r.Deleted += is.Pieces + is.Nodes - was.Pieces - was.Nodes
	r.Aborted += is.Aborted - was.Aborted
	d.shop.counted = is
	return nil
}

// sweepBeside runs a step of the collector before a request of the device. It does nothing when a
// power failure is armed, because the writes of the call determine its time.
func (d *device) sweepBeside() {
	d.power.Lock()
	armed := d.fails >= 0
	d.power.Unlock()
	if armed {
		return
	}
	d.shop.turn.Lock()
	defer d.shop.turn.Unlock()
	if err := d.sweepLocked(context.Background()); err != nil && !d.dark() {
		d.shop.err = errors.Join(d.shop.err, err)
	}
}

// sweptBeside returns the error of collector steps before requests.
func (d *device) sweptBeside() error {
	d.shop.turn.Lock()
	defer d.shop.turn.Unlock()
	return d.shop.err
}

// shopStep carries out a step that involves garbage.
func (w *World) shopStep(ctx context.Context, d *device, s Step) error {
	switch s.Kind {
	case Sweep:
		for range s.Base {
			if err := d.sweep(ctx); err != nil {
				return err
			}
		}
	case SweepCrash:
		return d.sweepCrash(ctx, s)
	case Compact:
		return d.compact(ctx, s.Apart)
	case Prune:
		return d.prune(ctx, s.Base)
	case Pin:
		return d.pin(ctx, s.Base)
	case Unpin:
		return d.unpin(ctx)
	case Begin:
		return d.begin(ctx, s.Changes, s.Apart)
	case End:
		return d.end(ctx, s.Apart)
	}
	return nil
}

// prune gives up all commits except the newest ones and those that the state of the device, or
// merging with others, needs.
func (d *device) prune(ctx context.Context, keep int) error {
	ids, err := d.unwanted(ctx, keep)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := d.forsake(ctx); err != nil {
		return err
	}
	before := d.pruned
	d.markPruned(ids)
	kept, err := cloudsync.Prune(ctx, d.s, ids)
	if len(kept) > 0 != errors.Is(err, base.ErrConflict) {
		return fmt.Errorf("S12: device %d: prune keeps %d commits: %w", d.index, len(kept), err)
	}
	if err != nil && len(kept) == 0 {
		return err
	}
	for _, id := range kept {
		if !d.uses(id) {
			return fmt.Errorf("S12: device %d: prune keeps commit %s, which nobody uses", d.index, id.Short())
		}
		if n := d.w.graph.byID[id]; !before.has(n.index) {
			d.pruned = d.pruned.minus(set{}.with(n.index))
		}
	}
	for _, id := range ids {
		if slices.Contains(kept, id) {
			continue
		}
		if d.pinned(id) {
			return fmt.Errorf("S12: device %d has pruned commit %s, of which it has a snapshot or on which it has a transaction", d.index, id.Short())
		}
		if _, err := d.s.Commit(ctx, id); !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("S12: device %d has pruned commit %s: %w", d.index, id.Short(), err)
		}
		d.w.swept.Pruned++
	}
	d.w.trace("device %d prunes %d commits, and keeps %d of them", d.index, len(ids), len(kept))
	return nil
}

// unwanted returns the commits of the device that may be given up.
func (d *device) unwanted(ctx context.Context, keep int) ([]commit.ID, error) {
	var unsynced []commit.ID
	if d.link != nil {
		var err error
		if unsynced, err = d.s.Unsynced(ctx); err != nil {
			return nil, err
		}
	}
	page := gc.Page{History: d.w.graph, Keep: unsynced}
	for _, id := range unsynced { // their differences from their parents are still to be sent
		for _, p := range d.w.graph.byID[id].c.Parents {
			page.Heads = append(page.Heads, d.w.graph.byID[p].c)
		}
	}
	if d.w.cloud != nil { // tags of other devices
		for _, ids := range d.w.cloud.tags {
			page.Keep = slices.AppendSeq(page.Keep, maps.Keys(ids))
		}
	}
	for _, other := range d.w.devices { // commits that are merged with them later
		tops := other.heads
		if other.link != nil && other.link.backup != nil {
			tops = append(slices.Clone(tops), other.link.backup.heads...)
		}
		for _, t := range other.shop.open {
			tops = append(slices.Clone(tops), t.parent)
		}
		for _, n := range tops {
			page.Heads = append(page.Heads, n.c)
		}
	}
	all, err := gc.Prune(ctx, page, gc.Policy{Commits: max(keep, 1)}, d.Now())
	var ids []commit.ID
	for _, id := range all {
		if n := d.w.graph.byID[id]; d.has.has(n.index) && !d.pruned.has(n.index) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// forsake forgets the bucket, as a page does before it gives up history without one.
func (d *device) forsake(ctx context.Context) error {
	if d.link == nil {
		return nil
	}
	if err := d.leave(); err != nil {
		return err
	}
	err := cloudsync.Forget(ctx, d.s)
	d.w.forsook = true
	d.join()
	return err
}

func (d *device) markPruned(ids []commit.ID) {
	for _, id := range ids {
		i := d.w.graph.byID[id].index
		d.pruned = d.pruned.with(i)
		d.w.pruned, d.w.unnoted = d.w.pruned.with(i), d.w.unnoted.with(i)
		if d.link != nil { // a checkpoint may return it, without explanations
			delete(d.told, d.w.graph.nodes[i])
		}
	}
}

// uses reports whether Prune must skip a commit. A transaction keeps the heads at its begin.
func (d *device) uses(id commit.ID) bool {
	n := d.w.graph.byID[id]
	return slices.Contains(d.heads, n) || len(d.shop.open) > 0 || slices.ContainsFunc(d.shop.snapshots, func(s snapshot) bool { return s.n == n })
}

// pinned reports whether a snapshot of a commit, or a transaction on it, is open.
func (d *device) pinned(id commit.ID) bool {
	return slices.ContainsFunc(d.shop.snapshots, func(s snapshot) bool { return s.n.c.ID == id }) ||
		slices.ContainsFunc(d.shop.open, func(t *transaction) bool { return t.parent.c.ID == id })
}

// mayLack reports whether a required commit is gone because it was pruned, by this device or by the
// senders of commits.
func (d *device) mayLack(ctx context.Context, n *node) (bool, error) {
	if n.c.IsFirst() {
		return false, nil
	}
	_, err := d.s.Commit(ctx, n.c.ID)
	if err == nil {
		return false, nil
	}
	if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNotFound) {
		switch stray, strayErr := d.strays(ctx, n); {
		case d.w.pruned.has(n.index) || d.w.retained:
			d.gaveUp(n)
			return true, nil
		case strayErr != nil:
			return false, strayErr
		case stray, d.passesBy(n):
			d.pruned = d.pruned.with(n.index)
			return true, nil
		}
	}
	return false, fmt.Errorf("S1: device %d: %w", d.index, err)
}

// passesBy reports whether a device may lack a commit because it has read past its source. A device
// that passes an entry that renews the log, and finds no checkpoint, goes on without the commits of
// that checkpoint. A device that has given up history accepts the commits sent again after the loss
// of a bucket without their parents.
func (d *device) passesBy(n *node) bool {
	if d.w.cloud == nil || d.has.has(n.index) {
		return false
	}
	return d.w.cloud.bereft || d.w.cloud.epoch > 0 && d.w.unnoted.last() >= 0
}

// strays reports whether a commit, which the device never had and will not receive, is unreachable
// from its heads and tags: its descendants were pruned, and it has no tag. A commit that had a tag
// when the others were pruned is kept until the next pruning. A checkpoint contains only commits
// that heads and tags reach, so it lacks this one.
func (d *device) strays(ctx context.Context, n *node) (bool, error) {
	if d.pruned.has(n.index) {
		return true, nil
	}
	if d.has.has(n.index) || d.link == nil {
		return false, nil
	}
	tags, err := d.s.Tags(ctx)
	if err != nil {
		return false, err
	}
	var next []*node
	for _, c := range d.s.Heads() {
		next = append(next, d.w.graph.byID[c.ID])
	}
	for _, id := range tags {
		next = append(next, d.w.graph.byID[id])
	}
	for seen := (set{}); len(next) > 0; {
		q := next[len(next)-1]
		next = next[:len(next)-1]
		if q == n {
			return false, nil
		}
		if !seen.has(q.index) && !d.w.pruned.has(q.index) {
			seen, next = seen.with(q.index), append(next, q.parents...)
		}
	}
	return true, nil
}

// pin takes a snapshot of a commit, if its tree is stored here.
func (d *device) pin(ctx context.Context, back int) error {
	n := d.received[len(d.received)-1-back%len(d.received)]
	if d.pruned.has(n.index) {
		return nil
	}
	release := d.s.Pin(n.c.ID)
	if held, err := d.s.TreeHeld(ctx, n.c); !held || err != nil {
		release()
		return err
	}
	d.w.trace("device %d takes a snapshot of %s", d.index, n.c.ID.Short())
	d.shop.snapshots = append(d.shop.snapshots, snapshot{n, release})
	return nil
}

// unpin reads the oldest snapshot and closes it (S12).
func (d *device) unpin(ctx context.Context) error {
	if len(d.shop.snapshots) == 0 {
		return nil
	}
	s := d.shop.snapshots[0]
	d.shop.snapshots = d.shop.snapshots[1:]
	defer s.release()
	d.w.swept.Snapshots++
	return d.readHeld(ctx, s.n, false)
}

// begin begins a transaction, or continues one. If hold is set, its puts stay in memory.
func (d *device) begin(ctx context.Context, changes []Change, hold bool) error {
	var t *transaction
	if len(d.shop.open) < 2 {
		head := d.heads[len(d.heads)-1]
		t = &transaction{j: d.s.NewJournal(), parent: head, release: d.s.Pin(head.c.ID)}
		d.shop.open = append(d.shop.open, t)
	} else {
		t = d.shop.open[len(d.shop.open)-1]
	}
	t.changes = append(t.changes, changes...)
	for _, c := range changes {
		if v := c.apply(t.parent.value(c.Key)); v != absent {
			if _, err := d.entry(ctx, t.j, c.Key, v); err != nil {
				return err
			}
		}
	}
	d.w.trace("device %d goes on with a transaction on %s", d.index, t.parent.c.ID.Short())
	if hold {
		return nil
	}
	return t.j.Flush(ctx)
}

// end ends the oldest transaction.
func (d *device) end(ctx context.Context, giveUp bool) error {
	if len(d.shop.open) == 0 {
		return nil
	}
	t := d.shop.open[0]
	d.shop.open = d.shop.open[1:]
	defer t.release()
	defer t.j.Rollback()
	d.w.trace("device %d ends a transaction on %s, given up: %t", d.index, t.parent.c.ID.Short(), giveUp)
	if giveUp {
		return nil
	}
	c, content, p, err := d.submitJournal(ctx, t.j, t.parent, t.changes)
	if c == nil || err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return err
	}
	_, err = d.made(c, content)
	return err
}

// sweepCrash collects until the power fails.
func (d *device) sweepCrash(ctx context.Context, s Step) error {
	rows := d.rows.Clone()
	var gone []commit.ID
	var err error
	if s.Apart {
		if gone, err = d.unwanted(ctx, s.Base); err != nil {
			return err
		}
		if err = d.forsake(ctx); err != nil {
			return err
		}
		d.markPruned(gone)
	}
	d.arm(s.At)
	if len(gone) > 0 {
		_, err = cloudsync.Prune(ctx, d.s, gone)
	}
	for i := 0; i <= s.Base && err == nil; i++ {
		err = d.sweep(ctx)
	}
	if err == nil && s.Heads != 0 {
		err = d.compact(ctx, false)
	}
	if err != nil && !errors.Is(err, errCrash) && !errors.Is(err, base.ErrConflict) {
		return err
	}
	d.w.trace("device %d crashes while it sweeps", d.index)
	return d.comeBack(ctx, rows)
}

// compact rewrites segments.
func (d *device) compact(ctx context.Context, half bool) error {
	share := 0.001
	if half {
		share = 0
	}
	r, err := d.s.Compact(ctx, storage.CompactOptions{MinDeadShare: share})
	if err != nil {
		return fmt.Errorf("S12: device %d: %w", d.index, err)
	}
	d.w.swept.Rewritten += r.Replaced
	d.w.trace("device %d compacts: %d segments", d.index, r.Replaced)
	return nil
}

// readHeld reads the stored part of a commit whose tree the device has, and compares it with the
// model (S12). A piece that is not stored must be in the bucket, unless nowhere is set.
func (d *device) readHeld(ctx context.Context, n *node, nowhere bool) error {
	got := map[string]string{}
	r := reach{d: d, all: map[object.Digest]bool{}, any: nowhere, entry: func(e *fb.Entry) error {
		if e.Inline {
			got[string(e.Key)] = string(e.Value)
		} else {
			got[string(e.Key)], _ = d.w.longValue(e.Digest)
		}
		return nil
	}}
	if err := r.tree(ctx, n.c.Root); err != nil {
		return fmt.Errorf("S12: device %d: content of %s: %w", d.index, n.c.ID.Short(), err)
	}
	if diff := changed(got, n.content); len(diff) > 0 {
		return fmt.Errorf("S12: device %d has another %s in commit %s", d.index, diff[0], n.c.ID.Short())
	}
	return nil
}

// reach traverses and reads the pieces that the device stores.
type reach struct {
	d    *device
	all  map[object.Digest]bool // the reached pieces
	left map[object.Digest]bool // what remains of trees that are not here
	any  bool                   // pieces may be missing everywhere
	lazy bool                   // the present value is lazy
	// unplaced has pieces that are in the bucket at a place that the page has not recorded.
	unplaced []object.Digest
	entry    func(e *fb.Entry) error
}

// tree traverses the nodes and values of a stored tree.
func (r *reach) tree(ctx context.Context, root object.Digest) error {
	if r.all[root] && r.entry == nil {
		return nil
	}
	r.all[root] = true
	if root == btree.EmptyRoot {
		return nil
	}
	n, err := r.d.s.Node(ctx, root)
	if err != nil {
		return err
	}
	for i := range n.Len() {
		e := n.Entry(i)
		if !e.Inline {
			r.lazy = e.Priority == object.Lazy
			if err := r.value(ctx, e.Digest); err != nil {
				return fmt.Errorf("value of %s: %w", e.Key, err)
			}
		}
		if r.entry != nil {
			if err := r.entry(&e); err != nil {
				return err
			}
		}
	}
	for i := range n.NumChildren() {
		if err := r.tree(ctx, n.Child(i).Digest); err != nil {
			return err
		}
	}
	return nil
}

// value traverses the pieces of a value.
func (r *reach) value(ctx context.Context, d object.Digest) error {
	if r.all[d] {
		return nil
	}
	r.all[d] = true
	st, err := r.d.s.PieceState(d)
	if err != nil {
		return err
	}
	if !st.Held {
		if !st.Synced && !r.any && !r.d.w.lossy() {
			return r.absent(ctx, d)
		}
		return nil
	}
	content, err := r.d.s.Piece(ctx, d)
	if err != nil {
		return err
	}
	children, err := split.Children(d, content)
	for _, c := range children {
		if err := r.value(ctx, c); err != nil {
			return err
		}
	}
	return err
}

// absent is called for a piece that is neither stored nor recorded as being in the bucket. The
// bucket may have it when the page lacks some places: see readUnplaced. The piece may also be lost.
// A device that does not hold a value may commit it long after others have given up the versions
// that had it: see gaveUpLongAgo. Or a device may forget its bucket before it has read the value.
func (r *reach) absent(ctx context.Context, d object.Digest) error {
	if w := r.d.w; w.retained && w.forsook || w.gaveUpLongAgo(r.lazy) {
		return nil
	}
	adopted, err := r.d.s.Metadata(ctx, storage.MetadataAdopted)
	if err == nil && adopted == nil {
		err = fmt.Errorf("piece %s is neither held nor in the bucket", d.Short())
	}
	r.unplaced = append(r.unplaced, d)
	return err
}

// lossy reports whether pieces may be lost.
func (w *World) lossy() bool { return w.cloud != nil && w.cloud.lossy }
