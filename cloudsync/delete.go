package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
)

// maxFloors bounds how often a floor is put anew because another device has put one at the same
// moment.
const maxFloors = 16

// DeleteEverywhere deletes the page for all devices: the newest floor says so from then on, and for
// ever, and the announcement of the page goes. What the bucket has of it is deleted by
// CollectGarbage after the grace. Every device, this one too, keeps what it has, and its calls that
// need the log end with ErrDeleted from its next look at the log on; should what closes that not
// have been put, at the latest when it sends or receives something a day after it looked for floors
// last. What it sends until then is lost to the others. A page that is deleted already is no error.
// Errors: those of the bucket and of ctx, base.ErrClosed; ErrBucketRolledBack and
// ErrBucketReplaced.
func (p *Page) DeleteEverywhere(ctx context.Context) error {
	return p.withTurn(ctx, "delete the page for all", func(ctx context.Context) error {
		for range maxFloors {
			floor, _, err := p.ses.log.LookFloor(ctx)
			if err != nil {
				return err
			}
			if floor.Deleted {
				p.s.closeLog(ctx, p.b, p.names, p.ses.log.Position().Number)
				return p.withdraw(ctx)
			}
			if err := p.putFloor(ctx, format.Floor{K: floor.K + 1, Deleted: true}); err != nil {
				return err
			}
		}
		return fmt.Errorf("put a floor: %w", bucket.ErrExists)
	})
}

// closeLog puts an object without content behind the last entry of a deleted page's log, so that
// who looks for that entry next, or wants to put one, looks for the floor that explains it. Entries
// up to known are known. That it does not work is no error: floors are looked for once a day.
func (s *Syncer) closeLog(ctx context.Context, b bucket.Bucket, names format.PageNames, known uint64) {
	err := bucket.ErrExists
	for n := 0; n < maxFloors && errors.Is(err, bucket.ErrExists); n++ {
		last, closed := known, false
		err = eachListed(ctx, b, names.LogPrefix(), names.Entry(known), func(info bucket.Info) {
			if _, _, to, _, ok := names.ParseName(info.Name); ok && to > last {
				last, closed = to, info.Size == 0
			}
		})
		if err != nil || closed {
			break
		}
		err = b.PutIfAbsent(ctx, names.Entry(last+1), 0, bytes.NewReader(nil))
		known = last
	}
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Warn("the log of a deleted page could not be closed", "error", err)
	}
}

func (p *Page) putFloor(ctx context.Context, f format.Floor) error {
	return p.s.putFloor(ctx, p.b, p.names, f)
}

// putFloor puts a floor, unless there is one of its number, or an answer was lost: who calls it
// looks then.
func (s *Syncer) putFloor(ctx context.Context, b bucket.Bucket, names format.PageNames, f format.Floor) error {
	sealed, err := format.SealFloor(s.sealer, names, f)
	if err != nil {
		return fmt.Errorf("seal floor %d: %w", f.K, err)
	}
	err = b.PutIfAbsent(ctx, names.Floor(f.K), int64(len(sealed)), bytes.NewReader(sealed))
	if err != nil && !errors.Is(err, bucket.ErrExists) && !bucket.Ambiguous(err) {
		return fmt.Errorf("put floor %d: %w", f.K, err)
	}
	return nil
}

func (p *Page) withdraw(ctx context.Context) error {
	return p.s.withdraw(ctx, p.b, p.o.Ledger, p.store.Page())
}

// withdraw deletes the announcement of a page.
func (s *Syncer) withdraw(ctx context.Context, b bucket.Bucket, ledger string, page [16]byte) error {
	if err := b.Delete(ctx, format.AnnouncementName(s.o.Keyring, ledger, page)); err != nil {
		return fmt.Errorf("delete the announcement: %w", err)
	}
	return nil
}

// sweepDeleted deletes what the bucket has of a page that is deleted, but for the floors, when the
// grace is over.
func (p *Page) sweepDeleted(ctx context.Context, o GCOptions) (*GCReport, error) {
	floor, _, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return nil, err
	}
	if !floor.Deleted {
		return nil, fmt.Errorf("look for the floor that deletes the page: %w", ErrBucketRolledBack)
	}
	return p.s.sweepDeleted(ctx, p.b, p.names, floor, o)
}

