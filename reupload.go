package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
)

// Reupload makes the bucket whole again from what this device has: after it was wiped, restored from an older copy, or replaced. Keys are made anew when there are none; otherwise
// those that are there are taken over. Each page, or those that are named, forgets what it knew of the bucket, joins the log that is there, and sends what that lacks. Nothing here is deleted. Run on each
// device, it brings back everything that any of them has. PageSync.Missing counts the pieces that are neither here nor in the bucket.
//
// After a crash it is called again. Errors: those of Sync.
func (r *Repository) Reupload(ctx context.Context, only ...PageRef) ([]PageSync, error) {
	err := r.inCloudTurn(ctx, func(ctx context.Context) error { return r.rejoin(ctx) })
	if err != nil {
		return nil, fmt.Errorf("upload anew: %w", err)
	}
	return r.syncPages(ctx, only, func(p *Page, ctx context.Context, out *PageSync) error {
		if err := p.reupload(ctx, out); err != nil {
			return err
		}
		return p.syncOne(ctx, out)
	})
}

// rejoin makes or takes over the keyring of the bucket when it is another than the one that is remembered. The caller has the cloud's turn.
func (r *Repository) rejoin(ctx context.Context) error {
	file, _ := r.cloud.get()
	if file == nil {
		return ErrNoCloud
	}
	r.cloud.mu.Lock()
	pass := r.cloud.pass
	r.cloud.mu.Unlock()
	next := *file
	ring, err := r.join(ctx, &next, pass)
	if err != nil {
		return err
	}
	w, err := file.wrapped()
	if err == nil && w.BucketID == ring.BucketID() {
		return nil
	}
	return r.adopt(ctx, &next, pass, ring, true)
}

// reupload is for a page that may have been synced with another bucket, which is gone.
func (p *Page) reupload(ctx context.Context, out *PageSync) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	call := p.gate.context(ctx)
	defer call.release()
	link, err := p.ledger.repo.connect(call)
	if err != nil {
		return call.explain(err)
	}
	var synced *cloudsync.Page
	if synced, err = p.shared.attach(call, link, true); err == nil {
		out.Missing, err = synced.Reupload(call)
	}
	return call.explain(err)
}
