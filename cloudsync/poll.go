package cloudsync

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// forever says that nothing is due.
const forever = time.Duration(-1)

// run is the background of a page: it runs a round whenever one is due.
func (p *Page) run() {
	for p.ctx.Err() == nil {
		wait, alive := p.step()
		if !alive || !p.rest(wait) {
			return
		}
	}
}

// rest waits until something is due, and reports whether the page goes on.
func (p *Page) rest(wait time.Duration) bool {
	var due <-chan time.Time
	if wait != forever {
		var release func()
		due, release = p.s.o.Clock.After(wait)
		defer release()
	}
	select {
	case <-p.ctx.Done():
		return false
	case <-p.poke:
	case <-due:
	}
	return true
}

// follow notifies the background and the watchers that there is something to send, also during a
// round.
func (p *Page) follow() {
	changed := p.store.SyncChanged()
	for {
		next := changed
		p.mu.Lock()
		if p.wantUpload && p.up.activity != Idle {
			next = nil // one more change would make no difference
		}
		moved := p.moved
		p.mu.Unlock()
		select {
		case <-next:
			changed = p.store.SyncChanged() // before the round that may see the change
			p.change(func() {
				p.wantUpload = true
				if p.up.activity == Idle {
					p.up.activity = Pending
				}
			})
			p.wake(false)
		case <-moved:
		case <-p.ctx.Done():
			return
		}
	}
}

// wake wakes the background. With again the background retries failures at once and looks for
// entries.
func (p *Page) wake(again bool) {
	if again {
		p.mu.Lock()
		p.up.notBefore, p.down.notBefore = time.Time{}, time.Time{}
		p.wantUpload = true
		if p.down.err != nil {
			p.nextPoll = time.Time{}
		}
		p.mu.Unlock()
	}
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// interrupt ends the background round in progress.
func (p *Page) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopRound != nil {
		p.stopRound(errPaused)
	}
}

// agenda is the work due in the background.
type agenda struct {
	poll, send, upkeep bool
}

// due returns the work due now, and the time until other work is due.
func (p *Page) due(now time.Time) (agenda, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	poll := max(p.until(p.nextPoll, now), p.until(p.down.notBefore, now))
	send := p.until(p.up.notBefore, now)
	a := agenda{poll: poll == 0, upkeep: p.wantUpkeep}
	if p.wantUpload && p.down.err == nil {
		a.send = send == 0
		return a, min(poll, send)
	}
	return a, poll
}

// until returns the time until t. A t further away than any pause is due now: the clock was set
// back.
func (p *Page) until(t, now time.Time) time.Duration {
	if d := t.Sub(now); d > 0 && d <= max(userPause, 2*p.s.o.MaxPoll) {
		return d
	}
	return 0
}

// step does the work due and returns the time until other work is due. alive is false when the
// store is closed.
func (p *Page) step() (wait time.Duration, alive bool) {
	if p.s.Paused() {
		return forever, true
	}
	a, wait := p.due(p.s.o.Clock.Now())
	if a == (agenda{}) {
		return wait, true
	}
	ctx, stop := context.WithCancelCause(p.ctx)
	defer stop(nil)
	p.mu.Lock()
	p.stopRound = stop
	p.mu.Unlock()
	if p.s.Paused() { // paused since the check above, before there was a round to stop
		return forever, true
	}
	err := p.round(ctx, a)
	p.mu.Lock()
	p.stopRound = nil
	p.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		p.s.o.Logger.Warn("sync of a page has failed", "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
		if errors.Is(err, base.ErrClosed) {
			return 0, false
		}
	}
	return 0, true
}

// round does the work of an agenda.
func (p *Page) round(ctx context.Context, a agenda) error {
	ctx, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer p.unlock()
	if err := p.ready(ctx); err != nil {
		return err
	}
	if !p.fresh() || a.poll && !a.send {
		if _, err := p.download(ctx); err != nil {
			return err
		}
	}
	if a.send {
		p.change(func() { p.wantUpload = false })
		if _, err := p.upload(ctx); err != nil {
			p.mu.Lock()
			p.wantUpload = true
			p.mu.Unlock()
			return err
		}
	}
	p.succeeded(ctx)
	p.upkeep(ctx)
	return nil
}

// schedule sets the time of the next look: soon after an event, later and later without one.
func (p *Page) schedule(active bool) {
	now := p.s.o.Clock.Now()
	jitter := 0.9 + 0.2*p.s.random()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nextPoll = now.Add(time.Duration(float64(p.interval) * jitter)); active {
		p.nextPoll = now.Add(time.Duration(float64(p.s.o.MinPoll) * jitter))
		p.interval = p.s.o.MinPoll
	}
	p.interval = min(2*p.interval, p.s.o.MaxPoll)
}
