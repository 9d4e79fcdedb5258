package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Retention says which history of a page the bucket keeps. The zero value keeps all.
type Retention = wire.Retention

// GCOptions configure CollectGarbage.
type GCOptions struct {
	// DryRun changes nothing: the report says what would happen.
	DryRun bool
	// Retention, if not nil, first becomes the bucket's. A dry run counts by it and does not set
	// it.
	Retention *Retention
}

// GCReport says what was given up and deleted.
type GCReport struct {
	// Heads is how many heads the log has. With several it is not cut, and gives nothing up.
	Heads int
	// Commits is how many commits the bucket's retention gives up, for all devices.
	Commits int
	// Cut reports that the log was cut, so that its earlier objects are deleted after the grace.
	Cut bool
	// Swept are the objects of past epochs.
	pagelog.Swept
}

// Standing is what a store records of its bucket, for readers without a Page.
type Standing = replica.Standing

// MetadataPosition is the type of the row of sync_metadata with the position.
const MetadataPosition = replica.MetadataPosition

// StandingOf reads the Standing of a store. Errors: *base.CorruptError; those of the store and of
// ctx.
func StandingOf(ctx context.Context, store *storage.Store) (*Standing, error) {
	return replica.StandingOf(ctx, store)
}

// Sent returns a function that reports whether a place lies in a pack whose commits are in no entry
// yet. A piece at such a place must not be dropped. The function is right about all places that the
// caller read before the call. Errors: *base.CorruptError; those of the store and of ctx.
func Sent(ctx context.Context, store *storage.Store) (func(*storage.CloudPlace) bool, error) {
	return replica.Sent(ctx, store)
}

// Sender is the device that put a commit into the log.
type Sender = replica.Sender

// SenderOf returns the device that put a commit of a store into the log, zero if unknown. Errors:
// *base.CorruptError; those of the store and of ctx.
func SenderOf(ctx context.Context, store *storage.Store, id commit.ID) (Sender, error) {
	return replica.SenderOf(ctx, store, id)
}

// KnownDevice is what a page records of a device that has put commits into the log.
type KnownDevice = replica.Known

// DevicesOf returns the devices that have put commits into the log of the bucket, as far as the
// store has recorded them. Errors: *base.CorruptError; those of the store and of ctx.
func DevicesOf(ctx context.Context, store *storage.Store) (map[seal.ID]KnownDevice, error) {
	return replica.DevicesOf(ctx, store)
}

// carry puts the retention of the page's former bucket into a log that is still empty.
func (p *Page) carry(ctx context.Context) error {
	rep := p.rep.Load()
	if !rep.State().Carried() || p.isBare() {
		return nil
	}
	body, err := rep.Retain(ctx, rep.State().Retention)
	if err == nil {
		_, err = p.append(ctx, body)
	}
	return err
}

// SetRetention writes the bucket's retention into the page's log, for all devices. It takes effect
// with the next cut. Errors: as Sync; base.ErrInvalid.
func (p *Page) SetRetention(ctx context.Context, r Retention) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, 0, "set retention", func(ctx context.Context) error { return p.retain(ctx, r) })
}

// retain appends the retention to the log.
func (p *Page) retain(ctx context.Context, r Retention) error {
	if err := p.join(ctx); err != nil {
		return err
	}
	for range maxOvertaken {
		if st := p.rep.Load().State(); st.Retention == r && !st.Carried() {
			return nil
		}
		body, err := p.rep.Load().Retain(ctx, r)
		if err != nil {
			return err
		}
		if _, err := p.append(ctx, body); err != nil {
			return err
		}
	}
	return pagelog.ErrContended
}

// CollectGarbage gives up the commits that the bucket's retention does not keep. It deletes objects
// of past epochs that the present epoch has not named for 30 days. It cuts the log if there is
// history to give up, or a pack that nothing needs, or if a cut is due. It does not cut while the
// log has several heads. For a page that is deleted for all devices, it deletes everything but the
// epochs, and refuses a retention with ErrDeleted. It syncs the page first. Ages are by the
// bucket's clock. Errors: as Sync.
func (p *Page) CollectGarbage(ctx context.Context, o GCOptions) (*GCReport, error) {
	err := p.withTurn(ctx, 0, "read the log", func(ctx context.Context) (err error) {
		p.ses.lookAt = time.Time{} // the sweep uses the epochs that exist now
		if o.DryRun {
			_, err = p.download(ctx)
		}
		return err
	})
	switch {
	case err != nil, o.DryRun:
	case o.Retention != nil:
		err = p.SetRetention(ctx, *o.Retention)
	default:
		err = p.Sync(ctx)
	}
	if errors.Is(err, ErrDeleted) && o.Retention == nil {
		return p.s.SweepDeleted(ctx, p.o.Ledger, p.store.Page(), o)
	}
	if err != nil {
		return nil, err
	}
	report := &GCReport{}
	err = p.withTurn(ctx, 0, "collect garbage", func(ctx context.Context) error {
		if err := p.giveUp(ctx, o, report); err != nil {
			return err
		}
		return p.sweep(ctx, o.DryRun, report)
	})
	if err == nil && report.Cut {
		err = p.Sync(ctx) // needed pieces that have lost their place are sent again
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}

// giveUp cuts the log if the cut gives something up or is due.
func (p *Page) giveUp(ctx context.Context, o GCOptions, report *GCReport) (err error) {
	rep := p.rep.Load()
	heads, err := rep.HeadsOfLog(ctx)
	if report.Heads = len(heads); err != nil || report.Heads > 1 {
		return err
	}
	r := rep.State().Retention
	if o.Retention != nil {
		r = *o.Retention
	}
	if report.Commits, err = rep.Surplus(ctx, r); err != nil {
		return err
	}
	due, err := p.cutDue(ctx)
	if report.Cut = due || report.Commits > 0 || p.spare(); err != nil || !report.Cut || o.DryRun {
		return err
	}
	if report.Cut, err = p.cut(ctx); !report.Cut {
		report.Commits = 0
	}
	return err
}

// spare reports whether the manifest has a pack that nothing needs, announced so long ago that no
// commit will need it.
func (p *Page) spare() bool {
	st := p.rep.Load().State()
	old := st.EntryTime.Add(-epoch.Grace) // the time by which a cut decides
	for _, k := range st.Manifest {
		if k.Since != 0 && k.Since <= old {
			return true
		}
	}
	return false
}

// sweep deletes objects of past epochs.
func (p *Page) sweep(ctx context.Context, dry bool, report *GCReport) error {
	if !p.ses.log.Position().Joined() {
		return nil
	}
	rep := p.rep.Load()
	swept, err := p.ses.log.Sweep(ctx, rep.Named(), rep.NamedBy, dry)
	report.Swept = swept
	return p.explain(ctx, err)
}

// nobody is a page whose log alone is read: it stores nothing.
type nobody struct{}

// Apply implements pagelog.Page.
func (nobody) Apply(context.Context, *pagelog.Entry, epoch.Position) error { return nil }

// Adopt implements pagelog.Page.
func (nobody) Adopt(context.Context, *pagelog.Entry) error { return nil }

// Enter implements pagelog.Page.
func (nobody) Enter(context.Context, *pagelog.Epoch, epoch.Position) error { return nil }

// Keep implements pagelog.Page.
func (nobody) Keep(context.Context, epoch.Position) error { return nil }

// Propose implements pagelog.Page.
func (nobody) Propose(context.Context, *epoch.Proposal, epoch.Looked) error {
	return fmt.Errorf("write a checkpoint of a page that is not here: %w", base.ErrNotFound)
}
