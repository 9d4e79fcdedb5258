package merging

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/storage"
)

// A failed merge is retried after minBackoff, and after twice the time at each further failure, up
// to maxBackoff.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Hour
)

// Env is a Driver's environment in the repository. All fields are set.
type Env struct {
	// Session is the environment of the page's sessions.
	Session *session.Env
	// Automatic enables background merges.
	Automatic bool
	// Jitter returns random bits, which keep devices from merging in step.
	Jitter func() uint64
	// Rules returns the rules of the page. It may run code of the app.
	Rules func() Rules
	// Fetch makes the tree of a commit readable on this device. It may be called while sync waits
	// for the merge.
	Fetch func(ctx context.Context, id commit.ID) error
	// Merged is called for each durable merge, with the duration of all of them, and Failed for
	// heads that could not be merged.
	Merged func(m merge.Merged, took time.Duration)
	Failed func(err error)
}

// Driver merges the heads of an open page: in the background while there are several, and on
// request. It must be closed.
type Driver struct {
	env  Env
	page *session.Page // for what merges read
	turn turn.Lock     // one merge at a time
	wake chan struct{} // holds one token: try again at once

	ctx  context.Context // ends when the store closes; of the goroutine, not of a call
	stop context.CancelFunc
	wg   sync.WaitGroup

	begin sync.Once // starts the goroutine, or prevents that
	lost  sync.Map  // commits whose trees are lost everywhere, as keys

	mu     sync.Mutex
	remote bool                    // guarded by mu; heads of other devices arrived since the last merge
	cancel context.CancelCauseFunc // guarded by mu; of the run, nil when there is none
}

// New returns the driver of a page.
func New(env Env) *Driver {
	m := &Driver{
		env: env, page: session.New(env.Session), turn: turn.New(), wake: make(chan struct{}, 1),
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

func (m *Driver) store() *storage.Store { return m.env.Session.Store }

// Close ends the goroutine and waits for it, and for a running resolver. No call may use the driver
// afterwards.
func (m *Driver) Close() {
	m.stop()
	m.begin.Do(func() {})
	m.wg.Wait()
	m.page.Close() // it has no open transactions or snapshots
}

// Want requests a background merge when there are several heads. remote means that they are from
// another device.
func (m *Driver) Want(remote bool) {
	if !m.env.Automatic || len(m.store().Heads()) == 1 {
		return
	}
	m.mu.Lock()
	m.remote = m.remote || remote
	m.mu.Unlock()
	m.begin.Do(func() { m.wg.Go(m.run) })
}

// poke makes the goroutine retry at once.
func (m *Driver) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// RulesChanged cancels a run with the old rules and starts one with the new rules.
func (m *Driver) RulesChanged() {
	m.mu.Lock()
	if m.cancel != nil {
		m.cancel(errRulesChanged)
	}
	m.mu.Unlock()
	m.poke()
	m.Want(false)
}

// runContext is the context of a run. It reports the end of the call's context at once, which a
// derived context notices a little later: no resolver is called in between.
type runContext struct {
	context.Context
	call context.Context
}

// Err implements context.Context.
func (c *runContext) Err() error { return cmp.Or(c.call.Err(), c.Context.Err()) }

// beginRun returns the context of a run, which ends when the rules change. done must be called.
func (m *Driver) beginRun(ctx context.Context) (run context.Context, done func()) {
	run, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel = cancel
	return &runContext{run, ctx}, func() {
		m.mu.Lock()
		m.cancel = nil
		m.mu.Unlock()
		cancel(nil)
	}
}

// run merges whenever there are several heads, until the driver is closed.
func (m *Driver) run() {
	defer func() {
		if m.ctx.Err() == nil { // it was ended by runtime.Goexit in code of the app
			changed := m.store().HeadsChanged()
			m.wg.Go(func() {
				m.pause(nil, changed)
				m.run()
			})
		}
	}()
	var comity, delay time.Duration // delay is that after the last failure, 0 after a success
	for m.ctx.Err() == nil {
		changed := m.store().HeadsChanged() // taken before the heads are read
		if len(m.store().Heads()) == 1 {
			delay = 0
			m.pause(nil, changed)
			continue
		}
		if comity = m.hesitation(comity); comity > 0 {
			m.pauseFor(comity, changed)
		}
		select { // this attempt serves earlier wake-ups
		case <-m.wake:
		default:
		}
		_, err := m.Merge(m.ctx)
		if err == nil {
			delay = 0
			continue
		}
		if m.ctx.Err() != nil {
			return
		}
		delay = nextBackoff(delay)
		m.env.Session.Logger.Warn("the heads of a page could not be merged", "error", err, "nextAttempt", delay)
		m.pauseFor(delay, changed)
	}
}

// hesitation returns the pause before a merge, after that before the last merge. It grows while all
// heads are merges and some are from other devices: devices with different rules may be merging
// each other's merges, and should wait for each other. For other merges it is 0.
func (m *Driver) hesitation(last time.Duration) time.Duration {
	merges := !slices.ContainsFunc(m.store().Heads(), func(h *commit.Commit) bool { return len(h.Parents) < 2 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if !merges || !m.remote {
		return 0
	}
	m.remote = false
	return nextBackoff(last)
}

func nextBackoff(d time.Duration) time.Duration { return min(max(minBackoff, 2*d), maxBackoff) }

// pauseFor waits for a time between half of d and d, so that devices do not keep step, or as pause.
func (m *Driver) pauseFor(d time.Duration, changed <-chan struct{}) {
	timer, release := m.env.Session.Clock.After(d/2 + time.Duration(m.env.Jitter()%uint64(d/2+1)))
	defer release()
	m.pause(timer, changed)
}

// pause waits for timer, a token in wake, the end of the driver, or for changed to be closed.
func (m *Driver) pause(timer <-chan time.Time, changed <-chan struct{}) {
	select {
	case <-timer:
	case <-m.wake:
	case <-changed:
	case <-m.ctx.Done():
	}
}
