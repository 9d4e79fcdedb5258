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

// quotaEvery is how often it is looked at the bounds when nothing pokes a Quota, and quotaAgain is
// when it is looked again where they could not be kept: a page that somebody had open may go then.
// It doubles with each look, up to quotaEvery.
const (
	quotaEvery = 5 * time.Minute
	quotaAgain = time.Second
)

// ErrUnknown reports that the free space of the disk is not known.
var ErrUnknown = errors.New("the free space is not known")

// Quota keeps the bounds of what pages take on the disk: it drops values until their bound is kept,
// and evicts pages until the others are. When no page may go any more, values of open pages go.
type Quota struct {
	QuotaOptions
	wake chan struct{} // holds one token
	turn chan struct{} // holds one token: two that count at once would let twice as much go
}

// QuotaOptions say what a Quota keeps, and how. A bound of 0 is none.
type QuotaOptions struct {
	// Bytes is what all pages may take, Floor what stays free on the disk, and Values what values
	// may take in the pages that are open.
	Bytes, Floor, Values int64
	Clock                clock.Clock
	Log                  *slog.Logger
	// Free returns how many bytes are free on the disk. Errors: ErrUnknown, those of the system.
	Free func() (int64, error)
	// Pages returns the pages that are here. Noted returns what one takes, also from what was noted
	// when it was closed, and Size measures it.
	Pages       func() ([]base.Page, error)
	Noted, Size func(base.Page) (int64, error)
	// Evict evicts pages until so many bytes are free that were not. It returns what came back, how
	// many pages that are closed may not go, and why the first of these may not.
	Evict func(ctx context.Context, bytes int64) (freed int64, kept int, reason string, err error)
	// Drop drops values of open pages: until so many bytes are free that were not, or until keep
	// bytes of values are left. It returns what came back.
	Drop func(ctx context.Context, bytes, keep int64) (freed int64, err error)
}

// NewQuota returns a Quota, of which nothing runs.
func NewQuota(o QuotaOptions) *Quota {
	return &Quota{QuotaOptions: o, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// Run keeps the bounds until ctx ends: now, whenever it is poked, and from time to time. It returns
// at once when there is no bound.
func (q *Quota) Run(ctx context.Context) {
	if q.Bytes == 0 && q.Floor == 0 && q.Values == 0 {
		return
	}
	told, again := "", quotaAgain
	for {
		said, wait := "", quotaEvery
		if err := q.Keep(ctx); err != nil && ctx.Err() == nil {
			if said = err.Error(); said != told { // once, not every few minutes
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

// Poke has Run look at the bounds soon.
func (q *Quota) Poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Keep has the bounds kept when it returns nil. Errors: base.ErrNoSpace when more would have to go
// than may, those of the functions and of ctx.
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

// excess returns how many bytes must go.
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
	if err == nil && sum > q.Bytes { // what was noted has no checksum, and all pages would go by one that was said to be without measure
		sum, err = sumSizes(ctx, pages, q.Size)
	}
	if err != nil {
		return 0, err
	}
	return max(over, sum-q.Bytes), nil
}

// sumSizes adds up what pages take, up to the greatest number that there is.
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
