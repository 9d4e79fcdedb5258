package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/layout"
)

// CloudGCOptions say how CollectCloud works.
type CloudGCOptions struct {
	// DryRun changes nothing: the report says what would be given up and deleted.
	DryRun bool
}

// CloudGCReport says what was given up and deleted in the bucket for one page.
type CloudGCReport struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	cloudsync.GCReport
}

// CollectCloud gives up in the bucket what its retention does not keep, for all devices, and
// deletes what the pages have not needed for 30 days by the bucket's own clock, for the pages that
// are here. Other devices may write meanwhile. Errors: those of Sync.
func (r *Repository) CollectCloud(ctx context.Context, o CloudGCOptions) ([]CloudGCReport, error) {
	keys, err := r.disk.Pages()
	if err != nil {
		return nil, fmt.Errorf("collect the garbage of the bucket: %w", err)
	}
	var all []CloudGCReport
	for _, k := range keys {
		report := CloudGCReport{PageRef: PageRef{k.Ledger, k.ID}}
		err := r.withPage(ctx, k, func(p *Page) error {
			report.Name = p.Name()
			return p.withSync(ctx, "collect the garbage of the bucket", func(ctx context.Context, s *cloudsync.Page) error {
				got, err := s.CollectGarbage(ctx, cloudsync.GCOptions{DryRun: o.DryRun})
				if got != nil {
					report.GCReport = *got
				}
				return err
			})
		})
		if err != nil {
			return all, &PageError{report.PageRef, report.Name, err}
		}
		all = append(all, report)
	}
	gone, err := r.collectDeleted(ctx, o)
	if all = append(all, gone...); err != nil {
		return all, err
	}
	if _, link := r.cloud.get(); link != nil {
		r.remember(link)
	}
	return all, nil
}

// collectDeleted collects what pages have left in the bucket that are deleted for all devices and
// not here any more.
func (r *Repository) collectDeleted(ctx context.Context, o CloudGCOptions) (all []CloudGCReport, err error) {
	away, err := r.pages.Gone(ctx)
	if err != nil {
		return nil, fmt.Errorf("collect the garbage of the bucket: %w", err)
	}
	for _, p := range away {
		if p.Kind != layout.Deleted {
			continue
		}
		link, err := r.connect(ctx)
		if err != nil {
			return all, fmt.Errorf("collect the garbage of the bucket: %w", err)
		}
		got, err := link.syncer.SweepDeleted(ctx, p.Page.Ledger, p.Page.ID, cloudsync.GCOptions{DryRun: o.DryRun})
		if err != nil {
			return all, &PageError{PageRef{p.Page.Ledger, p.Page.ID}, p.Name, err}
		}
		if got != nil {
			all = append(all, CloudGCReport{PageRef: PageRef{p.Page.Ledger, p.Page.ID}, Name: p.Name, GCReport: *got})
		}
	}
	return all, nil
}
