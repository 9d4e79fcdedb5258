package pack

import (
	"context"
	"slices"
	"sync"
)

// budget bounds memory that several use: who needs some waits, in order, until others have given
// some back.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64     // guarded by mu
	waiting []*waiter // guarded by mu
}

type waiter struct {
	bytes int64
	ready chan struct{} // closed when the bytes are the waiter's
}

// take waits for n bytes, or for the whole budget if n is more, and returns how to give them back.
// The error is that of ctx.
func (b *budget) take(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, b.limit)
	release = func() { b.give(n) }
	b.mu.Lock()
	if len(b.waiting) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return release, nil
	}
	w := &waiter{bytes: n, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return release, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.wakeLocked() // those behind may need less
	}
	b.mu.Unlock()
	if i < 0 { // it became ready meanwhile
		release()
	}
	return nil, context.Cause(ctx)
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.wakeLocked()
}

// wakeLocked gives what is free to those who have waited longest.
func (b *budget) wakeLocked() {
	for len(b.waiting) > 0 && b.used+b.waiting[0].bytes <= b.limit {
		b.used += b.waiting[0].bytes
		close(b.waiting[0].ready)
		b.waiting = b.waiting[1:]
	}
}
