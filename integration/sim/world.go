package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// epoch is the start time of a history.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options configures a run. The zero Options are right for most.
type Options struct {
	// Check verifies every store at the end (S8).
	Check bool
	// Trace, if not nil, is called with each event.
	Trace func(format string, args ...any)
	// Rules, if not nil, replaces the rules that a device merges with, while the model keeps
	// History.Rules: a fault that Run must find.
	Rules func(device int, r merge.Rules) merge.Rules
}

// Result counts the events of a history, so that a test can judge whether histories are worth their
// time.
type Result struct {
	// Commits counts all commits; Merges those with two parents, ThreeWay those merged key by key,
	// and CrissCross those with several common ancestors. A merge that several devices make counts
	// once, except in ThreeWay and Conflicts.
	Commits, Merges, ThreeWay, CrissCross int
	// Conflicts counts the keys that needed a rule.
	Conflicts int
	// Rounds counts the rounds until nothing changed any more, including the last.
	Rounds int
	// Head is the final head of all devices.
	Head commit.ID
	// Cloud counts the use of a bucket, Sweeps the garbage collected on devices.
	Cloud  CloudResult
	Sweeps SweepResult
}

// CloudResult counts the events between devices and a bucket.
type CloudResult struct {
	// Syncs counts calls, Failed those that ended with an error, Reuploads the repairs of the
	// bucket, and Evictions, Restored and Crashes events on devices.
	Syncs, Failed, Reuploads, Evictions, Restored, Crashes int
	// Requests counts requests; Packs, Checkpoints and Ranges the objects of these kinds in the
	// bucket at the end; and Deleted the collected objects.
	Requests, Packs, Checkpoints, Ranges, Deleted int
	// Read counts bytes that were read from values, Missing the values lost with bucket and
	// devices.
	Read, Missing int
}

func (r *CloudResult) add(o CloudResult) {
	r.Syncs += o.Syncs
	r.Failed += o.Failed
	r.Reuploads += o.Reuploads
	r.Evictions += o.Evictions
	r.Restored += o.Restored
	r.Crashes += o.Crashes
	r.Requests += o.Requests
	r.Packs += o.Packs
	r.Checkpoints += o.Checkpoints
	r.Ranges += o.Ranges
	r.Deleted += o.Deleted
	r.Read += o.Read
	r.Missing += o.Missing
}

// World is the state of a running history.
type World struct {
	h            *History
	o            Options
	rng          *rand.Rand
	page         [16]byte
	now          atomic.Int64 // nanoseconds since epoch
	cloud        *cloud       // nil: devices exchange commits directly
	keys         int          // given to devices
	excused      set          // commits that only devices with a replaced disk had
	evicted      set          // commits on devices with an evicted page
	pruned       set          // commits that any device has pruned
	unnoted      set          // of these, commits pruned by a store alone, as in an app without a bucket: they are recorded nowhere
	retained     bool         // a device has set how much history the bucket keeps
	forgetful    bool         // devices have merged without trees lost with the bucket: the result depends on the data of each
	dropped      bool         // devices have given up data that the bucket had
	forsook      bool         // devices have forgotten their bucket, as before giving up history without one
	cache        *storage.NodeCache
	devices      []*device
	graph        *graph
	explanations map[*node]object.Digest
	joined       map[[2]commit.ID]commit.ID // the merge of two commits, where all rules agree
	swept        SweepResult
	values       map[object.Digest]string // long values by their roots
}

// Run carries out a history and heals its world. It returns an error that names the promise when
// one is broken (see the package's comment). A panic is an error, too.
func Run(ctx context.Context, h History, o Options) (res Result, err error) {
	w := &World{
		h: &h, o: o, rng: rand.New(rand.NewPCG(h.Seed, 0x0dd)), cache: storage.NewNodeCache(cacheBytes), graph: newGraph(),
		explanations: map[*node]object.Digest{}, joined: map[[2]commit.ID]commit.ID{}, values: map[object.Digest]string{},
	}
	if h.Cold {
		w.cache = storage.NewNodeCache(1) // less than the size of any node
	}
	binary.BigEndian.PutUint64(w.page[:], h.Seed)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		err = errors.Join(err, w.close(err != nil))
	}()
	if h.Cloud != nil {
		if err := w.newCloud(ctx); err != nil {
			return res, fmt.Errorf("make the bucket: %w", err)
		}
	}
	for i := range h.Devices {
		w.graph.recut = w.graph.recut || h.Devices[i].Table
		d, err := w.newDevice(ctx, h.Devices[i], i)
		if err != nil {
			return res, fmt.Errorf("open device %d: %w", i, err)
		}
		w.devices = append(w.devices, d)
	}
	for i, s := range h.Steps {
		if err := w.step(ctx, s); err != nil {
			return res, fmt.Errorf("step %d: %w", i, err)
		}
	}
	w.rng = rand.New(rand.NewPCG(h.Seed, 0x4ea1)) // independent of the number of steps
	var rounds int
	if w.cloud != nil {
		rounds, err = w.healCloud(ctx)
	} else {
		rounds, err = w.heal(ctx)
	}
	if err == nil {
		err = w.verify(ctx)
	}
	g := w.graph
	head := w.devices[0].heads[0].c.ID
	return Result{len(g.nodes), g.merges, g.threeWay, g.criss, g.conflicts, rounds, head, w.cloudResult(), w.swept}, err
}

