package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/bridge"
)

// CloudCheckOptions configure CheckCloud.
type CloudCheckOptions struct {
	// Pages are the pages; nil means all on this device, an empty list that is not nil none.
	Pages []ledger.PageRef
	// Repair uploads damaged and missing objects of the bucket again, if this device has the data,
	// and deletes damaged packs.
	Repair bool
	// Progress, if not nil, is called with the number of objects read for all pages, and their
	// bytes. It must not block.
	Progress func(ledger.Progress)
}

// CloudCheckReport describes the bucket's content for one page, and its damage.
type CloudCheckReport struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	cloudsync.CheckReport
	// Err says why the page could not be checked or repaired.
	Err error
}

// CheckCloud reads and verifies everything that the present epochs of the named pages, or of all
// pages on this device, have in the bucket: epochs, checkpoints with their runs, every entry, every
// piece of the packs, differences. It names damaged and missing objects. It reads the whole bucket,
// and holds a few objects of up to 64 MiB. Sync continues meanwhile.
//
// With Repair a damaged page then begins a new epoch with the data of this device. Other devices
// enter the epoch and upload their copies of damaged data. Without damage nothing is written.
//
// Damage is no error. A page that cannot be checked does not stop the others: its report has the
// error, which is also returned with the reports. Errors: those of Sync.
func CheckCloud(ctx context.Context, repo *ledger.Repository, o *CloudCheckOptions) (all []CloudCheckReport, err error) {
	how, r := given(o), of(repo)
	if _, err := r.chosen(how.Pages); err != nil {
		return nil, fmt.Errorf("check the bucket: %w", err)
	}
	var damage error
	err = r.CloudTurn(ctx, "check the bucket", func(ctx context.Context) error {
		err := r.Cloud.CheckKeyring(ctx, how.Repair)
		if !how.Repair && errors.Is(err, ledger.ErrCorrupt) {
			damage, err = base.WithClass(err, ledger.ErrCloudDamaged), nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var at ledger.Progress
	one := cloudsync.CheckOptions{Repair: how.Repair}
	if how.Progress != nil {
		one.Progress = func(n int, size int64) {
			how.Progress(ledger.Progress{Done: at.Done + int64(n), Bytes: at.Bytes + size})
		}
	}
	err = r.visitAll(ctx, how.Pages, func(ctx context.Context, p *bridge.Page) error {
		report := CloudCheckReport{PageRef: refOf(p.Key), Name: p.Name}
		report.Err = p.WithSync(ctx, "", func(ctx context.Context, s *cloudsync.Page) error {
			got, err := s.Check(ctx, one)
			if got != nil {
				report.CheckReport = *got
			}
			return err
		})
		at.Done, at.Bytes = at.Done+int64(report.Objects), at.Bytes+report.Bytes
		all = append(all, report)
		return report.Err
	})
	r.Cloud.Remember()
	if err = errors.Join(damage, err); err != nil {
		err = fmt.Errorf("check the bucket: %w", err)
	}
	return all, err
}
