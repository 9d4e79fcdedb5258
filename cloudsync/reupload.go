package cloudsync

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Reupload repairs the bucket from what this device has. It begins an epoch that keeps everything
// the device has (pagelog.Log.Renew). If the bucket has another epoch than the device has seen, it
// enters that one. Then it sends what the epoch lacks. The bucket must have the Syncer's keyring:
// after ErrBucketWiped or with another bucket id, the device must connect again first. missing is
// the number of pieces of values that are not here and that no device has sent yet. Other devices
// may have them and send them at their next sync; until then, reading such a piece gives
// base.ErrGone. A device without data of the page renews only a log that cannot be read: the page
// then begins again, and other devices send what they have. After an error, Reupload may be called
// again. Errors: as Sync.
func (p *Page) Reupload(ctx context.Context) (missing int, err error) {
	err = p.call(ctx, "upload anew", func(ctx context.Context) error {
		if err := p.reupload(ctx, nil); err != nil {
			return err
		}
		return p.store.MissingPieces(ctx, func(object.Digest) error { missing++; return nil })
	})
	return missing, err
}

// reupload is Reupload. It calls drop, which may be nil, with the turn, before the renewal.
func (p *Page) reupload(ctx context.Context, drop func(ctx context.Context) error) error {
	held, err := p.lock(ctx, 0)
	if err != nil {
		return err
	}
	if err := p.startOver(held, drop); err != nil {
		p.turn.Give()
		return err
	}
	return p.barrier(ctx, held)
}

// startOver renews the log. A page that was synced with another bucket, or that is bare, first
// forgets its bucket, except for the retention (see State.Carried).
func (p *Page) startOver(ctx context.Context, drop func(ctx context.Context) error) error {
	if err := p.s.checkKeys(ctx, proofAnew); err != nil { // before the page forgets anything (I2)
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
	if drop != nil {
		if err := drop(ctx); err != nil {
			return err
		}
	}
	if _, err = p.catchUp(ctx); err == nil && p.isBare() {
		err = p.audit(ctx) // the end of the log may be a hole
	}
	if p.isBare() && (err == nil || drop != nil) || err != nil && !mended(err) {
		return err // a renewal would add nothing, or lose what was not read
	}
	return p.explain(ctx, p.renew(ctx, true))
}

// mended reports whether a renewal helps against err when the user has confirmed that the bucket is
// damaged. It then also helps against an object that claims a newer version.
func mended(err error) bool {
	var bad *pagelog.DamageError
	return errors.As(err, &bad) || errors.Is(err, base.ErrUnsupported) || errors.Is(err, pagelog.ErrWiped) || errors.Is(err, pagelog.ErrRolledBack)
}