// close closes the stores. After a failure it ignores their errors.
func (w *World) close(failed bool) error {
	var errs []error
	for _, d := range w.devices {
		if err := d.shut(); err != nil && !failed {
			errs = append(errs, fmt.Errorf("close device %d: %w", d.index, err))
		}
	}
	return errors.Join(errs...)
}

func (w *World) trace(format string, args ...any) {
	if w.o.Trace != nil {
		w.o.Trace(format, args...)
	}
}

// step carries out one step.
func (w *World) step(ctx context.Context, s Step) error {
	w.now.Add(int64(s.After))
	d := w.devices[s.Device%len(w.devices)]
	newest := d.heads[len(d.heads)-1]
	var err error
	switch s.Kind {
	case Edit:
		err = w.edit(ctx, d, newest, s)
	case Sibling:
		var on *node
		if on, err = d.base(ctx, s.Base); err == nil {
			err = w.edit(ctx, d, on, s)
		}
	case Deliver:
		var n int
		from := w.devices[s.Peer%len(w.devices)]
		if from != d && w.cloud == nil {
			n, err = d.deliver(ctx, from, from.choose(s.Heads), s.Apart)
		}
		w.trace("device %d receives %d commits of device %d: heads %s", d.index, n, from.index, nodeIDs(d.heads))
	case Merge:
		heads := d.choose(s.Heads)
		if w.retained { // as a page store does: which heads come first is for package merge to say
			heads = d.heads
		}
		if len(heads) > 1 {
			if err = d.merge(ctx, heads); w.cloud != nil {
				if failed := d.learn(ctx); failed != nil { // the search for a tree may have caught up with the log
					return errors.Join(failed, err)
				}
				err = d.judge("merge", err)
			}
			w.trace("device %d merges %s: heads %s", d.index, nodeIDs(heads), nodeIDs(d.heads))
		}
	case Reopen:
		w.trace("device %d reopens", d.index)
		err = d.reopen(ctx)
	case Crash:
		err = d.crash(ctx, s.Changes, s.At)
		w.trace("device %d crashes during %s: heads %s", d.index, s.fields(), nodeIDs(d.heads))
	case Sweep, SweepCrash, Compact, Prune, Pin, Unpin, Begin, End:
		err = w.shopStep(ctx, d, s)
	default:
		err = w.cloudStep(ctx, d, s)
	}
	if err == nil && w.h.Sweep {
		err = errors.Join(d.sweptBeside(), d.sweep(ctx))
	}
	if err == nil {
		err = d.check()
	}
	if err == nil && (s.Kind == Reopen || s.Kind == Crash || s.Kind == SyncCrash || s.Kind == Restore || s.Kind == SweepCrash) {
		err = d.checkAll(ctx)
	}
	return err
}

func (w *World) edit(ctx context.Context, d *device, parent *node, s Step) error {
	n, err := d.edit(ctx, parent, s.Changes)
	if n != nil {
		w.trace("device %d makes %s on %s: %s", d.index, n.c.ID.Short(), parent.c.ID.Short(), s.fields())
	}
	return err
}

// made records a commit of a device: one that another device made before, or a new one.
func (w *World) made(c *commit.Commit, content map[string]string) (*node, error) {
	if n := w.graph.byID[c.ID]; n != nil {
		return n, nil
	}
	if len(c.Parents) == 2 && w.h.agrees() && !w.forgetful {
		pair := [2]commit.ID(c.Parents)
		if other, ok := w.joined[pair]; ok {
			return nil, fmt.Errorf("S3: commits %s and %s are merged to %s, and to %s before", pair[0].Short(), pair[1].Short(), c.ID.Short(), other.Short())
		}
		w.joined[pair] = c.ID
	}
	return w.graph.add(c, content)
}

// explainsAlike reports whether all devices that make a merge explain it with the same bytes. After
// history is given up they may find different writers of a key.
func (w *World) explainsAlike() bool { return w.h.agrees() && !w.forgetful && w.pruned.last() <= 0 }

// explained records the explanation of a merge.
func (w *World) explained(n *node, root object.Digest) error {
	if old, ok := w.explanations[n]; ok && old != root && w.explainsAlike() {
		return fmt.Errorf("S3: merge %s is explained by %s, and by %s before", n.c.ID.Short(), root.Short(), old.Short())
	}
	w.explanations[n] = root
	return nil
}

func (h *History) agrees() bool { return !h.Disagree }

func (w *World) rules(device int) merge.Rules {
	r := w.h.Rules(device)
	if w.o.Rules != nil {
		r = w.o.Rules(device, r)
	}
	return r
}

// Add adds the counts of another history.
func (r *Result) Add(o Result) {
	r.Commits += o.Commits
	r.Merges += o.Merges
	r.ThreeWay += o.ThreeWay
	r.CrissCross += o.CrissCross
	r.Conflicts += o.Conflicts
	r.Rounds = max(r.Rounds, o.Rounds)
	r.Cloud.add(o.Cloud)
	r.Sweeps.add(o.Sweeps)
}
