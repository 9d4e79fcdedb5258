package reclaim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/turn"
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
	Limits
	host *Host
	wake chan struct{} // holds one token
	turn turn.Lock     // two counts at once would free twice as much
}

// Limits are the limits of a Quota: Bytes for all pages, Floor for the space to keep free on the
// disk, and Values for the values of open pages. 0 means none.
type Limits struct{ Bytes, Floor, Values int64 }

// NewQuota returns a Quota that is not running.
func NewQuota(h *Host, l Limits) *Quota {
	return &Quota{Limits: l, host: h, wake: make(chan struct{}, 1), turn: turn.New()}
}

// Run enforces the limits until ctx ends: now, after each poke, and periodically. It returns at
// once when there is no limit.
func (q *Quota) Run(ctx context.Context) {
	if q.Limits == (Limits{}) {
		return
	}
	told, again := "", quotaAgain
	for {
		said, wait := "", quotaEvery
		if err := q.Keep(ctx); err != nil && ctx.Err() == nil {
			if said = err.Error(); said != told { // logged once, not every few minutes
				q.host.Log.Warn("pages take more space than they may", "error", err)
			}
		}
		if told = said; told == "" {
			again = quotaAgain
		} else {
			wait, again = again, min(2*again, quotaEvery)
		}
		tick, release := q.host.Clock.After(wait)
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
	if q.turn.Take(ctx) != nil {
		return context.Cause(ctx)
	}
	defer q.turn.Give()
	if q.Values > 0 {
		if _, err := q.drop(ctx, 0, q.Values); err != nil {
			return err
		}
	}
	over, err := q.excess(ctx)
	if err != nil || over <= 0 {
		return err
	}
	report, err := q.host.Evict(ctx, EvictOptions{FreeBytes: over})
	freed, kept := report.FreedBytes, report.Kept
	if err == nil && freed < over {
		var dropped int64
		dropped, err = q.drop(ctx, over-freed, 0)
		freed += dropped
	}
	if err == nil && freed < over {
		err = fmt.Errorf("pages take %d bytes too many, and the %d that are closed may not go: %w", over-freed, len(kept), base.ErrNoSpace)
		if len(kept) > 0 {
			err = fmt.Errorf("%w: the first one: %s", err, kept[0].Reason)
		}
	}
	return err
}

// drop drops values of open pages until the given bytes have been freed, or only keep bytes of
// values are left. It compacts the pages, and returns the freed bytes.
func (q *Quota) drop(ctx context.Context, bytes, keep int64) (freed int64, err error) {
	report, err := q.host.Evict(ctx, EvictOptions{Values: true, FreeBytes: bytes, KeepBytes: keep, OpenOnly: true})
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range report.Evicted {
		errs = append(errs, q.host.Visit(ctx, e.Page, func(ctx context.Context, c *Collector) error {
			done, err := c.Compact(ctx, false, nil)
			freed += max(done.Freed, 0)
			return err
		}))
	}
	return freed, errors.Join(errs...)
}

// excess returns how many bytes to free.
func (q *Quota) excess(ctx context.Context) (over int64, err error) {
	if q.Floor > 0 {
		free, err := q.host.Free()
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
	pages, err := q.host.Disk.Pages()
	if err != nil {
		return 0, err
	}
	sum, err := sumSizes(ctx, pages, q.noted)
	if err == nil && sum > q.Bytes { // recorded sizes have no checksum: one damaged size could evict all pages
		sum, err = sumSizes(ctx, pages, q.host.Disk.PageSize)
	}
	if err != nil {
		return 0, err
	}
	return max(over, sum-q.Bytes), nil
}

// noted returns the disk space of a page: the size recorded when it was closed, or the current
// size.
func (q *Quota) noted(k base.Page) (int64, error) {
	if q.host.UseOf(k) == presence.Nobody {
		if n, err := q.host.Usage.Size(k); err != nil || n > 0 {
			return n, err
		}
	}
	return q.host.Disk.PageSize(k)
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
