package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// Reupload repairs the bucket from the data of this device, after the bucket was wiped, restored
// from an older copy, or replaced. It takes over the bucket's keys, or makes new ones when there
// are none. A keyring that is damaged, or missing beside pages of this repository, is restored from
// the local copy. Each named page, or each page, enters the bucket's epoch if that differs from its
// own, or begins one with all its data, and uploads what that epoch lacks. Nothing on this device
// is deleted. Run on each device, it restores everything that any device has. PageSync.Missing
// counts the pieces that are neither on this device nor in the bucket.
//
// After a crash, call it again. Errors: those of Sync.
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
