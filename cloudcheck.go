package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
)

// CloudCheckOptions say how CheckCloud goes about it.
type CloudCheckOptions struct {
	// Repair uploads anew what is damaged or missing in the bucket, as far as this device has it,
	// and deletes damaged packs.
	Repair bool
	// Progress, if not nil, is told how many objects, and how many bytes of them, were read of all
	// pages. It must not block.
	Progress func(objects int, bytes int64)
}

// CloudCheckReport says what the bucket has of one page, and what is wrong with it.
type CloudCheckReport struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	cloudsync.CheckReport
	// Err says why the page could not be checked, or not be repaired.
	Err error
}

// CheckCloud reads everything that the present epochs of the pages that are here, or of those that
// are named, have in the bucket, and verifies it: epochs, checkpoints with their runs, every entry,
// every piece of the packs, differences. It names what is damaged or missing. It costs a read of
// the bucket, and holds a few objects of up to 64 MiB. Sync goes on meanwhile.
//
// With Repair a page with damage then begins a new epoch with what this device has: other devices
// enter it by themselves, and send what they have of what was damaged. Without damage nothing is
// written.
//
// Damage is no error. A page that cannot be checked keeps no other from it: its report has the
// error, which comes with the reports too. Errors: those of Sync.
func (r *Repository) CheckCloud(ctx context.Context, o CloudCheckOptions, only ...PageRef) (all []CloudCheckReport, err error) {
	if len(only) == 0 {
		only = nil
	}
	if _, err := r.chosen(only); err != nil {
		return nil, fmt.Errorf("check the bucket: %w", err)
	}
	var damage error
	err = r.inCloudTurn(ctx, "check the bucket", func(ctx context.Context) error {
		err := r.cloud.CheckKeyring(ctx, o.Repair)
		if !o.Repair && errors.Is(err, ErrCorrupt) {
			damage, err = err, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var objects int
	var bytes int64
	page := cloudsync.CheckOptions{Repair: o.Repair}
	if o.Progress != nil {
		page.Progress = func(n int, size int64) { o.Progress(objects+n, bytes+size) }
	}
	err = r.visitAll(ctx, only, func(ctx context.Context, p *Page) error {
		report := CloudCheckReport{PageRef: p.ref(), Name: p.Name()}
		report.Err = p.withSync(ctx, "", func(ctx context.Context, s *cloudsync.Page) error {
			got, err := s.Check(ctx, page)
			if got != nil {
				report.CheckReport = *got
			}
			return err
		})
		objects, bytes = objects+report.Objects, bytes+report.Bytes
		all = append(all, report)
		return report.Err
	})
	r.cloud.Remember()
	if err = errors.Join(damage, err); err != nil {
		err = fmt.Errorf("check the bucket: %w", err)
	}
	return all, err
}
