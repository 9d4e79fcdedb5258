package background_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// device is what outlives a process: its disk, its network, and what it has acknowledged.
type device struct {
	w       *world
	index   int
	key     seal.DeviceKey
	fs      *vfstest.Mem
	rows    []*index.Memory // of the pages
	run     *run
	runs    int
	commits int

	offline, hung, denied bool
	troubled              time.Time // when something was in its way last
}

// run is one process of a device.
type run struct {
	d      *device
	s      *cloudsync.Syncer
	pages  []*page
	paused bool
	since  time.Time // when it began, or was resumed
	active time.Time // when a request of it came or went last
	dead   bool      // guarded by world.mu
	ends   bool      // it is being closed
	watch  watch
}

// page is a page in a run.
type page struct {
	*cloudsync.Page
	run    *run
	ledger string
	index  int
	store  *storage.Store
	opened time.Time

	mu      sync.Mutex
	closing bool // guarded by mu, as all below
	merge   bool // heads have come that nobody has merged yet
	merging bool
	changed time.Time // when it got its last commit here
	calls   []*call
	since   [4]time.Time // since when what is looked at by check holds, see there
}

// begin makes the device with its first process.
func (d *device) begin() error {
	d.fs = vfstest.NewMem()
	if err := errors.Join(d.fs.MkdirAll("repo"), d.fs.SyncDir(".")); err != nil {
		return err
	}
	for range d.w.h.Pages {
		d.rows = append(d.rows, index.NewMemory())
	}
	return d.start()
}

// start begins a process.
func (d *device) start() error {
	d.runs++
	o := cloudsync.Options{Bucket: nil, Keyring: d.w.ring, Key: d.key, Random: d.w.seeded(uint64(d.index+1)<<32 | uint64(d.runs)), Logger: discard, MinPoll: minPoll, MaxPoll: maxPoll}
	if d.w.h.Limited {
		o.Limits = cloudsync.Limits{RequestsPerSecond: 5, UploadBytesPerSecond: 200_000, DownloadBytesPerSecond: 400_000}
	}
	r := &run{d: d, since: d.w.now(), active: d.w.now()}
	o.Bucket = wire{r}
	r.s = cloudsync.New(o)
	d.run = r
	for i := range d.w.h.Pages {
		p, err := r.open(i)
		if err != nil {
			return err
		}
		d.w.mu.Lock()
		r.pages = append(r.pages, p)
		d.w.mu.Unlock()
		d.w.sleep(time.Microsecond, false) // no two pages do things at the same moment
	}
	return nil
}

func (r *run) open(i int) (*page, error) {
	d := r.d
	p := &page{run: r, ledger: ledgerName(i), index: i, opened: d.w.now(), changed: d.w.now()}
	o := storage.Options{FS: d.fs, Dir: "repo/" + p.ledger, Page: pageID, MemoryIndex: d.rows[i]}
	err := storage.Create(context.Background(), o)
	if err == nil {
		p.store, err = storage.Open(context.Background(), o)
	}
	if err != nil {
		return nil, fmt.Errorf("open page %s of device %d: %w", p.ledger, d.index, err)
	}
	p.Page = r.s.OpenPage(cloudsync.PageOptions{Store: p.store, Ledger: p.ledger, Name: p.ledger, Merge: p.mergeAll, Arrived: p.heardOf})
	p.merge = len(p.store.Heads()) > 1
	return p, nil
}

// page returns the page of a ledger, nil when there is none.
func (r *run) page(ledger string) *page {
	for _, p := range r.pages {
		if p.ledger == ledger {
			return p
		}
	}
	return nil
}

// closing reports whether the process or a page of it is being closed.
func (r *run) closing() bool { return r.ends || slices.ContainsFunc(r.pages, (*page).isClosing) }

func (p *page) isClosing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

// settled lets time pass until no page is being closed.
func (d *device) settled() {
	for d.run.closing() && d.w.broken() == nil {
		d.w.pass(100 * time.Millisecond)
	}
}

func (d *device) resume() {
	d.w.mu.Lock()
	d.run.paused = false
	d.w.mu.Unlock()
	d.run.since = d.w.now()
	d.run.s.Resume()
}

