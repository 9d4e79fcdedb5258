package ledger

import (
	"context"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/vfs"
)

// KeepSpace does at once what is done from time to time by itself: it evicts pages, and drops
// values that the cloud has, until Options.Quota, FreeSpaceFloor and ValueBytes are kept. Without
// these it does nothing. Errors: ErrNoSpace when more would have to go than may, ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func (r *Repository) KeepSpace(ctx context.Context) error {
	return r.change(ctx, "keep space", false, r.quota.Keep)
}

func newQuota(r *Repository) *reclaim.Quota {
	return reclaim.NewQuota(reclaim.QuotaOptions{
		Bytes: r.o.Quota, Floor: r.o.FreeSpaceFloor, Values: r.o.ValueBytes, Clock: r.clock, Log: r.o.Logger,
		Free: r.freeBytes, Pages: r.disk.Pages, Noted: r.sizeOf, Size: r.disk.PageSize, Evict: r.evictBytes, Drop: r.dropOpen,
	})
}

// freeBytes returns what is free on the disk of the repository.
func (r *Repository) freeBytes() (int64, error) {
	switch {
	case r.o.testing != nil && r.o.testing.free != nil:
		return r.o.testing.free()
	case r.o.InMemory:
		return 0, reclaim.ErrUnknown
	}
	return vfs.FreeBytes(r.dir)
}

// evictBytes evicts pages, whichever may go.
func (r *Repository) evictBytes(ctx context.Context, bytes int64) (freed int64, kept int, reason string, err error) {
	report, err := r.Evict(ctx, EvictOptions{FreeBytes: bytes})
	if len(report.Kept) > 0 {
		reason = report.Kept[0].Reason
	}
	return report.FreedBytes, len(report.Kept), reason, err
}

// dropOpen drops values of open pages, and compacts the pages.
func (r *Repository) dropOpen(ctx context.Context, bytes, keep int64) (freed int64, err error) {
	report, err := r.evict(ctx, &EvictOptions{Values: true, FreeBytes: bytes, KeepBytes: keep}, true)
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

// sizeOf returns what a page takes: what was noted when it was closed, or what is there now.
func (r *Repository) sizeOf(k pageKey) (int64, error) {
	if r.pages.UseOf(k) == presence.Nobody {
		if n, err := r.usage.Size(k); err != nil || n > 0 {
			return n, err
		}
	}
	return r.disk.PageSize(k)
}
