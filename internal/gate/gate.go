package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
)

// Gate admits calls until it is closed. The zero Gate is not usable; see New.
type Gate struct {
	n     atomic.Int64    // calls inside; math.MinInt64 is added once the gate is closed
	life  context.Context // ends when the gate closes; of the gate itself, not of a call
	shut  context.CancelFunc
	empty chan struct{}
	once  sync.Once
}

// New returns an open gate.
func New() *Gate {
	g := &Gate{empty: make(chan struct{})}
	g.life, g.shut = context.WithCancel(context.Background())
	return g
}

// Enter reports whether the call is admitted. It must then call Leave.
func (g *Gate) Enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.Leave()
	return false
}

// Leave ends a call that has entered.
func (g *Gate) Leave() {
	if g.n.Add(-1) == math.MinInt64 {
		g.once.Do(func() { close(g.empty) })
	}
}

// Close refuses further calls, ends the contexts of the calls inside, and waits for them. It is
// called once.
func (g *Gate) Close() {
	g.shut()
	g.n.Add(1)
	g.n.Add(math.MinInt64)
	g.Leave()
	<-g.empty
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool { return g.life.Err() != nil }

// Life returns a context that ends when the gate closes.
func (g *Gate) Life() context.Context { return g.life }

// Call is the context of a call combined with its gate: it ends when either ends. The combination
// costs nothing until Done is called.
type Call struct {
	context.Context
	gate   *Gate
	over   atomic.Bool // Release was called
	mu     sync.Mutex
	merged context.Context    // guarded by mu; made by the first Done
	cancel context.CancelFunc // guarded by mu
}

// Call returns the context of a call that has entered. Release must be called when the call ends.
func (g *Gate) Call(ctx context.Context) *Call { return &Call{Context: ctx, gate: g} }

// Done implements context.Context.
func (c *Call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		ctx, cancel := context.WithCancel(c.Context)
		stop := context.AfterFunc(c.gate.life, cancel)
		c.merged, c.cancel = ctx, func() { stop(); cancel() }
	}
	return c.merged.Done()
}

// Err implements context.Context.
func (c *Call) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.over.Load() { // Done is closed, so an error is required
		return context.Canceled
	}
	return c.gate.life.Err()
}

// Release releases the resources of Done. It is called once, when the call ends.
func (c *Call) Release() {
	c.over.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
}

// Explain makes an error caused by the closing of the gate match base.ErrClosed.
func (c *Call) Explain(err error) error {
	if err != nil && errors.Is(err, context.Canceled) && c.gate.Closed() && c.Context.Err() == nil {
		return fmt.Errorf("page was closed meanwhile: %w", base.ErrClosed)
	}
	return err
}
