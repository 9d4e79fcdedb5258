package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
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

// Limits that make a store small. Histories of a few dozen steps then begin segments, read nodes
// again, and, every fourth, fold while they run.
const (
	segmentBytes = 32 << 10
	foldRows     = 128
	cacheBytes   = 128 << 10
)

const pageDir = "repo/page"

// errCrash is the error of file system operations after a power failure.
var errCrash = errors.New("the power has failed")

// device is one device: its page store, its clock, and its content according to the model.
type device struct {
	Device
	w     *World
	index int
	rules merge.Rules
	table *split.Table
	mem   *vfstest.Mem
	rows  *index.Memory
	s     *storage.Store

	has      set                // the commits that it must have
	received []*node            // the same in the order of arrival
	heads    []*node            // sorted
	lost     map[commit.ID]bool // commits with lost trees
	told     map[*node]bool     // merges whose explanation it must have
	link     *link              // to the bucket; nil without one
	shop     workshop           // unfinished work of the process
	never    set                // commits of has that were gone when their descendants arrived
	pruned   set                // commits of has that may be gone, pruned here or elsewhere

	skew atomic.Int64 // of its clock, in nanoseconds

	power sync.Mutex
	torn  uint64       // guarded by power: how the power failure tears unsynced data
	fails int          // guarded by power: operations of the file system until the power fails; below 0: it does not
	left  *vfstest.Mem // guarded by power: the disk after the power failure
}

func (w *World) newDevice(ctx context.Context, as Device, i int) (*device, error) {
	d := &device{Device: as, w: w, index: i, rules: w.rules(i), table: split.DefaultTable(), mem: vfstest.NewMem(), rows: index.NewMemory(), fails: -1}
	if d.Table {
		d.table = split.NewTable([]byte{byte(i)})
	}
	d.skew.Store(int64(as.Skew))
	d.knowNothing()
	if w.cloud != nil {
		d.newLink()
	}
	if err := d.mem.MkdirAll("repo"); err != nil {
		return nil, err
	}
	if err := d.mem.SyncDir("."); err != nil {
		return nil, err
	}
	return d, d.open(ctx)
}

func (d *device) open(ctx context.Context) error {
	o := storage.Options{
		FS: vfstest.NewFaulty(d.mem, d.inject), Dir: pageDir, Page: d.w.page, Cache: d.w.cache, SegmentBytes: segmentBytes, MemoryIndex: d.rows, Clock: d,
	}
	if d.w.h.Seed%4 == 0 {
		o.FoldRows = foldRows
	}
	if d.link != nil { // nodes that others have read are not in this cache
		o.Cache = storage.NewNodeCache(cacheBytes)
	}
	if err := storage.Create(ctx, o); err != nil {
		return err
	}
	s, err := storage.Open(ctx, o)
	if err != nil {
		return err
	}
	d.s = s
	d.newShop()
	if d.link != nil {
		d.join()
	}
	return nil
}

// inject makes the power fail when its time has come.
func (d *device) inject(op vfstest.Op) error {
	d.power.Lock()
	defer d.power.Unlock()
	if d.left != nil {
		return errCrash
	}
	if d.fails < 0 || !op.Kind.Mutates() {
		return nil
	}
	if d.fails--; d.fails >= 0 {
		return nil
	}
	d.left = d.mem.CrashClone(vfstest.KeepSome(d.torn))
	return errCrash
}

// Now implements clock.Clock.
func (d *device) Now() time.Time { return epoch.Add(time.Duration(d.w.now.Load() + d.skew.Load())) }

// After implements clock.Clock: nothing waits in a simulation.
func (d *device) After(time.Duration) (<-chan time.Time, func()) {
	c := make(chan time.Time, 1)
	c <- d.Now()
	return c, func() {}
}

// edit makes a transaction on a commit. It returns nil when nothing changes.
func (d *device) edit(ctx context.Context, parent *node, changes []Change) (*node, error) {
	c, content, p, err := d.submit(ctx, parent, changes)
	if c == nil || err != nil {
		return nil, err
	}
	if err := p.Wait(); err != nil {
		return nil, err
	}
	return d.made(c, content)
}

// submit submits a transaction to the store, and returns the content of its commit.
func (d *device) submit(ctx context.Context, parent *node, changes []Change) (*commit.Commit, map[string]string, *storage.Pending, error) {
	j := d.s.NewJournal()
	defer j.Rollback()
	return d.submitJournal(ctx, j, parent, changes)
}

