package cloudsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Reupload makes the bucket whole again from what this device has. It begins an epoch that keeps
// all that the device has (pagelog.Log.Renew), or enters the one that the bucket has where that is
// another than the device has seen; then it sends what that lacks. The bucket must have the
// Syncer's keyring: a device that meets ErrBucketWiped or another id connects anew first. missing
// is the number of pieces of values that are not here and that nobody has sent yet: other devices
// may have them, and send them when they sync. Reading one gives base.ErrGone until then. It may be
// called again after an error. Errors: as Sync.
func (p *Page) Reupload(ctx context.Context) (missing int, err error) {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	err = p.reupload(ctx, func(ctx context.Context) error { return nil })
	if err == nil {
		err = p.store.MissingPieces(ctx, func(object.Digest) error { missing++; return nil })
	}
	if err != nil {
		err = fmt.Errorf("upload anew: %w", err)
	}
	return missing, p.outward(err)
}

// reupload is Reupload. drop is called with the turn, before the renewal.
func (p *Page) reupload(ctx context.Context, drop func(ctx context.Context) error) error {
	held, err := p.lock(ctx)
	if err != nil {
		return err
	}
	if err := p.startOver(held, drop); err != nil {
		p.unlock()
		return err
	}
	return p.barrier(ctx, held)
}

// startOver renews the log. A page that was synced with another bucket, or that has nothing,
// forgets that first, but for the retention (see carry).
func (p *Page) startOver(ctx context.Context, drop func(ctx context.Context) error) error {
	if err := p.s.checkKeys(ctx, proofAnew, true); err != nil { // before anything is forgotten (I2)
		return err
	}
	st, err := replica.StandingOf(ctx, p.store)
	if err != nil {
		return err
	}
	if st.At.Joined() && (st.Bucket != p.s.o.Keyring.BucketID() || p.isBare()) {
		if err := forget(ctx, p.store); err != nil {
			return err
		}
		p.connect()
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	if err := drop(ctx); err != nil {
		return err
	}
	if _, err := p.catchUp(ctx); p.isBare() || err != nil && !mended(err) {
		return err // what it has not read it would not carry over
	}
	p.ses.announced = false // it may be gone
	return p.explain(ctx, p.renew(ctx, true))
}

// mended reports whether a renewal helps against an error, for a user who knows that the bucket is
// damaged: then also against what says that it is of a newer version.
func mended(err error) bool {
	var bad *pagelog.DamageError
	return errors.As(err, &bad) || errors.Is(err, base.ErrUnsupported) || errors.Is(err, pagelog.ErrWiped) || errors.Is(err, pagelog.ErrRolledBack)
}