// leave has all callers leave.
func (d *device) leave() {
	for _, p := range d.run.pages {
		p.mu.Lock()
		for _, c := range p.calls {
			c.left = true
			c.cancel()
		}
		p.mu.Unlock()
	}
}

// reopen closes a page and opens it again.
func (p *page) reopen() {
	r := p.run
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	r.d.w.work.Go(func() {
		if err := errors.Join(p.Page.Close(), p.store.Close()); err != nil {
			r.d.w.fail("close page %s of device %d: %w", p.ledger, r.d.index, err)
			return
		}
		next, err := r.open(p.index)
		if err != nil {
			r.d.w.fail("%w", err)
			return
		}
		r.d.w.mu.Lock()
		defer r.d.w.mu.Unlock()
		r.pages[p.index] = next
		r.d.w.wake()
	})
	r.d.settled()
}

// restart ends the process and begins another.
func (d *device) restart() {
	d.w.stop(d.run)
	if err := d.start(); err != nil {
		d.w.fail("%w", err)
	}
}

// stop ends a process.
func (w *world) stop(r *run) {
	r.ends = true
	done := make(chan struct{})
	w.work.Go(func() {
		defer close(done)
		if err := r.s.Close(); err != nil {
			w.fail("close: %w", err)
		}
		for _, p := range r.pages {
			if err := errors.Join(p.Page.Close(), p.store.Close()); err != nil {
				w.fail("close page %s: %w", p.ledger, err)
			}
		}
	})
	for begun := w.now(); ; {
		w.sleep(10*time.Millisecond, false)
		w.settle()
		select {
		case <-done:
			return
		default:
		}
		if all := w.choices(); len(all) > 0 && all[0].r != nil {
			w.let(all[w.rng.IntN(len(all))%len(all)])
		}
		if took := w.now().Sub(begun); took > 5*time.Second {
			w.fail("W8: closing device %d has taken %v", r.d.index, took)
			<-done
			return
		}
	}
}

// kill ends the process without a word. What goes over the wire at that moment may have arrived or
// not.
func (d *device) kill(n int) {
	w := d.w
	w.mu.Lock()
	d.run.dead = true
	w.mu.Unlock()
	keep := [...]func() float64{vfstest.KeepAll, vfstest.KeepNone, vfstest.KeepSome(w.h.Seed + uint64(n)), vfstest.KeepSome(uint64(n))}[n%4]
	left, rows := d.fs.CrashClone(keep), make([]*index.Memory, len(d.rows))
	for i := range rows {
		if rows[i] = index.NewMemory(); n%2 == 0 && n%4 == 0 {
			rows[i] = d.rows[i].Clone()
		}
	}
	w.mu.Lock()
	var dropped []*request
	w.pending = slices.DeleteFunc(w.pending, func(r *request) bool {
		if r.run == d.run {
			dropped = append(dropped, r)
		}
		return r.run == d.run
	})
	w.mu.Unlock()
	for _, r := range dropped {
		a := answer{err: errDead}
		if w.rng.IntN(2) == 0 {
			a = answer{lost: true}
		}
		r.answer <- a
	}
	d.leave()
	w.stop(d.run)
	d.fs, d.rows = left, rows
	if err := d.start(); err != nil {
		w.fail("after a kill: %w", err)
	}
}

// heardOf is called when heads have come.
func (p *page) heardOf() {
	p.mu.Lock()
	p.merge, p.changed = true, p.run.d.w.now()
	p.mu.Unlock()
	p.run.d.w.wake()
}

func (p *page) wantsMerge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.merge && !p.merging && !p.closing
}

// mergeBeside merges as what follows the pages of an app does.
func (p *page) mergeBeside() {
	p.mu.Lock()
	p.merge, p.merging = false, true
	p.mu.Unlock()
	p.run.d.w.work.Go(func() {
		err := p.mergeAll(context.WithValue(context.Background(), caller{}, p))
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.merging = false; err != nil && !errors.Is(err, base.ErrClosed) {
			p.merge = true // once more, when something else has happened
		}
	})
}

