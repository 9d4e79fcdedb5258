package background_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	layout "github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/clock"
)

var pageID = [16]byte{7, 7}

const (
	minPoll = 2 * time.Second
	maxPoll = 5 * time.Minute
)

// world is a history while it happens. It lives in a bubble of package synctest, whose clock it
// uses.
type world struct {
	t     *testing.T
	h     History
	rng   *rand.Rand
	trace func(format string, args ...any)

	b       *mem.Bucket
	ring    *seal.Keyring
	ledgers map[string]string // by the prefix of the names of a page's objects
	devices []*device

	faults  float64
	full    bool
	noises  uint64
	shared  time.Time // when there was trouble for all last
	arrived chan struct{}
	work    sync.WaitGroup // what steps have begun

	mu      sync.Mutex
	pending []*request                           // guarded by mu, as all below
	asked   int                                  // requests that came
	failure error                                // the first promise that was broken
	has     map[string]map[commit.ID]bool        // by ledger: what somebody was told is in the bucket
	acked   map[string]map[string]string         // by ledger: the newest value of each key that was acknowledged
	tally   map[*page]map[bucket.Op]int          // requests of the background
	made    map[string]map[commit.ID]*commitNote // by ledger
}

type commitNote struct{ device int }

// run carries out a history in a bubble of its own.
func runHistory(t *testing.T, h History, trace func(format string, args ...any)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("W8: seed %d: %v", h.Seed, p))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, h: h, rng: rand.New(rand.NewPCG(h.Seed, 1)), trace: trace, ledgers: map[string]string{}, arrived: make(chan struct{}, 1),
			has: map[string]map[commit.ID]bool{}, acked: map[string]map[string]string{}, tally: map[*page]map[bucket.Op]int{}, made: map[string]map[commit.ID]*commitNote{}}
		err = w.carryOut()
	})
	return err
}

func (w *world) now() time.Time { return clock.System.Now() }

// fail notes that a promise is broken.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
	}
}

func (w *world) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// seeded returns random bytes for a part of the history. What is read by eight bytes is for pauses,
// also of requests that are made beside each other: it is always the same.
func (w *world) seeded(part uint64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], w.h.Seed)
	binary.LittleEndian.PutUint64(key[8:], part)
	s := &stream{r: rand.NewChaCha8(key)}
	_, _ = s.r.Read(s.pause[:])
	return s
}

// noise returns bytes that do not compress, other ones each time.
func (w *world) noise(n int) string {
	w.noises++
	b := make([]byte, n)
	_, _ = w.seeded(1<<62 | w.noises).Read(b)
	return string(b)
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

func (w *world) carryOut() error {
	ctx := context.Background()
	w.b = mem.New(mem.Options{Clock: clock.System})
	master := seal.NewMasterKey(w.seeded(1))
	var err error
	if w.ring, _, err = cloudsync.Connect(ctx, w.b, master, true, w.seeded(2)); err != nil {
		return err
	}
	for i := range w.h.Pages {
		ledger := ledgerName(i)
		w.ledgers[layout.NamesOf(w.ring, ledger, pageID).Dir+"/"] = ledger
		w.has[ledger], w.acked[ledger], w.made[ledger] = map[commit.ID]bool{}, map[string]string{}, map[commit.ID]*commitNote{}
	}
	for i := range w.h.Devices {
		key := seal.NewDeviceKey(w.seeded(1<<63 | uint64(i)))
		d := &device{w: w, index: i, key: key}
		w.devices = append(w.devices, d)
		if err := d.begin(); err != nil {
			return err
		}
	}
	for i, s := range w.h.Steps {
		w.pass(s.After)
		if err := w.broken(); err != nil {
			w.shut()
			return fmt.Errorf("before step %d: %w", i, err)
		}
		w.step(i, s)
	}
	w.heal()
	w.shut()
	return w.broken()
}

func ledgerName(i int) string { return [...]string{"one", "two", "three", "four"}[i] }

// ledgerOf returns the ledger whose page an object belongs to, "" for others.
func (w *world) ledgerOf(name string) string {
	if i := strings.IndexByte(name, '/'); i > 0 {
		if j := strings.IndexByte(name[i+1:], '/'); j > 0 {
			return w.ledgers[name[:i+j+2]]
		}
	}
	return ""
}

// arrives takes a request, unless its process is dead. A request whose context has ended is none
// that the bucket sees: a pause may have ended it on its way.
func (w *world) arrives(ctx context.Context, r *request) bool {
	run := r.run
	w.mu.Lock()
	defer w.mu.Unlock()
	if run.paused && !r.called && !run.closing() && ctx.Err() == nil && w.failure == nil {
		w.failure = fmt.Errorf("W5: in pause: %v", r)
	}
	if run.dead {
		return false
	}
	w.asked++
	r.n = w.asked
	w.pending = append(w.pending, r)
	run.active = w.now()
	if p := run.page(r.ledger); p != nil && !r.called {
		if w.tally[p] == nil {
			w.tally[p] = map[bucket.Op]int{}
		}
		w.tally[p][r.op]++
	}
	w.wake()
	return true
}

// wake has the scheduler look for what it may let go on.
func (w *world) wake() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// leaves takes a request back that nobody waits for any more.
func (w *world) leaves(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(o *request) bool { return o == r })
	r.run.active = w.now()
}

