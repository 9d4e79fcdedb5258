package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
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
func Reupload(ctx context.Context, repo *ledger.Repository, only ...ledger.PageRef) (done []ledger.PageSync, err error) {
	r := of(repo)
	if err := r.CloudTurn(ctx, "upload anew", r.Cloud.Rejoin); err != nil {
		return nil, err
	}
	all, err := r.SyncPages(ctx, keysOf(only), func(ctx context.Context, p *bridge.Page, w *cloudlink.Work) error {
		err := p.Session.Call(ctx, func(ctx context.Context) (err error) {
			w.Missing, err = p.Cloud.Reupload(ctx)
			return err
		})
		if err == nil {
			err = p.WithSync(ctx, "", syncPage)
			w.State = p.Cloud.State(ctx)
		}
		return err
	})
	for i := range all {
		w := &all[i]
		done = append(done, ledger.PageSync{PageRef: refOf(w.Page), Name: w.Name, Created: w.Created, Missing: w.Missing, State: w.State, Err: w.Err})
	}
	return done, err
}
