package outgoing_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/tier"
)

func fastClock() clock.Clock { return mem.NewAutoClock(time.Unix(1_000_000, 0)) }

func faults(p float64) mem.Faults { return mem.Faults{LostAnswer: p, Unavailable: p / 4} }

// walker drives a device at random.
type walker struct {
	*device
	rng   *rand.Rand
	blobs []string
}

func newWalker(t *testing.T, seed uint64) *walker {
	w := &walker{device: newDevice(t), rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range 6 {
		w.blobs = append(w.blobs, noise(seed*100+uint64(i), 1+w.rng.IntN(900_000)))
	}
	return w
}

func (w *walker) value() *val {
	switch w.rng.IntN(10) {
	case 0, 1: // large, and shares pieces with others
		a, b := w.blobs[w.rng.IntN(len(w.blobs))], w.blobs[w.rng.IntN(len(w.blobs))]
		return &val{content: a + b + fmt.Sprint(w.rng.IntN(5)), lazy: w.rng.IntN(2) == 0}
	case 2, 3:
		return &val{content: noise(w.rng.Uint64N(30), 300+w.rng.IntN(20_000)), lazy: w.rng.IntN(2) == 0}
	}
	return text(noise(w.rng.Uint64(), w.rng.IntN(200)))
}

func (w *walker) edit() edit {
	e := edit{}
	for range 1 + w.rng.IntN(6) {
		k := fmt.Sprintf("key %02d", w.rng.IntN(40))
		if e[k] = w.value(); w.rng.IntN(4) == 0 {
			e[k] = nil
		}
	}
	if w.rng.IntN(40) == 0 { // a diff that does not fit into a body
		for i := range 6000 {
			e[fmt.Sprintf("wide %05d", i)] = text(noise(w.rng.Uint64(), 200))
		}
	}
	return e
}

func (w *walker) step() {
	w.t.Helper()
	ctx := w.t.Context()
	switch heads := w.s.Heads(); w.rng.IntN(9) {
	case 0, 1, 2:
		w.commitOn(w.edit(), nil, heads[w.rng.IntN(len(heads))])
	case 3: // a sibling
		c, err := w.s.Known(ctx, heads[0].ID)
		if err == nil && len(c.Parents) > 0 {
			c, err = w.s.Known(ctx, c.Parents[0])
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.commitOn(w.edit(), nil, c)
	case 4, 5:
		if len(heads) > 1 {
			w.rng.Shuffle(len(heads), func(i, j int) { heads[i], heads[j] = heads[j], heads[i] })
			var why map[string]string
			if w.rng.IntN(2) == 0 {
				why = map[string]string{"key 01": "because", "key 02": noise(w.rng.Uint64(), 50)}
			}
			w.commitOn(w.edit(), why, heads[0], heads[1])
		}
	case 6:
		name := fmt.Sprint("tag ", w.rng.IntN(3))
		err := w.s.SetTag(ctx, name, heads[0].ID)
		if w.rng.IntN(3) == 0 {
			err = w.s.DeleteTag(ctx, name)
		}
		if err != nil && !errors.Is(err, base.ErrNotFound) {
			w.t.Fatal(err)
		}
	case 7, 8:
		w.sync()
	}
}

// sync makes one body, while the bucket fails at some request or the device dies at some moment.
func (w *walker) sync() {
	w.t.Helper()
	left := w.rng.IntN(8)
	failing := w.rng.IntN(2) == 0
	w.b.SetBefore(func(op bucket.Op, _ string) error {
		if left--; failing && op == bucket.OpPut && left < 0 {
			return base.ErrNetwork
		}
		return nil
	})
	defer w.b.SetBefore(nil)
	out, err := w.page.Next(w.t.Context())
	if err != nil {
		if !errors.Is(err, base.ErrNetwork) {
			w.t.Fatal(err)
		}
		w.maybeCrash()
		return
	}
	if out == nil {
		return
	}
	if w.maybeCrash() {
		return
	}
	w.b.SetBefore(nil)
	if err := w.append(out); err != nil {
		w.t.Fatal(err)
	}
	if w.rng.IntN(4) == 0 { // it dies before it knows, and reads its own entry
		w.crash()
		w.recover(out.Body.Body)
		return
	}
	w.settle(out.Settle(w.number))
}

func (w *walker) maybeCrash() bool {
	if w.rng.IntN(3) > 0 {
		return false
	}
	w.crash()
	return true
}

// The bodies, in order, rebuild every commit, and nothing is uploaded twice, whatever happens
// between.
func TestAnyHistory(t *testing.T) {
	seeds, steps := 6, 60
	if tier.Nightly() {
		seeds, steps = 60, 150
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWalker(t, uint64(seed))
			for range steps {
				w.step()
			}
			w.push()
			r := w.read()
			w.wantAll(r)
			r.wantOnce()
			w.wantNoOrphans(r)
		})
	}
}