// mergeAll merges as cloudsync.PageOptions.Merge does.
func (p *page) mergeAll(ctx context.Context) error {
	err := p.mergeOnce(ctx)
	for range 3 {
		if !errors.Is(err, base.ErrNeedsFetch) {
			break
		}
		var heads []commit.ID
		for _, h := range p.store.Heads() {
			heads = append(heads, h.ID)
		}
		for c, walkErr := range commit.Walk(ctx, p.store, heads) {
			if walkErr != nil {
				return walkErr
			}
			if err := p.BuildTree(ctx, c.ID); err != nil && !errors.Is(err, base.ErrGone) {
				return err
			}
		}
		err = p.mergeOnce(ctx)
	}
	return err
}

func (p *page) mergeOnce(ctx context.Context) error {
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	cloud, err := cloudsync.StandingOf(ctx, p.store)
	if err != nil {
		return err
	}
	heads := p.store.ChainedHeads()
	j := p.store.NewJournal()
	defer j.Rollback()
	env := &merge.Env{
		View: merge.View{
			Page: pageID, Commits: cloud.Over(p.store, p.store),
			Tree: func(c *commit.Commit) btree.Tree { return btree.Tree{Page: pageID, Source: j, Root: c.Root} },
		},
		Sink: j, Pieces: j, Table: split.DefaultTable(),
	}
	merged, err := merge.Heads(ctx, env, merge.Rules{}, heads)
	if err != nil || len(merged) == 0 {
		return err
	}
	var cs []*commit.Commit
	for _, m := range merged {
		if m.Conflicts > 0 {
			j.Explain(m.Commit.ID, m.Explanation)
		}
		cs = append(cs, m.Commit)
	}
	pending, err := p.store.Submit(ctx, j, cs...)
	if err != nil {
		return err
	}
	p.touch()
	return pending.Wait()
}

func (p *page) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = p.run.d.w.now()
}

// edit makes a commit: of a key of the device's own, and of one that all share.
func (p *page) edit(n int) {
	d := p.run.d
	d.commits++
	own, value := fmt.Sprintf("device %d key %d", d.index, n), fmt.Sprintf("%06d", d.commits)
	if n == 7 {
		value += d.w.noise([]int{20_000, 90_000, 1_300_000}[d.commits%3]) // the last goes up in packs
	}
	d.w.work.Go(func() {
		c, err := p.commit(context.Background(), []string{own, "shared"}, value)
		if err != nil {
			if !errors.Is(err, base.ErrClosed) {
				d.w.fail("commit on page %s of device %d: %w", p.ledger, d.index, err)
			}
			return
		}
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		if p.run.dead {
			return // the disk is left as it was before
		}
		d.w.acked[p.ledger][own] = value
		d.w.made[p.ledger][c.ID] = &commitNote{d.index}
	})
}

func (p *page) commit(ctx context.Context, keys []string, value string) (*commit.Commit, error) {
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j := p.store.NewJournal()
	defer j.Rollback()
	head := p.store.NewestHead()
	changes := func(yield func(btree.Change, error) bool) {
		for _, k := range keys {
			e := fb.Entry{Key: []byte(k), Value: []byte(value), Inline: true, Size: uint64(len(value))}
			var err error
			if len(value) > btree.InlineLimit {
				e.Inline, e.Value = false, nil
				e.Digest, err = split.SplitBytes(ctx, split.DefaultTable(), []byte(value), func(ctx context.Context, s split.Piece) error { return j.PutPiece(ctx, s.Digest, s.Content) })
			}
			if !yield(btree.Change{Entry: e}, err) || err != nil {
				return
			}
		}
	}
	root, err := btree.Tree{Page: pageID, Source: j, Root: head.Root}.Apply(ctx, j, changes)
	if err != nil {
		return nil, err
	}
	c, err := commit.New(commit.Params{Now: p.run.d.w.now(), Root: root, Parents: []*commit.Commit{head}, Device: p.run.d.key.ID().String()})
	if err != nil {
		return nil, err
	}
	pending, err := p.store.Submit(ctx, j, c)
	if err != nil {
		return nil, err
	}
	p.touch()
	return c, pending.Wait()
}
