package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// DeleteOptions say how pages are deleted.
type DeleteOptions struct {
	// DiscardUnsynced deletes also data that only this device has.
	DiscardUnsynced bool
	// Everywhere deletes the page for all devices, which needs the network. The bucket records the
	// deletion, admin.CollectCloud removes the page's objects after 30 days, and other devices keep
	// their copies but stop syncing the page. A page with the same name can never again be synced
	// through this bucket.
	Everywhere bool
	// DryRun changes nothing: the result says what would be deleted, and the error why a deletion
	// would fail.
	DryRun bool
}

// DeletedPage is the result of deleting a page.
type DeletedPage struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Bytes is the disk space that was freed.
	Bytes int64
	// InCloud reports that the bucket still has the page: opening the page by its name or id, or a
	// Sync that names it, fetches it again. It is false for a page that was never synced.
	InCloud bool
	// Everywhere reports that the page is deleted for all devices.
	Everywhere bool
	// Discarded reports that data was deleted that only this device had.
	Discarded bool
}

// DeletePage deletes a page on this device for good: it is no longer listed, and a Sync that does
// not name it does not bring it back, whether this device has synced it or not. The bucket keeps
// its copy. A page that is open, or that has data only on this device, is refused with an
// *EvictError; without a cloud that is every page that was ever written. A crash leaves the page
// whole or deleted. With DeleteOptions.Everywhere the page need not be on this device. Errors:
// ErrNotFound, ErrConflict (*EvictError), ErrReadOnly, ErrClosed, those of the file system and of
// ctx.
func (r *Repository) DeletePage(ctx context.Context, page PageRef, o *DeleteOptions) (DeletedPage, error) {
	d, how := DeletedPage{PageRef: page}, given(o)
	err := r.change(ctx, "delete", how.DryRun, func(ctx context.Context) error { return r.deletePage(ctx, &d, how) })
	return d, err
}

// deletePage deletes a page on this device and, on request, for all devices. The local deletion
// runs first, since it may be refused; after an interruption the caller calls again.
func (r *Repository) deletePage(ctx context.Context, d *DeletedPage, o DeleteOptions) error {
	if !o.Everywhere {
		return r.deleteHere(ctx, d, o)
	}
	conn, err := r.cloud.Connect(ctx)
	if err == nil {
		err = r.cloud.Check(ctx, conn)
	}
	if err != nil {
		return err
	}
	err = r.deleteHere(ctx, d, o)
	if errors.Is(err, ErrNotFound) { // the page may be only in the bucket
		announced, listErr := conn.Syncer.Announced(ctx)
		for _, a := range announced {
			if a.Ledger == d.Ledger && a.Page == d.ID {
				d.Name, err = a.Name, nil
			}
		}
		_, a, absenceErr := r.pages.Where(d.key())
		if absenceErr == nil && a != nil && a.Number > 0 { // already deleted on this device
			d.Name, err = a.Name, nil
		}
		if err != nil {
			return errors.Join(err, listErr)
		}
	}
	if err != nil {
		return err
	}
	if !o.DryRun {
		err = conn.Syncer.DeleteEverywhere(ctx, d.Ledger, d.ID)
	}
	if err != nil {
		return fmt.Errorf("page %s is deleted here, and not yet for all: %w", r.usage.Text(d.PageRef.key()), err)
	}
	d.InCloud, d.Everywhere = false, true
	return nil
}

func (r *Repository) deleteHere(ctx context.Context, d *DeletedPage, o DeleteOptions) error {
	k := d.key()
	where, absence, err := r.pages.Where(k)
	if err != nil {
		return err
	}
	if where == presence.Away || where == presence.Coming {
		return r.deleteAway(ctx, d, absence, o)
	}
	report, err := r.space.Evict(ctx, reclaim.EvictOptions{
		Pages: []pageKey{k}, Delete: true, DryRun: o.DryRun, DiscardUnsynced: o.DiscardUnsynced,
	})
	for _, e := range slices.Concat(report.Evicted, report.Kept) {
		d.Name, d.Bytes, d.Discarded, d.InCloud = e.Name, e.Bytes, e.Discarded, e.InCloud
		if e.Bar != reclaim.Free {
			err = &EvictError{d.PageRef, e.Name, e.Bar, e.Reason}
		}
	}
	return err
}

// deleteAway removes an evicted page from the list of pages.
func (r *Repository) deleteAway(ctx context.Context, d *DeletedPage, a *layout.Absence, o DeleteOptions) error {
	info, err := r.pageInfo(d.key(), a)
	if d.Name, d.InCloud = info.Name, true; err != nil || o.DryRun {
		return err
	}
	return r.pages.Forget(ctx, d.key())
}