// A commit in memory only is not sent.
func TestOnlyDurableCommitsAreSent(t *testing.T) {
	d := newDevice(t)
	for i := range 20 {
		c, p, err := d.submitOn(edit{"a": text(fmt.Sprint(i))}, nil, d.s.NewestHead())
		if err != nil {
			t.Fatal(err)
		}
		out, err := d.page.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out != nil {
			sent := slices.ContainsFunc(out.Body.Body.Commits, func(k format.CommitChange) bool { return k.Commit.ID == c.ID })
			if sent && !durable(d, c) {
				t.Fatal("a commit was sent that is not durable")
			}
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func durable(d *device, c *commit.Commit) bool {
	return slices.ContainsFunc(d.s.Heads(), func(h *commit.Commit) bool { return h.ID == c.ID })
}

// I2: when a pack fails and a later one is in the bucket already, an index piece in that one is not
// taken for a sign that what it lists is there.
func TestLaterPackBeforeEarlierOne(t *testing.T) {
	for _, reopen := range []bool{false, true} {
		d := newDevice(t)
		d.opts = func(o *outgoing.Options) { o.Parallel = 2 }
		d.newPage()
		d.commit(edit{"a": text(noise(1, 36<<20))})
		var puts atomic.Int32
		third := make(chan struct{})
		d.b.SetBefore(func(op bucket.Op, _ string) error {
			if op != bucket.OpPut {
				return nil
			}
			switch puts.Add(1) {
			case 1:
				<-third // the second one is in the bucket, and recorded
				return base.ErrNetwork
			case 3:
				close(third)
				return base.ErrNetwork
			}
			return nil
		})
		if _, err := d.page.Next(t.Context()); !errors.Is(err, base.ErrNetwork) {
			t.Fatalf("got %v", err)
		}
		d.b.SetBefore(nil)
		if reopen {
			d.crash()
		}
		d.push()
		r := d.read()
		d.wantAll(r)
		for p, n := range r.times {
			if n > 1 && !p.Kind().IsIndex() {
				t.Fatalf("piece %s was uploaded %d times", p, n)
			}
		}
	}
}

// With several packs under way at once, what fails leaves nothing that a later body does not mend.
func TestParallelUploads(t *testing.T) {
	if !tier.Nightly() {
		t.Skip("tier 2")
	}
	for seed := range uint64(20) {
		d := newDevice(t)
		d.opts = func(o *outgoing.Options) { o.Parallel = 4 }
		d.newPage()
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 2))
		d.commit(edit{"a": text(noise(seed, 50<<20)), "b": {content: noise(seed+100, 4<<20), lazy: true}})
		for range 2 {
			d.b.SetBefore(func(op bucket.Op, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if op == bucket.OpPut && rng.IntN(3) == 0 {
					return base.ErrNetwork
				}
				return nil
			})
			_, _ = d.page.Next(t.Context())
			d.b.SetBefore(nil)
			d.crash()
		}
		d.push()
		d.wantAll(d.read())
	}
}