// submitJournal is submit for a journal that may already contain some of the pieces.
func (d *device) submitJournal(ctx context.Context, j *storage.Journal, parent *node, changes []Change) (*commit.Commit, map[string]string, *storage.Pending, error) {
	unlock, err := d.s.Lock(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer unlock()
	content := maps.Clone(parent.content)
	for _, c := range changes {
		if v := c.apply(value(content, c.Key)); v != absent {
			content[c.Key] = v
		} else {
			delete(content, c.Key)
		}
	}
	root, err := d.tree(j, parent.c.Root).Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range changed(parent.content, content) {
			v, ok := content[k]
			e, err := d.entry(ctx, j, k, v)
			if !yield(btree.Change{Entry: e, Delete: !ok}, err) || err != nil {
				return
			}
		}
	})
	if err != nil || root == parent.c.Root {
		return nil, nil, nil, err
	}
	c, err := commit.New(commit.Params{Now: d.Now(), Root: root, Parents: []*commit.Commit{parent.c}, Device: d.Name})
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := d.s.Submit(ctx, j, c)
	return c, content, p, err
}

func (d *device) tree(src btree.Source, root object.Digest) btree.Tree {
	return btree.Tree{Page: d.w.page, Source: src, Root: root}
}

func (d *device) entry(ctx context.Context, j *storage.Journal, key, v string) (fb.Entry, error) {
	e := fb.Entry{Key: []byte(key), Value: []byte(v), Inline: true, Size: uint64(len(v))}
	if len(v) <= btree.InlineLimit {
		return e, nil
	}
	root, err := split.SplitBytes(ctx, d.table, e.Value, func(ctx context.Context, p split.Piece) error {
		return j.PutPiece(ctx, p.Digest, p.Content)
	})
	e = fb.Entry{Key: e.Key, Digest: root, Size: e.Size}
	if key[0] == 'z' {
		e.Priority = object.Lazy
	}
	d.w.knowValue(root, v)
	return e, err
}

// merge merges heads as a page store does, and repeats the merge for each lost tree found.
func (d *device) merge(ctx context.Context, heads []*node) error {
	if len(heads) < 2 {
		return nil
	}
	if d.lacksBases(heads) {
		d.w.forgetful = true
	}
	for {
		if err := d.mergeOnce(ctx, heads); !errors.Is(err, errTreeLost) {
			return err
		}
	}
}

// lacksBases reports whether a merge of heads may lack a common version because the bucket was
// lost. A commit can be pruned while no device has some descendant of it: the descendant was in a
// lost bucket, or on a replaced disk.
func (d *device) lacksBases(heads []*node) bool {
	return d.w.cloud != nil && d.w.cloud.epoch > 0 && d.lacks(heads, d.pruned)
}

// lacks reports whether pruned has a base of two of the commits, or whether any device has pruned a
// base of their bases: this device may have kept it for its first merge alone.
func (d *device) lacks(of []*node, pruned set) bool {
	for i, a := range of {
		for _, b := range of[:i] {
			bases := d.w.graph.bases(a.above.and(b.above))
			if slices.ContainsFunc(bases, func(n *node) bool { return pruned.has(n.index) }) || d.lacks(bases, d.w.pruned) {
				return true
			}
		}
	}
	return false
}

// mergeOnce makes all merges and their explanations in one batch.
func (d *device) mergeOnce(ctx context.Context, heads []*node) error {
	unlock, err := d.s.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	j := d.s.NewJournal()
	defer j.Rollback()
	var commits []*commit.Commit
	for _, h := range heads {
		commits = append(commits, h.c)
	}
	if d.w.rng.IntN(2) == 0 { // the order of the arguments does not matter
		slices.Reverse(commits)
	}
	cloud, err := cloudsync.StandingOf(ctx, d.s)
	if err != nil {
		return err
	}
	env := merge.Env{
		View: merge.View{
			Page: d.w.page, Commits: cloud.Over(d.s, d.s), Lost: d.isLost,
			Tree: func(c *commit.Commit) btree.Tree { return d.mergeTree(j, c) },
		},
		Sink: j, Pieces: valueSource{j, d}, Table: d.table,
	}
	merges, err := merge.Heads(ctx, &env, d.rules, commits)
	if j.Pruned() { // the merge begins again in an app: here with the next step
		return nil
	}
	if err != nil {
		return err
	}
	if len(merges) != len(heads)-1 {
		return fmt.Errorf("S2: %d heads gave %d merges", len(heads), len(merges))
	}
	var cs []*commit.Commit
	var came []commit.ID // received while this device made them too
	for _, m := range merges {
		cs = append(cs, m.Commit)
		if _, err := d.s.Commit(ctx, m.Commit.ID); err == nil {
			came = append(came, m.Commit.ID)
		}
		if m.Conflicts > 0 {
			j.Explain(m.Commit.ID, m.Explanation)
		}
	}
	p, err := d.s.Submit(ctx, j, cs...)
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		if d.dark() { // they may be durable all the same: see syncCrash
			d.link.merges = append(d.link.merges, merges...)
		}
		return err
	}
	for i := range merges {
		if err := d.madeMerge(ctx, &merges[i]); err != nil {
			return err
		}
	}
	for _, id := range came { // the first explanation counts, and a checkpoint has none
		if _, ok, err := d.s.Explanation(ctx, id); err != nil || !ok {
			d.told[d.w.graph.byID[id]] = false
		}
	}
	return nil
}

