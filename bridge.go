package ledger

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
)

// Connect gives the packages beside this one, such as admin, access to the engines of a repository.
var _ = bridge.Connect(bridge.Root{
	Repository:  func(r any) *bridge.Repository { return r.(*Repository).bridge() },
	Page:        func(p any) *bridge.Page { return p.(*Page).bridge() },
	Snapshot:    func(s any) *session.Snapshot { return s.(*Snapshot).in },
	NewSnapshot: func(s *session.Snapshot) any { return newSnapshot(s) },
	NewTx:       func(t *session.Tx) any { return newTx(t) },
	Conflicts: func(p *merge.Pair) func(*merging.Conflict) any {
		k := newConflictMaker(p)
		return func(c *merging.Conflict) any { return k.conflict(c) }
	},
})

func (r *Repository) bridge() *bridge.Repository {
	return &bridge.Repository{
		Disk: r.disk, Usage: r.usage, Clock: r.clock, Log: r.o.Logger, Identity: r.identity.Load(), Dir: r.dir, ReadOnly: r.o.ReadOnly, Mended: r.mended,
		Cloud: r.cloud, Space: r.space, Quota: r.quota, Gone: r.pages.Gone, Store: r.storageOptions,
		Call: r.call, Change: r.change, CloudTurn: r.inCloudTurn, Alone: r.alone,
		Visit: func(ctx context.Context, k pageKey, fn func(context.Context, *bridge.Page) error) error {
			return r.visit(ctx, k, func(ctx context.Context, p *Page) error { return fn(ctx, p.bridge()) })
		},
		SyncPages: func(ctx context.Context, only []pageKey, fn func(context.Context, *bridge.Page, *cloudlink.Work) error) ([]cloudlink.Work, error) {
			return r.syncPages(ctx, only, func(ctx context.Context, w *cloudlink.Work) error {
				return r.syncPage(ctx, w, presence.ForLook, func(ctx context.Context, p *Page) error { return fn(ctx, p.bridge(), w) })
			})
		},
	}
}

func (p *Page) bridge() *bridge.Page {
	s := p.shared
	return &bridge.Page{
		Key: s.key, Name: s.name, Handle: p, Store: s.store, Session: p.in, Cloud: s.cloud, Collector: s.collector, Note: s.note,
		Positions: s.positions, Transactions: s.transactions,
		Handles: func() (all []*session.Page) {
			for _, h := range s.repo.pages.Handles(s.key) {
				all = append(all, h.in)
			}
			return all
		},
	}
}

// alone calls fn while no caller has the page open or can open it. It closes handles that only keep
// the page, and returns false when the page is in use.
func (r *Repository) alone(ctx context.Context, k pageKey, fn func() error) (ok bool, err error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.gate.Leave()
	err = r.pages.Take(ctx, k, func(presence.Leave) error { return fn() })
	if errors.Is(err, presence.ErrInUse) {
		return false, nil
	}
	return true, err
}
