package ledger

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/vfs"
)

func newQuota(r *Repository) *reclaim.Quota {
	return reclaim.NewQuota(reclaim.QuotaOptions{
		Bytes: r.o.Quota, Floor: r.o.FreeSpaceFloor, Values: r.o.ValueBytes, Clock: r.clock, Log: r.o.Logger,
		Free: r.freeBytes, Pages: r.disk.Pages, Noted: r.sizeOf, Size: r.disk.PageSize, Evict: r.evictBytes, Drop: r.dropOpen,
	})
}

// freeBytes returns the free space on the disk of the repository.
func (r *Repository) freeBytes() (int64, error) {
	if r.o.InMemory {
		return 0, reclaim.ErrUnknown
	}
	return vfs.FreeBytes(r.dir)
}

// evictBytes evicts any pages that may be evicted.
func (r *Repository) evictBytes(ctx context.Context, bytes int64) (freed int64, kept int, reason string, err error) {
	report, err := r.evict(ctx, reclaim.EvictOptions{FreeBytes: bytes})
	if len(report.Kept) > 0 {
		reason = report.Kept[0].Reason
	}
	return report.FreedBytes, len(report.Kept), reason, err
}

func (r *Repository) evict(ctx context.Context, o reclaim.EvictOptions) (report reclaim.EvictReport, err error) {
	err = r.change(ctx, "evict", false, func(ctx context.Context) error {
		report, err = r.reclaimer().Evict(ctx, o)
		return err
	})
	return report, err
}

// dropOpen drops values of open pages, and compacts the pages.
func (r *Repository) dropOpen(ctx context.Context, bytes, keep int64) (freed int64, err error) {
	report, err := r.evict(ctx, reclaim.EvictOptions{Values: true, FreeBytes: bytes, KeepBytes: keep, OpenOnly: true})
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, c := range report.Evicted {
		errs = append(errs, r.visit(ctx, c.Page, func(ctx context.Context, p *Page) error {
			done, err := p.shared.collector.Compact(ctx, false, nil)
			freed += max(done.Freed+done.IndexBefore-done.IndexAfter, 0)
			return err
		}))
	}
	return freed, errors.Join(errs...)
}

// sizeOf returns the disk space of a page: the size recorded when it was closed, or the current
// size.
func (r *Repository) sizeOf(k pageKey) (int64, error) {
	if r.pages.UseOf(k) == presence.Nobody {
		if n, err := r.usage.Size(k); err != nil || n > 0 {
			return n, err
		}
	}
	return r.disk.PageSize(k)
}
