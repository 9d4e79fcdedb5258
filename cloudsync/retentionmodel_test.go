package cloudsync_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/storage"
)

var (
	retentionSeed = flag.Uint64("retention.seed", 0, "run the history of this seed alone, and tell what happens")
	retentionRuns = flag.Int("retention.runs", tier.Of(4, 14, 140), "how many random histories with retention are run")
)

// TestRetentionHistories runs random histories of devices that come and go for long times while
// history is given up in the bucket: whatever was put is on every device in the end, every tag has
// its content, and new devices find all of it.
func TestRetentionHistories(t *testing.T) {
	if *retentionSeed > 0 {
		retentionHistory(t, *retentionSeed, t.Logf)
		return
	}
	n := *retentionRuns
	if testing.Short() {
		n /= 2
	}
	first := 1000*(tier.Seed()-1) + 1
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { retentionHistory(t, seed, func(string, ...any) {}) })
	}
}

// retentionRun is one random history.
type retentionRun struct {
	t     *testing.T
	w     *world
	r     *rand.Rand
	logf  func(string, ...any)
	pages []*page // nil pages of devices that are away are closed
	open  []bool
	want  map[string]string // of all that was put
	tags  map[string]map[string]string
	ids   map[string]commit.ID
	n     int
}

func retentionHistory(t *testing.T, seed uint64, logf func(string, ...any)) {
	w := newWorld(t)
	w.o.Logger = nil
	h := &retentionRun{t: t, w: w, r: rand.New(rand.NewPCG(seed, 1)), logf: logf, want: map[string]string{}, tags: map[string]map[string]string{}, ids: map[string]commit.ID{}}
	for range 2 + h.r.IntN(2) {
		h.add()
	}
	for range 50 {
		h.step()
	}
	h.end()
}

func (h *retentionRun) add() {
	h.pages, h.open = append(h.pages, h.w.device()), append(h.open, true)
}

// awake returns a device that is there, and opens it when it is away.
func (h *retentionRun) awake() (int, *page) {
	i := h.r.IntN(len(h.pages))
	if !h.open[i] {
		h.logf("device %d comes back", i)
		h.pages[i] = h.pages[i].d.page("notes")
		h.open[i] = true
	}
	return i, h.pages[i]
}

func (h *retentionRun) step() {
	i, p := h.awake()
	switch k := h.r.IntN(20); {
	case k < 7:
		h.put(i, p)
	case k < 12:
		h.logf("device %d syncs", i)
		sync(h.t, p)
	case k < 13:
		h.tag(i, p)
	case k < 14:
		n := uint64(h.r.IntN(5))
		h.logf("device %d keeps %d commits", i, n)
		if err := p.SetRetention(h.t.Context(), cloudsync.Retention{Last: n}); err != nil {
			h.t.Fatal(err)
		}
	case k < 16:
		r := collectBucket(h.t, p, cloudsync.GCOptions{})
		h.logf("device %d collects in the bucket: %+v", i, *r)
	case k < 18:
		h.logf("device %d writes a checkpoint", i)
		if err := p.Checkpoint(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	case k < 19:
		h.logf("device %d goes away", i)
		p.close()
		delete(p.d.pages, "notes")
		h.open[i] = false
	default:
		days := []int{1, 10, 31, 100, 200}[h.r.IntN(5)]
		h.logf("%d days pass", days)
		h.w.clock.Advance(time.Duration(days) * 24 * time.Hour)
	}
	if len(h.pages) < 5 && h.r.IntN(25) == 0 {
		h.logf("device %d is new", len(h.pages))
		h.add()
	}
}

// put puts a key that nobody else puts. Some values are long.
func (h *retentionRun) put(i int, p *page) {
	h.n++
	k := fmt.Sprintf("key %d", h.n)
	v := fmt.Appendf(nil, "%d", h.n)
	switch h.r.IntN(4) {
	case 0:
		v = noise(uint64(h.n), 2000)
	case 1:
		v = noise(uint64(h.n), 1_200_000)
	}
	c := p.commit(edit{k: v})
	h.logf("device %d puts %s, %d bytes: %s", i, k, len(v), c.ID.Short())
	h.want[k] = string(v)
}

func (h *retentionRun) tag(i int, p *page) {
	sync(h.t, p)
	c := p.store.NewestHead()
	if c.IsFirst() {
		return
	}
	name := fmt.Sprintf("tag %d", len(h.tags))
	h.logf("device %d tags %s: %s", i, c.ID.Short(), name)
	if err := p.store.SetTag(h.t.Context(), name, c.ID); err != nil {
		h.t.Fatal(err)
	}
	h.tags[name], h.ids[name] = maps.Clone(p.content()), c.ID
	sync(h.t, p)
}

// end brings all devices together, with a new one.
func (h *retentionRun) end() {
	h.add()
	for i := range h.pages {
		if !h.open[i] {
			h.pages[i] = h.pages[i].d.page("notes")
			h.open[i] = true
		}
	}
	for range 3 {
		sync(h.t, h.pages...)
	}
	h.w.clock.Advance(31 * 24 * time.Hour)
	collectBucket(h.t, h.pages[0], cloudsync.GCOptions{})
	sync(h.t, h.pages...)
	h.add()
	last := h.pages[len(h.pages)-1]
	sync(h.t, last)
	sameHeads(h.t, h.pages...)
	for i, p := range h.pages {
		if !maps.Equal(p.content(), h.want) {
			h.t.Errorf("device %d has %d keys of %d", i, len(p.content()), len(h.want))
		}
		if r, err := p.store.Check(h.t.Context(), storage.CheckOptions{}); err != nil || len(r.Problems) > 0 {
			h.t.Errorf("device %d: %+v, %v", i, r, err)
		}
		if r, err := p.Page.Check(h.t.Context(), cloudsync.CheckOptions{}); err != nil || len(r.Damaged) > 0 {
			h.t.Errorf("the bucket as device %d sees it: %+v, %v", i, r, err)
		}
	}
	tags, err := last.store.Tags(h.t.Context())
	if err != nil || !maps.Equal(tags, h.ids) {
		h.t.Errorf("the new device has tags %v of %v, %v", tags, h.ids, err)
	}
	for name, id := range h.ids {
		if err := last.BuildTree(h.t.Context(), id); errors.Is(err, base.ErrGone) || err != nil {
			h.t.Errorf("the tree of %s: %v", name, err)
		}
	}
}
