package cli

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type deleteFlags struct {
	consent
	Pages      pageSet `arg:""`
	History    prefix  `flag:"from-history" usage:"erase the past values of this key"`
	Everywhere bool    `flag:"everywhere" usage:"delete for all devices that share the bucket"`
	Discard    bool    `flag:"discard-unsynced" usage:"delete even data that only this device has"`
}

func (a *app) delete(ctx context.Context, f deleteFlags) error {
	ref, whole := f.Pages.name.ref(), f.Pages.ledger
	if f.History.text != "" {
		if whole || f.Everywhere || f.Discard {
			return usagef("--from-history takes one page, and no other flags than --yes and --dry-run")
		}
		return a.erase(ctx, ref, f)
	}
	return a.destroy(ctx, f.consent, "a deletion cannot be undone", func(dry bool) error {
		o := ledger.DeleteOptions{DiscardUnsynced: f.Discard, Everywhere: f.Everywhere, DryRun: dry}
		return a.change(ctx, func(repo *ledger.Repository) error { return a.deletePages(ctx, repo, &f.Pages, o) })
	})
}

func (a *app) deletePages(ctx context.Context, repo *ledger.Repository, set *pageSet, o ledger.DeleteOptions) error {
	var pages []ledger.DeletedPage
	var err error
	if ref := set.name.ref(); set.ledger {
		pages, err = admin.DeleteLedger(ctx, repo, ref.Ledger, &o)
		if len(pages) == 0 && errors.Is(err, ledger.ErrNotFound) {
			err = a.none(set)
		}
	} else {
		var p ledger.DeletedPage
		if p, err = repo.DeletePage(ctx, ref, &o); err == nil {
			pages = append(pages, p)
		}
	}
	for i := range pages {
		a.deleted(&pages[i], o.DryRun)
	}
	if e, ok := errors.AsType[*ledger.EvictError](err); ok {
		err = a.stays(e.Page, e.Name, e.Bar, e.Reason)
	}
	return partly(err, len(pages) > 0 && !o.DryRun)
}

func (a *app) erase(ctx context.Context, page ledger.PageRef, f deleteFlags) error {
	return a.destroy(ctx, f.consent, "erased values cannot be restored", func(dry bool) error {
		return a.change(ctx, func(repo *ledger.Repository) error {
			e, err := admin.Erase(ctx, repo, page, f.History.bytes, &admin.EraseOptions{DryRun: dry})
			if err != nil {
				return err
			}
			a.erased(&e, dry)
			return nil
		})
	})
}

func (a *app) erased(e *admin.Erasure, dry bool) {
	a.outcome(dry, "erased", object{
		"page", nameOf(e.Ledger, e.Name, e.ID), "givenUpCommits", e.Commits, "freedBytes", size(max(e.Bytes, 0)), "inBucket", e.InBucket,
	})
	a.leaves(e.InBucket)
}

func (a *app) deleted(p *ledger.DeletedPage, dry bool) {
	a.outcome(dry, "deleted", object{
		"page", nameOf(p.Ledger, p.Name, p.ID), "bytes", size(p.Bytes), "inCloud", p.InCloud, "everywhere", p.Everywhere,
		"discardsUnsyncedData", p.Discarded,
	})
	a.leaves(p.Everywhere)
	if p.Everywhere {
		a.tell("a new page %s would not be synced through this bucket: take another name", nameOf(p.Ledger, p.Name, p.ID))
	}
}

// leaves says when data leaves the bucket that is deleted for all devices.
func (a *app) leaves(bucket bool) {
	if bucket {
		a.tell("the data leaves the bucket with cloud gc in 30 days")
	}
}
