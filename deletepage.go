package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// DeleteOptions say how pages are deleted.
type DeleteOptions struct {
	// DiscardUnsynced deletes also what only this device has.
	DiscardUnsynced bool
	// Everywhere deletes the page for all devices: the bucket says so from now on,
	// admin.CollectCloud empties it after 30 days, and other devices keep what they have but sync
	// the page no more. A page with the same name can never again be synced through this bucket. It
	// needs the network.
	Everywhere bool
	// DryRun changes nothing: the result says what would be deleted, and the error why it would
	// not.
	DryRun bool
}

// DeletedPage is what became of a page.
type DeletedPage struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Bytes is what came back.
	Bytes int64
	// InCloud reports that the bucket has what was deleted: opening the page by its name or id, or
	// a Sync that names it, fetches it again. It is false for a page that was never synced.
	InCloud bool
	// Everywhere reports that the page is deleted for all devices.
	Everywhere bool
	// Discarded reports that something went with it that only this device had.
	Discarded bool
}

// DeletePage deletes a page on this device, for good: it is no longer listed, and Sync does not
// bring it back unless it is named, whether this device has synced it or not. What the bucket has
// of it stays there. A page that is open, or has what only this device has, is refused with an
// *EvictError; without a cloud that is every page into which something was ever put. A crash leaves
// the page whole or gone. With DeleteOptions.Everywhere the page need not be here. Errors:
// ErrNotFound, ErrConflict (*EvictError), ErrReadOnly, ErrClosed, those of the file system and of
// ctx.
func (r *Repository) DeletePage(ctx context.Context, page PageRef, o *DeleteOptions) (DeletedPage, error) {
	d, how := DeletedPage{PageRef: page}, given(o)
	err := r.change(ctx, "delete", how.DryRun, func(ctx context.Context) error { return r.deletePage(ctx, &d, how) })
	return d, err
}

// deletePage deletes a page here and, when that is asked for, for all. Here comes first, as that
// may be refused; who is interrupted between calls again.
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
	if errors.Is(err, ErrNotFound) { // it may be in the bucket alone
		announced, listErr := conn.Syncer.Announced(ctx)
		for _, a := range announced {
			if a.Ledger == d.Ledger && a.Page == d.ID {
				d.Name, err = a.Name, nil
			}
		}
		_, a, absenceErr := r.pages.Where(d.key())
		if absenceErr == nil && a != nil && a.Number > 0 { // deleted here before
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
	if d.Name, _, err = r.usage.Page(k); err != nil {
		return err
	}
	switch {
	case where == presence.Away || where == presence.Coming:
		return r.deleteAway(ctx, k, absence, d, o)
	case where == presence.Absent:
		return fmt.Errorf("page %s: %w", r.usage.Text(d.PageRef.key()), ErrNotFound)
	}
	if d.Bytes, err = r.disk.PageSize(k); err != nil {
		return fmt.Errorf("measure page %s: %w", r.usage.Text(d.PageRef.key()), err)
	}
	dep := reclaim.Departure{Kind: layout.Deleted, SizeBytes: d.Bytes, Name: d.Name, Discard: o.DiscardUnsynced, Dry: o.DryRun}
	if r.cloud.Has() && !o.DiscardUnsynced && !o.DryRun {
		dep.Unproved = r.cloud.Prove(ctx)
	}
	res, err := r.reclaimer().Depart(ctx, k, dep)
	if err != nil {
		return fmt.Errorf("page %s: %w", r.usage.Text(d.PageRef.key()), err)
	}
	if res.Bar != reclaim.Free {
		return &EvictError{d.PageRef, d.Name, res.Bar, res.Reason}
	}
	d.Discarded, d.InCloud = res.Discarded, res.InCloud
	return nil
}

// deleteAway deletes a page that was evicted: it is not listed any more.
func (r *Repository) deleteAway(ctx context.Context, k pageKey, a *layout.Absence, d *DeletedPage, o DeleteOptions) error {
	d.InCloud = true
	if d.Name == "" {
		d.Name = a.Name
	}
	if o.DryRun {
		return nil
	}
	return r.pages.Forget(ctx, k)
}
