package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/layout"
)

// CloudCollectOptions say how CollectCloud works.
type CloudCollectOptions struct {
	// DryRun changes nothing: the report says what would be given up and deleted.
	DryRun bool
}

// CloudCollectReport counts the commits given up and the objects deleted in the bucket for a page.
type CloudCollectReport struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	cloudsync.GCReport
}

// CollectCloud gives history up in the bucket, for all devices, by the bucket's retention. It
// deletes objects that the pages have not needed for 30 days by the bucket's own clock. It handles
// the pages on this device; other devices may write meanwhile. Errors: those of Sync.
func CollectCloud(ctx context.Context, repo *ledger.Repository, o *CloudCollectOptions) (all []CloudCollectReport, err error) {
	r, how := of(repo), cloudsync.GCOptions{DryRun: given(o).DryRun}
	err = r.Call(ctx, "collect the garbage of the bucket", func(ctx context.Context) error {
		if err := r.Cloud.Prove(ctx); err != nil {
			return err
		}
		err := r.visitAll(ctx, nil, func(ctx context.Context, p *bridge.Page) error {
			report := CloudCollectReport{PageRef: refOf(p.Key), Name: p.Name}
			err := p.WithSync(ctx, "", func(ctx context.Context, s *cloudsync.Page) error {
				got, err := s.CollectGarbage(ctx, how)
				if got != nil {
					report.GCReport = *got
				}
				return err
			})
			if err == nil {
				all = append(all, report)
			}
			return err
		})
		if err != nil {
			return err
		}
		gone, err := r.collectDeleted(ctx, how)
		all = append(all, gone...)
		return err
	})
	if err == nil {
		r.Cloud.Remember()
	}
	return all, err
}

// collectDeleted collects the remaining objects of pages that are deleted for all devices and no
// longer on this one.
func (r engines) collectDeleted(ctx context.Context, how cloudsync.GCOptions) (all []CloudCollectReport, err error) {
	away, err := r.Gone(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range away {
		if p.Kind != layout.Deleted {
			continue
		}
		conn, err := r.Cloud.Connect(ctx)
		if err != nil {
			return all, err
		}
		got, err := conn.Syncer.SweepDeleted(ctx, p.Page.Ledger, p.Page.ID, how)
		if err != nil {
			return all, &ledger.PageError{Page: refOf(p.Page), Name: p.Name, Err: err}
		}
		if got != nil {
			all = append(all, CloudCollectReport{PageRef: refOf(p.Page), Name: p.Name, GCReport: *got})
		}
	}
	return all, nil
}
