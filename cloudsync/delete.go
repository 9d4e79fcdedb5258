package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
)

// maxFloors bounds how often a floor is put anew because another device has put one at the same moment.
const maxFloors = 16

// DeleteEverywhere deletes the page for all devices: the newest floor says so from then on, and for ever, and the announcement of the page goes. What the bucket has of it is deleted by CollectGarbage after the
// grace. Every device, this one too, keeps what it has, and its calls that need the log end with ErrDeleted once it has seen the floor: at the latest when it sends or receives something a day after it looked
// last. What it sends until then is lost to the others. A page that is deleted already is no error. Errors: those of the bucket and of ctx, base.ErrClosed; ErrBucketRolledBack
// and ErrBucketReplaced.
func (p *Page) DeleteEverywhere(ctx context.Context) error {
	return p.withTurn(ctx, "delete the page for all", func(ctx context.Context) error {
		for range maxFloors {
			floor, _, err := p.ses.log.LookFloor(ctx)
			if err != nil {
				return err
			}
			if floor.Deleted {
				return p.withdraw(ctx)
			}
			if err := p.putFloor(ctx, format.Floor{K: floor.K + 1, Deleted: true}); err != nil {
				return err
			}
		}
		return fmt.Errorf("put a floor: %w", bucket.ErrExists)
	})
}

// putFloor puts a floor, unless there is one of its number, or an answer was lost: who calls it looks then.
func (p *Page) putFloor(ctx context.Context, f format.Floor) error {
	sealed, err := format.SealFloor(p.s.sealer, p.names, f)
	if err != nil {
		return fmt.Errorf("seal floor %d: %w", f.K, err)
	}
	err = p.b.PutIfAbsent(ctx, p.names.Floor(f.K), int64(len(sealed)), bytes.NewReader(sealed))
	if err != nil && !errors.Is(err, bucket.ErrExists) && !bucket.Ambiguous(err) {
		return fmt.Errorf("put floor %d: %w", f.K, err)
	}
	return nil
}

// withdraw deletes the announcement of the page.
func (p *Page) withdraw(ctx context.Context) error {
	if err := p.b.Delete(ctx, format.AnnouncementName(p.s.o.Keyring, p.o.Ledger, p.store.Page())); err != nil {
		return fmt.Errorf("delete the announcement: %w", err)
	}
	return nil
}

// sweepDeleted deletes what the bucket has of a page that is deleted, but for the floors, when the grace is over.
func (p *Page) sweepDeleted(ctx context.Context, o GCOptions) (*GCReport, error) {
	floor, _, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return nil, err
	}
	if !floor.Deleted {
		return nil, fmt.Errorf("look for the floor that deletes the page: %w", ErrBucketRolledBack)
	}
	since, err := p.deletedSince(ctx, floor.K)
	if err != nil {
		return nil, err
	}
	report := &GCReport{}
	for _, prefix := range []string{p.names.LogPrefix(), p.names.PacksPrefix(), p.names.CheckpointsPrefix(), p.names.DevicesPrefix()} {
		infos, err := listAll(ctx, p.b, prefix, "")
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		if since >= o.Grace {
			if err := p.deleteDue(ctx, infos, o.DryRun, report); err != nil {
				return nil, err
			}
			continue
		}
		for _, info := range infos {
			report.WaitingBytes += info.Size
		}
	}
	return report, nil
}

// deletedSince returns how long ago a page was deleted, by the bucket's clock, 0 when that does not say.
func (p *Page) deletedSince(ctx context.Context, k uint64) (time.Duration, error) {
	o, err := p.b.Get(ctx, p.names.Floor(k), 0, 0)
	if err != nil {
		return 0, fmt.Errorf("look when the page was deleted: %w", err)
	}
	if err := o.Body.Close(); err != nil {
		return 0, fmt.Errorf("look when the page was deleted: %w", err)
	}
	now := o.ServerTime
	if now.IsZero() {
		now = p.s.gate.now()
	}
	if o.Created.IsZero() {
		return 0, nil
	}
	return now.Sub(o.Created), nil
}
