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
		if !alive {
			return
		}
		var due <-chan time.Time
		release := func() {}
		if wait != forever {
			due, release = p.s.o.Clock.After(wait)
		}
		select {
		case <-p.ctx.Done():
		case <-p.poke:
		case <-due:
		}
		release()
	}
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

// due reports whether it is time to look and to send, and how long the background waits if it is
// time for neither.
func (p *Page) due() (poll, send bool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = max(p.until(p.nextPoll), p.until(p.down.notBefore))
	poll = wait == 0
	if p.wantUpload && p.down.err == nil {
		toSend := p.until(p.up.notBefore)
		send, wait = toSend == 0, min(wait, toSend)
	}
	return poll, send, wait
}

// until returns the time until t. A t further away than any pause is due now: the clock was set
// back.
func (p *Page) until(t time.Time) time.Duration {
	if d := t.Sub(p.s.o.Clock.Now()); d > 0 && d <= max(day, 2*p.s.o.MaxPoll) {
		return d
	}
	return 0
}

// step does the work due and returns the time until other work is due. alive is false when the
// store is closed.
func (p *Page) step() (wait time.Duration, alive bool) {
	running := p.s.unpaused()
	if running.Err() != nil {
		return forever, true
	}
	poll, send, wait := p.due()
	if !poll && !send {
		return wait, true
	}
	ctx, release := joined(p.ctx, running)
	defer release()
	err := p.round(ctx, poll, send)
	if err != nil && ctx.Err() == nil {
		p.s.o.Logger.Warn("sync of a page has failed", "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
		if errors.Is(err, base.ErrClosed) {
			return 0, false
		}
	}
	return 0, true
}

// round looks for new entries and sends, as far as that is due, and then does the upkeep.
func (p *Page) round(ctx context.Context, poll, send bool) error {
	ctx, err := p.lock(ctx, 0)
	if err != nil {
		return err
	}
	defer p.turn.Give()
	if err := p.ready(ctx); err != nil {
		return err
	}
	if !p.fresh() || poll && !send {
		if _, err := p.download(ctx); err != nil {
			return err
		}
	}
	if send {
		p.change(func() { p.wantUpload = false })
		if _, err := p.upload(ctx); err != nil {
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
