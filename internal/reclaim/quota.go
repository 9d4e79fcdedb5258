package reclaim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// quotaEvery is how often a Quota checks the limits without a poke. quotaAgain is the first pause
// after they could not be met, since a page in use may be closed; it doubles up to quotaEvery.
const (
	quotaEvery = 5 * time.Minute
	quotaAgain = time.Second
)

// ErrUnknown reports that the free space of the disk is unknown.
var ErrUnknown = errors.New("the free space is not known")

// Quota enforces limits on the disk space of pages. It drops values until their limit is met, and
// evicts pages until the others are. When no more pages may be evicted, it drops values of open
// pages.
type Quota struct {
	QuotaOptions
	wake chan struct{} // holds one token
	turn chan struct{} // holds one token: two counts at once would free twice as much
}

// QuotaOptions are the limits of a Quota, and its means. A limit of 0 means none.
type QuotaOptions struct {
	// Bytes is the limit for all pages, Floor the space to keep free on the disk, and Values the
	// limit for values of open pages.
	Bytes, Floor, Values int64
	Clock                clock.Clock
	Log                  *slog.Logger
	// Free returns how many bytes are free on the disk. Errors: ErrUnknown, those of the system.
	Free func() (int64, error)
	// Pages returns the pages on this device. Noted returns the size of a page, which may be the
	// one recorded when it was closed, and Size measures it.
	Pages       func() ([]base.Page, error)
	Noted, Size func(base.Page) (int64, error)
	// Evict evicts pages until the given bytes have been freed. It returns the freed bytes, the
	// number of closed pages that cannot be evicted, and the reason of the first.
	Evict func(ctx context.Context, bytes int64) (freed int64, kept int, reason string, err error)
	// Drop drops values of open pages until the given bytes have been freed, or only keep bytes of
	// values are left. It returns the freed bytes.
	Drop func(ctx context.Context, bytes, keep int64) (freed int64, err error)
}

// NewQuota returns a Quota that is not running.
func NewQuota(o QuotaOptions) *Quota {
	return &Quota{QuotaOptions: o, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// Run enforces the limits until ctx ends: now, after each poke, and periodically. It returns at
// once when there is no limit.
func (q *Quota) Run(ctx context.Context) {
	if q.Bytes == 0 && q.Floor == 0 && q.Values == 0 {
		return
	}
	told, again := "", quotaAgain
	for {
		said, wait := "", quotaEvery
		if err := q.Keep(ctx); err != nil && ctx.Err() == nil {
			if said = err.Error(); said != told { // logged once, not every few minutes
				q.Log.Warn("pages take more space than they may", "error", err)
			}
		}
		if told = said; told == "" {
			again = quotaAgain
		} else {
			wait, again = again, min(2*again, quotaEvery)
		}
		tick, release := q.Clock.After(wait)
		select {
		case <-tick:
		case <-q.wake:
		case <-ctx.Done():
			release()
			return
		}
		release()
	}
}

// Poke makes Run check the limits soon.
func (q *Quota) Poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Keep enforces the limits now. Errors: base.ErrNoSpace when it cannot free enough, those of the
// functions and of ctx.
func (q *Quota) Keep(ctx context.Context) error {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if q.Values > 0 {
		if _, err := q.Drop(ctx, 0, q.Values); err != nil {
			return err
		}
	}
	over, err := q.excess(ctx)
	if err != nil || over <= 0 {
		return err
	}
	freed, kept, reason, err := q.Evict(ctx, over)
	if err == nil && freed < over {
		var dropped int64
		dropped, err = q.Drop(ctx, over-freed, 0)
		freed += dropped
	}
	if err == nil && freed < over {
		err = fmt.Errorf("pages take %d bytes too many, and the %d that are closed may not go: %w", over-freed, kept, base.ErrNoSpace)
		if kept > 0 {
			err = fmt.Errorf("%w: the first one: %s", err, reason)
		}
	}
	return err
}

// excess returns how many bytes to free.
func (q *Quota) excess(ctx context.Context) (over int64, err error) {
	if q.Floor > 0 {
		free, err := q.Free()
		if err != nil && !errors.Is(err, ErrUnknown) {
			return 0, fmt.Errorf("look for free space: %w", err)
		}
		if err == nil {
			over = q.Floor - free
		}
	}
	if q.Bytes == 0 {
		return over, nil
	}
	pages, err := q.Pages()
	if err != nil {
		return 0, err
	}
	sum, err := sumSizes(ctx, pages, q.Noted)
	if err == nil && sum > q.Bytes { // recorded sizes have no checksum: one damaged size could evict all pages
		sum, err = sumSizes(ctx, pages, q.Size)
	}
	if err != nil {
		return 0, err
	}
	return max(over, sum-q.Bytes), nil
}

// sumSizes returns the total size of pages, saturated at the greatest int64.
func sumSizes(ctx context.Context, pages []base.Page, size func(base.Page) (int64, error)) (sum int64, err error) {
	for _, p := range pages {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := size(p)
		if err != nil {
			return 0, err
		}
		sum += min(n, math.MaxInt64-sum)
	}
	return sum, nil
}
