package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/vfs"
)

// EvictError reports a page that could not be removed from this device. Reason is text for users,
// and Bar the cause for programs: package admin has its values. It matches ErrConflict.
type EvictError struct {
	Page   PageRef
	Name   string
	Bar    reclaim.Bar
	Reason string
}

// Error implements error.
func (e *EvictError) Error() string {
	return fmt.Sprintf("page %s stays: %s", base.PageName(e.Page.Ledger, e.Name, e.Page.ID), e.Reason)
}

// Is makes the error match ErrConflict.
func (e *EvictError) Is(target error) bool { return target == ErrConflict }

// newSpace returns what package reclaim needs to free space of the repository, whose usage is open.
func newSpace(r *Repository) *reclaim.Host {
	return &reclaim.Host{
		Disk: r.disk, Usage: r.usage, Clock: r.clock, Log: r.o.Logger, Prove: r.cloud.Prove, Where: r.pages.Where, UseOf: r.pages.UseOf,
		Alone: r.pages.Take, Store: r.storageOptions,
		Bucket: func() ([16]byte, bool, error) {
			id, ok, err := r.cloud.Bucket()
			return id, ok, err
		},
		Free: func() (int64, error) {
			if r.o.InMemory {
				return 0, reclaim.ErrUnknown
			}
			return vfs.FreeBytes(r.dir)
		},
		Visit: func(ctx context.Context, k pageKey, fn func(context.Context, *reclaim.Collector) error) error {
			return r.visit(ctx, k, func(ctx context.Context, p *Page) error { return fn(ctx, p.shared.collector) })
		},
	}
}