// madeMerge compares a merge with the merge of the model.
func (d *device) madeMerge(ctx context.Context, m *merge.Merged) error {
	left, right := d.w.graph.byID[m.Left.ID], d.w.graph.byID[m.Right.ID]
	if left == nil || right == nil || !newer(right, left) {
		return fmt.Errorf("S2: merge %s of parents that are unknown or in the wrong order", m.Commit.ID.Short())
	}
	want := d.w.graph.merge(d.w.h.opinion(d.index), left, right, d.pruned)
	got, err := d.content(ctx, m.Commit.Root)
	if err != nil {
		return fmt.Errorf("read merge %s: %w", m.Commit.ID.Short(), err)
	}
	if d.w.forgetful { // the merge of the model needs lost trees
		want = merged{content: got, whole: want.whole}
	}
	for k := range want.either {
		if want.content[k] = value(got, k); want.content[k] == absent {
			delete(want.content, k)
		}
		delete(want.conflicts, k)
	}
	if diff := changed(want.content, got); len(diff) > 0 {
		k := diff[0]
		return fmt.Errorf("S2: merge (how %d) of %s and %s has %s=%q, want %q; left %q, right %q", m.How, left.c.ID.Short(), right.c.ID.Short(), k,
			short(value(got, k)), short(value(want.content, k)), short(left.value(k)), short(right.value(k)))
	}
	d.w.graph.conflicts += len(want.conflicts)
	if d.w.forgetful {
		n, err := d.made(m.Commit, want.content)
		if err == nil && m.Conflicts > 0 {
			d.told[n] = true
		}
		return err
	}
	if err := d.checkExplanation(ctx, m, left, right, want); err != nil {
		return fmt.Errorf("S2: merge of %s and %s: %w", left.c.ID.Short(), right.c.ID.Short(), err)
	}
	if !want.whole {
		d.w.graph.threeWay++
	}
	n, err := d.made(m.Commit, want.content)
	if err == nil && m.Conflicts > 0 {
		d.told[n] = true
		err = d.w.explained(n, m.Explanation)
	}
	return err
}

// checkExplanation compares the conflicts in the explanation of a merge with the model.
func (d *device) checkExplanation(ctx context.Context, m *merge.Merged, left, right *node, want merged) error {
	n := 0
	if m.Conflicts > 0 {
		v := &merge.View{Page: d.w.page, Commits: d.s, Nodes: d.s, Explanation: d.s.Explanation}
		for dec, err := range merge.Decisions(ctx, v, m.Explanation, nil) {
			if err != nil {
				return err
			}
			n++
			k := string(dec.Key)
			if want.conflicts[k] {
				delete(want.conflicts, k)
			} else if !asksAlways(k) && !want.either[k] {
				return fmt.Errorf("explains %s, which is no conflict", k)
			}
			got := value(want.content, k)
			is := map[merge.Outcome]bool{
				merge.TakeLeft: got == left.value(k), merge.TakeRight: got == right.value(k), merge.TakeNone: got == absent, merge.TakeNew: got != absent,
			}
			if !is[dec.Outcome] {
				return fmt.Errorf("explains %s=%q, left %q, right %q, with outcome %d", k, short(got), short(left.value(k)), short(right.value(k)), dec.Outcome)
			}
		}
	}
	if n != m.Conflicts {
		return fmt.Errorf("tells of %d conflicts, explains %d", m.Conflicts, n)
	}
	for k := range want.conflicts {
		return fmt.Errorf("does not explain %s", k)
	}
	return nil
}

func short(v string) string { return v[:min(len(v), 24)] }

