package bucket

import (
	"context"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
)

// Limits bound the rates of requests and bytes; 0 means no bound. Bytes are those of bodies, while
// they stream. Up to one second's worth may be saved up.
type Limits struct {
	UploadBytesPerSecond, DownloadBytesPerSecond int64
	RequestsPerSecond                            float64
}

// sliceBytes is how much of a body passes a limiter at once.
const sliceBytes = 32 << 10

// limiter is a token bucket. A portion that needs more tokens than there are leaves a debt. Its
// taker waits until the debt is paid, so that the mean rate holds for portions of any size.
type limiter struct {
	clock clock.Clock
	rate  float64 // a second

	mu   sync.Mutex
	paid time.Time // when all debts are paid; guarded by mu
}

// newLimiter returns nil, which limits nothing, for a rate that is not positive.
func newLimiter(c clock.Clock, rate float64) *limiter {
	if !(rate > 0) {
		return nil
	}
	return &limiter{clock: c, rate: rate}
}

// take takes n and waits until that is paid, or ctx ends.
func (l *limiter) take(ctx context.Context, n int) error {
	debt := l.pay(n)
	if debt <= 0 {
		return nil
	}
	paid, release := l.clock.After(debt)
	defer release()
	select {
	case <-paid:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pay takes n, or gives n back that is negative, and returns the time until all debts are paid.
func (l *limiter) pay(n int) time.Duration {
	if l == nil || n == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	saved := l.time(max(1, l.rate)) // one request may always be saved up
	if earliest := now.Add(-saved); l.paid.Before(earliest) {
		l.paid = earliest
	}
	l.paid = l.paid.Add(l.time(float64(n)))
	return l.paid.Sub(now)
}

// time returns how long n takes, at most a day.
func (l *limiter) time(n float64) time.Duration {
	return time.Duration(min(n/l.rate, (24*time.Hour).Seconds()) * float64(time.Second))
}

// part returns the part of p that may be read at once.
func (l *limiter) part(p []byte) []byte {
	if l == nil {
		return p
	}
	return p[:min(len(p), sliceBytes)]
}
