package pack

import (
	"context"
	"sync"
)

// flights makes concurrent calls with one key share one execution. A flight ends when it is done,
// or when all its waiters have left.
type flights[K comparable, V any] struct {
	wg *sync.WaitGroup // of the owner, which waits for the goroutines

	mu    sync.Mutex
	calls map[K]*flight[V] // guarded by mu
}

// flight is one shared execution.
type flight[V any] struct {
	cancel context.CancelFunc
	done   chan struct{}
	v      V     // when done is closed
	err    error // likewise

	waiting int // guarded by the mutex of flights
}

// do returns the result of fn for key, once for all calls during its execution. fn gets a context
// of its own, with the values of the first caller's. It runs on a goroutine counted by the owner's
// WaitGroup, which must not be at zero. The error is that of fn or of ctx.
func (g *flights[K, V]) do(ctx context.Context, key K, fn func(context.Context) (V, error)) (V, error) {
	g.mu.Lock()
	f := g.calls[key]
	if f == nil {
		f = g.beginLocked(ctx, key, fn)
	}
	f.waiting++
	g.mu.Unlock()
	select {
	case <-f.done:
		return f.v, f.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f.waiting--
	if f.waiting == 0 {
		f.cancel()
		if g.calls[key] == f { // a later call starts a new flight
			delete(g.calls, key)
		}
	}
	var none V
	return none, context.Cause(ctx)
}

func (g *flights[K, V]) beginLocked(ctx context.Context, key K, fn func(context.Context) (V, error)) *flight[V] {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the first caller, for the others
	f := &flight[V]{cancel: cancel, done: make(chan struct{})}
	if g.calls == nil {
		g.calls = make(map[K]*flight[V])
	}
	g.calls[key] = f
	g.wg.Go(func() {
		defer cancel()
		f.v, f.err = fn(own)
		g.mu.Lock()
		if g.calls[key] == f {
			delete(g.calls, key)
		}
		g.mu.Unlock()
		close(f.done)
	})
	return f
}