// content reads a whole tree. With a bucket, it takes long values from the model where possible,
// because reading them may need the network.
func (d *device) content(ctx context.Context, root object.Digest) (map[string]string, error) {
	out := map[string]string{}
	c := d.tree(d.s, root).Cursor()
	ok, err := c.First(ctx)
	for ; ok && err == nil; ok, err = c.Next(ctx) {
		e := c.Entry()
		if e.Inline {
			out[string(e.Key)] = string(e.Value)
			continue
		}
		if v, ok := d.w.longValue(e.Digest); ok && d.link != nil {
			out[string(e.Key)] = v
			continue
		}
		var b strings.Builder
		r := split.NewReader(ctx, d.s, e.Digest, e.Size)
		if _, err := r.WriteTo(&b); err != nil {
			return nil, err
		}
		out[string(e.Key)] = b.String()
		d.w.knowValue(e.Digest, b.String())
	}
	return out, err
}

// made records a commit that the device has now.
func (d *device) made(c *commit.Commit, content map[string]string) (*node, error) {
	n, err := d.w.made(c, content)
	if err == nil {
		d.hold(n)
	}
	return n, err
}

// hold records that the device has a commit.
func (d *device) hold(n *node) {
	if d.has.has(n.index) {
		return
	}
	d.has = d.has.with(n.index)
	d.received = append(d.received, n)
	d.heads = slices.DeleteFunc(slices.Clone(d.heads), func(h *node) bool { return slices.Contains(n.parents, h) })
	d.heads = append(d.heads, n)
	slices.SortFunc(d.heads, func(a, b *node) int { return commit.Compare(a.c, b.c) })
}

// choose returns the heads selected by a step.
func (d *device) choose(mask uint64) []*node {
	if mask == 0 {
		return d.heads
	}
	var out []*node
	for i, h := range d.heads {
		if mask>>(i%64)&1 == 1 {
			out = append(out, h)
		}
	}
	return out
}

// reopen closes the page and opens it again.
func (d *device) reopen(ctx context.Context) error {
	if err := d.shut(); err != nil {
		return err
	}
	return d.open(ctx)
}

// shut ends the process of the device.
func (d *device) shut() error {
	d.clearShop()
	return errors.Join(d.leave(), d.s.Close())
}

// crash makes an edit during which the power fails, and checks the state after the restart.
func (d *device) crash(ctx context.Context, changes []Change, at int) error {
	rows := d.rows.Clone() // slightly older, never newer than the log
	d.arm(at)
	parent := d.heads[len(d.heads)-1]
	c, content, p, err := d.submit(ctx, parent, changes)
	acked := false
	if p != nil {
		err = p.Wait()
		acked = err == nil
	}
	if err != nil && !errors.Is(err, errCrash) {
		return err
	}
	if err := d.comeBack(ctx, rows); err != nil {
		return err
	}
	if c == nil {
		return nil
	}
	if _, err := d.s.Commit(ctx, c.ID); errors.Is(err, base.ErrNotFound) && !acked {
		return nil
	} else if err != nil {
		return fmt.Errorf("S1: after a crash: %w", err)
	}
	_, err = d.made(c, content)
	return err
}

// check compares the store with the model (S1).
func (d *device) check() error {
	heads := d.s.Heads()
	same := slices.EqualFunc(heads, d.heads, func(c *commit.Commit, n *node) bool { return c.ID == n.c.ID })
	if !same {
		return fmt.Errorf("S1: device %d has heads %s, want %s", d.index, ids(heads), nodeIDs(d.heads))
	}
	return nil
}

// checkAll checks every commit and every explanation that the device must have (S1).
func (d *device) checkAll(ctx context.Context) error {
	for _, n := range d.received {
		if gone, err := d.mayLack(ctx, n); err != nil {
			return err
		} else if gone {
			continue
		}
		root, ok, err := d.s.Explanation(ctx, n.c.ID)
		if err == nil && d.link != nil && ok && !d.told[n] { // received from the bucket, but not in a checkpoint
			d.told[n] = true
		}
		if err == nil && d.link != nil && !ok && d.pruned.has(n.index) { // it returned, for example with another device's tag: a checkpoint may contain it, without explanation
			d.told[n] = false
		}
		if err != nil || ok != d.told[n] || ok && d.w.explainsAlike() && root != d.w.explanations[n] {
			return fmt.Errorf("S1: device %d has explanation %t of %s, want %t: %w", d.index, ok, n.c.ID.Short(), d.told[n], err)
		}
	}
	return nil
}

func ids(cs []*commit.Commit) (out []string) {
	for _, c := range cs {
		out = append(out, c.ID.Short())
	}
	return out
}

func nodeIDs(ns []*node) (out []string) {
	for _, n := range ns {
		out = append(out, n.c.ID.Short())
	}
	return out
}
