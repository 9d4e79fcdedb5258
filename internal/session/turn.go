package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
)

// A transaction that is retried after ErrConflict would seldom succeed beside writers that wait for
// the page's write turn, since they commit while it runs. So the retry takes the turn when it
// begins. It holds the turn for twice the time of the failed transaction plus turnSlack, at most
// for turnLimit, so that a forgotten transaction does not block other writers. Then it continues as
// usual.
const (
	turnSlack = 10 * time.Millisecond
	turnLimit = time.Second
)

// refusals counts the refused transactions of a handle that have not been retried.
type refusals struct {
	mu    sync.Mutex
	count int           // guarded by mu
	took  time.Duration // guarded by mu; the time of the last one
}

func (r *refusals) add(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.took = max(0, took) // an app's clock may jump
}

// take reports whether there was a refusal, which the caller then retries, and how long the retry
// may hold the turn.
func (r *refusals) take() (hold time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == 0 {
		return 0, false
	}
	r.count--
	return min(turnSlack+2*r.took, turnLimit), true
}

// heldTurn is a write turn that a transaction holds from its beginning.
type heldTurn struct {
	unlock func()
	gone   atomic.Bool // released, or about to be by the goroutine that set it
	ended  chan struct{}
	wg     sync.WaitGroup
}

// holdTurn releases the turn after hold, unless it was released before. drop must be called once.
func holdTurn(c clock.Clock, hold time.Duration, unlock func()) *heldTurn {
	h := &heldTurn{unlock: unlock, ended: make(chan struct{})}
	over, release := c.After(hold)
	h.wg.Go(func() {
		defer release()
		select {
		case <-over:
			if h.claim() {
				h.unlock()
			}
		case <-h.ended:
		}
	})
	return h
}

// claim reports whether the turn is still held. The caller then owns it and must call unlock. h may
// be nil.
func (h *heldTurn) claim() bool { return h != nil && !h.gone.Swap(true) }

// drop releases the turn, unless that was done, and waits for the goroutine of holdTurn. h may be
// nil.
func (h *heldTurn) drop() {
	if h == nil {
		return
	}
	if h.claim() {
		h.unlock()
	}
	close(h.ended)
	h.wg.Wait()
}

// beginInTurn begins a transaction on the newest head of the session's branch that holds the write
// turn for some time. It returns nil when the turn is not free within turnLimit, as in a closure of
// Update. The caller has entered the page.
func (p *Page) beginInTurn(ctx context.Context, hold time.Duration) (*Tx, error) {
	call := p.gate.Call(ctx)
	defer call.Release()
	wait, cancel := context.WithTimeout(call, turnLimit)
	defer cancel()
	head, j, unlock, err := p.lockHead(wait)
	if err != nil && call.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, call.Explain(fmt.Errorf("begin transaction: %w", err))
	}
	t := p.newTx(head, j, p.env.Store.Pin(head.ID))
	t.nodes = &completedNodes{t.sink, p, head}
	t.turn = holdTurn(p.env.Clock, hold, unlock)
	return t, nil
}
