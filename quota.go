package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/vfs"
)

// quotaEvery is how often it is looked at the quota when no page is closed.
const quotaEvery = 5 * time.Minute

// freeBytes returns what is free on the disk of the repository.
func (r *Repository) freeBytes() (int64, error) {
	switch {
	case r.o.testing != nil && r.o.testing.free != nil:
		return r.o.testing.free()
	case r.o.InMemory:
		return 0, errUnknown
	}
	return vfs.FreeBytes(r.dir)
}

// startQuota starts the goroutine that evicts pages when the quota is exceeded or the disk is too
// full. It ends when the gate closes.
func (r *Repository) startQuota() {
	if r.o.ReadOnly || r.o.Quota == 0 && r.o.FreeSpaceFloor == 0 && r.o.ValueBytes == 0 {
		return
	}
	r.quota.Go(r.runQuota)
}

func (r *Repository) runQuota() {
	told := ""
	for {
		said := ""
		if err := r.keepQuota(r.gate.Life()); err != nil && !r.gate.Closed() {
			if said = err.Error(); said != told { // once, not every few minutes
				r.o.Logger.Warn("pages take more space than they may", "error", err)
			}
		}
		told = said
		tick, release := r.clock.After(quotaEvery)
		select {
		case <-tick:
		case <-r.quotaWake:
		case <-r.gate.Life().Done():
			release()
			return
		}
		release()
	}
}

// pokeQuota has it looked at soon: a page was closed.
func (r *Repository) pokeQuota() {
	select {
	case r.quotaWake <- struct{}{}:
	default:
	}
}

// KeepSpace does at once what is done from time to time by itself: it evicts pages, and drops
// values that the cloud has, until Options.Quota, FreeSpaceFloor and ValueBytes are kept. Without
// these it does nothing. Errors: ErrNoSpace when more would have to go than may, ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func (r *Repository) KeepSpace(ctx context.Context) error {
	return r.change(ctx, "keep space", false, r.keepQuota)
}

// keepQuota drops values until their bound is kept, and evicts pages until the quota and the floor
// are kept. When no page may go any more, values of open pages go.
func (r *Repository) keepQuota(ctx context.Context) error {
	select {
	case r.quotaTurn <- struct{}{}: // two that count at once would let twice as much go
		defer func() { <-r.quotaTurn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.o.ValueBytes > 0 {
		if _, err := r.dropOpen(ctx, EvictOptions{KeepBytes: r.o.ValueBytes}); err != nil {
			return err
		}
	}
	over, err := r.excess(ctx)
	if err != nil || over <= 0 {
		return err
	}
	report, err := r.Evict(ctx, EvictOptions{FreeBytes: over})
	if err == nil && report.FreedBytes < over {
		var freed int64
		freed, err = r.dropOpen(ctx, EvictOptions{FreeBytes: over - report.FreedBytes})
		report.FreedBytes += freed
	}
	if err == nil && report.FreedBytes < over {
		err = fmt.Errorf("pages take %d bytes too many, and the %d that are closed may not go: %w", over-report.FreedBytes, len(report.Kept), ErrNoSpace)
		if len(report.Kept) > 0 {
			err = fmt.Errorf("%w: the first one: %s", err, report.Kept[0].Reason)
		}
	}
	return err
}

// dropOpen drops values of open pages, and compacts the pages. It returns what came back.
func (r *Repository) dropOpen(ctx context.Context, o EvictOptions) (freed int64, err error) {
	o.Values = true
	report, err := (&evictor{repo: r, o: o, openOnly: true}).evictAll(ctx)
	var pages []PageRef
	for _, c := range report.Evicted {
		pages = append(pages, c.PageRef)
	}
	if err != nil || len(pages) == 0 {
		return 0, err
	}
	done, err := r.Compact(ctx, CompactOptions{Pages: pages})
	for i := range done {
		freed += max(done[i].Freed, 0)
	}
	return freed, err
}

// excess returns how many bytes must go.
func (r *Repository) excess(ctx context.Context) (over int64, err error) {
	if r.o.FreeSpaceFloor > 0 {
		free, err := r.freeBytes()
		if err != nil && !errors.Is(err, errUnknown) {
			return 0, fmt.Errorf("look for free space: %w", err)
		}
		if err == nil {
			over = r.o.FreeSpaceFloor - free
		}
	}
	if r.o.Quota == 0 {
		return over, nil
	}
	keys, err := r.disk.Pages()
	if err != nil {
		return 0, err
	}
	sum, err := sumSizes(ctx, keys, r.sizeOf)
	if err == nil && sum > r.o.Quota { // what was noted has no checksum, and all pages would go by one that was said to be without measure
		sum, err = sumSizes(ctx, keys, func(k pageKey) (int64, error) { return r.disk.PageSize(k) })
	}
	if err != nil {
		return 0, err
	}
	return max(over, sum-r.o.Quota), nil
}

// sumSizes adds up what pages take, up to the greatest number that there is.
func sumSizes(ctx context.Context, keys []pageKey, sizeOf func(pageKey) (int64, error)) (sum int64, err error) {
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := sizeOf(k)
		if err != nil {
			return 0, err
		}
		sum += min(n, math.MaxInt64-sum)
	}
	return sum, nil
}

// sizeOf returns what a page takes: what was noted when it was closed, or what is there now.
func (r *Repository) sizeOf(k pageKey) (int64, error) {
	if r.pages.UseOf(k) == presence.Nobody {
		if n, err := r.usage.Size(k); err != nil || n > 0 {
			return n, err
		}
	}
	return r.disk.PageSize(k)
}
