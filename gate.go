package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// gate lets calls in until it is closed, and lets the closer wait for those that are inside. The
// zero gate is not usable; see newGate.
type gate struct {
	n     atomic.Int64    // calls inside; math.MinInt64 is added once the gate is closed
	open  context.Context // ends when the gate closes; of the gate itself, not of a call
	shut  context.CancelFunc
	empty chan struct{}
	once  sync.Once
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	g.open, g.shut = context.WithCancel(context.Background())
	return g
}

// enter reports whether the call may go on; it must then leave.
func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) == math.MinInt64 {
		g.once.Do(func() { close(g.empty) })
	}
}

// close refuses further calls and waits for those that are inside. It is called once.
func (g *gate) close() {
	g.shut()
	g.n.Add(1)
	g.n.Add(math.MinInt64)
	g.leave()
	<-g.empty
}

// closed reports whether close was called.
func (g *gate) closed() bool { return g.open.Err() != nil }

// callContext is the context of a call together with the gate that it has passed: it ends when
// either ends. What the gate adds costs nothing until somebody waits on it.
type callContext struct {
	context.Context
	gate   *gate
	over   atomic.Bool // release was called
	mu     sync.Mutex
	merged context.Context    // guarded by mu; made by the first Done
	cancel context.CancelFunc // guarded by mu
}

func (g *gate) context(ctx context.Context) *callContext { return &callContext{Context: ctx, gate: g} }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		ctx, cancel := context.WithCancel(c.Context)
		stop := context.AfterFunc(c.gate.open, cancel)
		c.merged, c.cancel = ctx, func() { stop(); cancel() }
	}
	return c.merged.Done()
}

// Err implements context.Context.
func (c *callContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.over.Load() { // Done is closed, so there must be a reason
		return context.Canceled
	}
	return c.gate.open.Err()
}

// release ends what Done began. It is called once, when the call ends.
func (c *callContext) release() {
	c.over.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
}

// explain makes an error that came from the closing of the gate match ErrClosed.
func (c *callContext) explain(err error) error {
	if err != nil && errors.Is(err, context.Canceled) && c.gate.closed() && c.Context.Err() == nil {
		return fmt.Errorf("page was closed meanwhile: %w", ErrClosed)
	}
	return err
}