// choice is one thing that the scheduler may let happen.
type choice struct {
	r *request // a request that goes through
	p *page    // or a merge
}

func (w *world) choices() (all []choice) {
	w.mu.Lock()
	for _, r := range w.pending {
		if !r.run.d.hung {
			all = append(all, choice{r: r})
		}
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.r.run.d.index, b.r.run.d.index), cmp.Compare(a.r.ledger, b.r.ledger), cmp.Compare(a.r.op, b.r.op), cmp.Compare(a.r.name, b.r.name), cmp.Compare(a.r.n, b.r.n))
	})
	for _, d := range w.devices {
		for _, p := range d.run.pages {
			if p.wantsMerge() {
				all = append(all, choice{p: p})
			}
		}
	}
	return all
}

func (w *world) let(c choice) {
	if c.p != nil {
		c.p.mergeBeside()
		return
	}
	a := w.meet(c.r)
	w.mu.Lock()
	w.pending = slices.DeleteFunc(w.pending, func(o *request) bool { return o == c.r })
	c.r.run.active = w.now()
	w.mu.Unlock()
	w.trace("%s %v: %v %v", w.now().Format("02 15:04:05.000"), c.r, a.err, a.lost)
	c.r.answer <- a
}

// pass lets time pass, and what waits go on in the meantime.
func (w *world) pass(d time.Duration) {
	for end := w.now().Add(d); ; {
		w.settle()
		left := end.Sub(w.now())
		if left <= 0 || w.broken() != nil {
			return
		}
		if len(w.choices()) == 0 {
			w.sleep(left, true)
			continue
		}
		w.sleep(min(left, time.Millisecond*time.Duration(1+w.rng.IntN(60))), false)
		w.settle()
		if all := w.choices(); len(all) > 0 {
			w.let(all[w.rng.IntN(len(all))])
		}
	}
}

// sleep lets time pass, until something comes if early is set.
func (w *world) sleep(d time.Duration, early bool) {
	due, release := clock.System.After(d)
	defer release()
	var come chan struct{}
	if early {
		come = w.arrived
	}
	select {
	case <-due:
	case <-come:
	}
}

// settle waits until nothing moves any more, and looks at the promises.
func (w *world) settle() {
	synctest.Wait()
	if w.broken() == nil {
		w.check()
	}
}

// step begins what a step says.
func (w *world) step(i int, s Step) {
	d := w.devices[s.Device]
	var p *page
	w.trace("%s step %d: %v device %d page %d", w.now().Format("02 15:04:05.000"), i, s.Kind, s.Device, s.Page)
	d.settled()
	switch p = d.run.pages[s.Page]; s.Kind {
	case Edit:
		p.edit(s.N)
	case Sync:
		p.call(false)
	case Wait:
		p.call(true)
	case Leave:
		d.leave()
	case Pause:
		d.run.s.Pause()
		w.mu.Lock()
		d.run.paused = true
		w.mu.Unlock()
	case Resume:
		d.resume()
	case Close:
		p.reopen()
	case Restart:
		d.restart()
	case Kill:
		d.kill(s.N)
	case Offline, Online:
		d.offline = s.Kind == Offline
	case Hang, Answer:
		d.hung = s.Kind == Hang
	case Deny, Allow:
		d.denied = s.Kind == Deny
	case Full, Room:
		w.full = s.Kind == Full
	case Faulty, Fine:
		if w.faults = 0; s.Kind == Faulty {
			w.faults = []float64{0.02, 0.1, 0.3}[s.N%3]
		}
	}
	if s.Kind >= Offline {
		w.trouble(d)
		if s.Kind >= Full {
			w.shared = w.now()
		}
		w.wake()
	}
}

// trouble notes that something is or was in the way of a device.
func (w *world) trouble(d *device) { d.troubled = w.now() }

// well returns since when nothing has been in the way of a device; false while something is.
func (w *world) well(d *device) (time.Time, bool) {
	at := d.troubled
	if w.shared.After(at) {
		at = w.shared
	}
	return at, !d.offline && !d.hung && !d.denied && !w.full && w.faults == 0
}

// heal ends all trouble, lets time pass, and looks what has become of it.
func (w *world) heal() {
	w.settle() // what the last step began comes before what heal lets go on
	w.faults, w.full, w.shared = 0, false, w.now()
	for _, d := range w.devices {
		d.settled()
		d.offline, d.hung, d.denied = false, false, false
		if d.run.paused {
			d.resume()
		}
	}
	w.trace("%s all is well", w.now().Format("02 15:04:05.000"))
	w.wake()
	w.pass(longestPause + 6*maxPoll)
	if w.broken() == nil {
		w.verify()
	}
	if w.broken() != nil {
		return
	}
	clear(w.tally)
	w.pass(time.Hour)
	w.checkQuiet()
}

// shut ends everything (W8).
func (w *world) shut() {
	for _, d := range w.devices {
		d.hung, d.offline = false, true
		d.leave()
		w.stop(d.run)
	}
	w.work.Wait()
}

// discard takes what is logged.
var discard = slog.New(slog.DiscardHandler)
