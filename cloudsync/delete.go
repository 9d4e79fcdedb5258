package cloudsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// logOf returns the log of a page that need not be here.
func (s *Syncer) logOf(names wire.Names) *pagelog.Log {
	o := pagelog.Options{Bucket: s.b, Sealer: s.sealer, Names: names, Page: nobody{}, NewID: s.newID}
	return pagelog.New(o, epoch.Position{})
}

// DeleteEverywhere deletes a page for all devices, whether it is here or not: the newest epoch says
// so from then on, and for ever, and the announcement of the page goes. What the bucket has of it
// is deleted by CollectGarbage and SweepDeleted after the grace. Every device, this one too, keeps
// what it has; its calls that need the log end with ErrDeleted once it has read so far. A page that
// is deleted already is no error. Errors: those of the bucket and of ctx, base.ErrClosed;
// ErrBucketRolledBack and ErrBucketReplaced.
func (s *Syncer) DeleteEverywhere(ctx context.Context, ledger string, page [16]byte) error {
	log := s.logOf(wire.NamesOf(s.o.Keyring, ledger, page))
	err := s.checkKeys(ctx, proofAnew, true)
	if err == nil {
		err = s.withNewerKeys(ctx, func() error { return log.Delete(ctx) })
	}
	if err == nil {
		if err = s.b.Delete(ctx, wire.AnnouncementName(s.o.Keyring, ledger, page)); err != nil {
			err = fmt.Errorf("delete the announcement: %w", err)
		}
	}
	if err != nil {
		err = fmt.Errorf("delete the page for all: %w", err)
	}
	return s.outward(err)
}

// SweepDeleted does what CollectGarbage does for a page that is deleted for all devices, without
// that it is here; nil when it is not deleted. Errors: those of the bucket and of ctx,
// base.ErrClosed.
func (s *Syncer) SweepDeleted(ctx context.Context, ledger string, page [16]byte, o GCOptions) (*GCReport, error) {
	report, err := s.sweepDeleted(ctx, wire.NamesOf(s.o.Keyring, ledger, page), o)
	if err != nil {
		return nil, s.outward(fmt.Errorf("collect what a deleted page has left: %w", err))
	}
	return report, nil
}

func (s *Syncer) sweepDeleted(ctx context.Context, names wire.Names, o GCOptions) (*GCReport, error) {
	infos, err := s.b.List(ctx, "", names.Epochs(), 1) // Look would create a log where there is none
	if err != nil || len(infos) == 0 {
		return nil, err
	}
	log := s.logOf(names)
	err = s.withNewerKeys(ctx, func() error { return log.Look(ctx) })
	if !errors.Is(err, ErrDeleted) {
		return nil, err
	}
	swept, err := log.Sweep(ctx, nil, nil, o.DryRun)
	report := &GCReport{}
	report.add(swept)
	return report, err
}
