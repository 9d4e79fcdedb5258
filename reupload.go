package ledger

import (
	"context"

	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/presence"
)

// Reupload makes the bucket whole again from what this device has: after it was wiped, restored
// from an older copy, or replaced. Keys are made anew when there are none; otherwise those that are
// there are taken over; one that is damaged, or missing beside pages of this repository, is put
// back from what is remembered here. Each page, or those that are named, enters the epoch that is
// there where that is another than it knew, or begins one with all that it has, and sends what that
// lacks. Nothing here is deleted. Run on each device, it brings back everything that any of them
// has. PageSync.Missing counts the pieces that are neither here nor in the bucket.
//
// After a crash it is called again. Errors: those of Sync.
func (r *Repository) Reupload(ctx context.Context, only ...PageRef) ([]PageSync, error) {
	if err := r.inCloudTurn(ctx, "upload anew", r.cloud.Rejoin); err != nil {
		return nil, err
	}
	return r.syncPages(ctx, only, func(ctx context.Context, w *cloudlink.Work) error {
		return r.syncPage(ctx, w, presence.ForLook, func(ctx context.Context, p *Page) error {
			err := p.in.Call(ctx, func(ctx context.Context) (err error) {
				w.Missing, err = p.shared.cloud.Reupload(ctx)
				return err
			})
			if err != nil {
				return err
			}
			return p.syncOne(ctx, w)
		})
	})
}