// DeleteEverywhere deletes a page for all devices as Page.DeleteEverywhere does, without that it is
// here. Errors: as there.
func (s *Syncer) DeleteEverywhere(ctx context.Context, ledger string, page [16]byte) error {
	b, names := scoped{s.b, s.ctx}, format.NamesOf(s.o.Keyring, ledger, page)
	err := s.checkKeys(ctx, b, proofAnew, true)
	for range maxFloors {
		if err != nil {
			break
		}
		var floor format.Floor
		if floor, _, err = s.lookFloor(ctx, b, names); err != nil {
			break
		}
		if floor.Deleted {
			s.closeLog(ctx, b, names, max(floor.Low, 1)-1)
			return s.outward(s.withdraw(ctx, b, ledger, page))
		}
		err = s.putFloor(ctx, b, names, format.Floor{K: floor.K + 1, Deleted: true})
	}
	if err == nil {
		err = fmt.Errorf("put a floor: %w", bucket.ErrExists)
	}
	return s.outward(fmt.Errorf("delete the page for all: %w", err))
}

// SweepDeleted does what CollectGarbage does for a page that is deleted for all devices, without
// that it is here; nil when it is not deleted. Errors: those of the bucket and of ctx,
// base.ErrClosed.
func (s *Syncer) SweepDeleted(ctx context.Context, ledger string, page [16]byte, o GCOptions) (*GCReport, error) {
	b, names := scoped{s.b, s.ctx}, format.NamesOf(s.o.Keyring, ledger, page)
	floor, _, err := s.lookFloor(ctx, b, names)
	var report *GCReport
	if err == nil && floor.Deleted {
		report, err = s.sweepDeleted(ctx, b, names, floor, o)
	}
	if err != nil {
		return nil, s.outward(fmt.Errorf("collect what a deleted page has left: %w", err))
	}
	return report, nil
}

// lookFloor looks for the newest floor of a page that need not be here.
func (s *Syncer) lookFloor(ctx context.Context, b bucket.Bucket, names format.PageNames) (format.Floor, time.Time, error) {
	at := format.Position{Bucket: format.ID(s.o.Keyring.BucketID())}
	return cloudlog.New(cloudlog.Options{Bucket: b, Sealer: s.sealer, Names: names, Clock: s.o.Clock, Jitter: s.random64, At: at}).LookFloor(ctx)
}

func (s *Syncer) sweepDeleted(ctx context.Context, b bucket.Bucket, names format.PageNames, floor format.Floor, o GCOptions) (*GCReport, error) {
	since, err := s.deletedSince(ctx, b, names.Floor(floor.K))
	if err != nil {
		return nil, err
	}
	report := &GCReport{}
	for _, prefix := range []string{names.LogPrefix(), names.PacksPrefix(), names.CheckpointsPrefix(), names.DevicesPrefix()} {
		for more := true; more; { // a page of names at a time, since there may be very many
			infos, err := b.List(ctx, "", prefix, bucket.MaxList)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", prefix, err)
			}
			if more = len(infos) == bucket.MaxList && since >= grace && !o.DryRun; since >= grace {
				if err := deleteDue(ctx, b, infos, o.DryRun, report); err != nil {
					return nil, err
				}
				continue
			}
			for _, info := range infos {
				report.WaitingBytes += info.Size
			}
		}
	}
	return report, nil
}

// deletedSince returns how long ago a page was deleted by the floor of a name, by the bucket's
// clock, 0 when that does not say.
func (s *Syncer) deletedSince(ctx context.Context, b bucket.Bucket, name string) (time.Duration, error) {
	o, err := b.Get(ctx, name, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("look when the page was deleted: %w", err)
	}
	if err := o.Body.Close(); err != nil {
		return 0, fmt.Errorf("look when the page was deleted: %w", err)
	}
	now := o.ServerTime
	if now.IsZero() {
		now = s.gate.now()
	}
	if o.Created.IsZero() {
		return 0, nil
	}
	return now.Sub(o.Created), nil
}
