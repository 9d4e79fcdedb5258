package pack

import (
	"context"
	"sync"
)

// flights lets calls with one key at one time share what the first of them began. A flight ends
// when it is done, or when all who wait for it have left.
type flights[K comparable, V any] struct {
	wg *sync.WaitGroup // of the owner, who waits for the goroutines

	mu    sync.Mutex
	calls map[K]*flight[V] // guarded by mu
}

// flight is one of them.
type flight[V any] struct {
	cancel context.CancelFunc
	done   chan struct{}
	v      V     // when done is closed
	err    error // likewise

	waiting int // guarded by the mutex of flights
}

// do returns what fn returns for key, once for all who ask while it runs. fn has a context of its
// own, with the values of that of the first who asked. It runs on a goroutine that the owner's
// WaitGroup, which must not be at zero, counts. The error is that of fn or of ctx.
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
		if g.calls[key] == f { // who comes now begins anew
			delete(g.calls, key)
		}
	}
	var none V
	return none, context.Cause(ctx)
}

func (g *flights[K, V]) beginLocked(ctx context.Context, key K, fn func(context.Context) (V, error)) *flight[V] {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives who began it, for the others
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
