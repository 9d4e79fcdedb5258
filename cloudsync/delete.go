package cloudsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// logOf returns the log of a page, which this device need not have.
func (s *Syncer) logOf(names wire.Names) *pagelog.Log {
	o := pagelog.Options{Bucket: s.b, Sealer: s.sealer, Names: names, Page: nobody{}, NewID: s.newID}
	return pagelog.New(o, epoch.Position{})
}

// DeleteEverywhere deletes a page for all devices, whether it is here or not. From then on the
// newest epoch says so, for ever, and the announcement of the page is deleted. CollectGarbage and
// SweepDeleted delete the page's objects after the grace. Every device, this one too, keeps its
// copy; its calls that need the log end with ErrDeleted once it has read the epoch. Deleting a
// deleted page is no error. Errors: those of the bucket and of ctx, base.ErrClosed;
// ErrBucketRolledBack and ErrBucketReplaced.
func (s *Syncer) DeleteEverywhere(ctx context.Context, ledger string, page [16]byte) error {
	log := s.logOf(wire.NamesOf(s.o.Keyring, ledger, page))
	err := s.checkKeys(ctx, proofAnew)
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

// SweepDeleted does what CollectGarbage does, for a page that is deleted for all devices and need
// not be here. It returns nil if the page is not deleted. Errors: those of the bucket and of ctx,
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
	return &GCReport{Swept: swept}, err
}
