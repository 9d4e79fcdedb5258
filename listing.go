package ledger

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
)

// PageState says where a page is. New versions may add values.
type PageState string

// The states of a page.
const (
	// PageClosed: the page is on this device, and no app has it open.
	PageClosed PageState = "closed"
	// PageOpen: the page is on this device, and open in this process.
	PageOpen PageState = "open"
	// PageEvicted: the page is in the cloud only. Opening it downloads it again.
	PageEvicted PageState = "evicted"
	// PageDeleted: the page was deleted on this device. Only WatchPages has this state.
	PageDeleted PageState = "deleted"
)

// PageInfo describes a page in this repository. It is read without opening the page.
type PageInfo struct {
	PageRef
	// Name is the human name from which the id was derived; "" for a page that was never opened by
	// name.
	Name string
	// State says where the page is.
	State PageState
	// SizeBytes is the disk space of the page's directory, 0 for an evicted page.
	SizeBytes int64
	// LastClosed is when an app last closed the page; zero when it is open or the time is not
	// recorded.
	LastClosed time.Time
	// EvictedAt is when an evicted page left this device, and EvictedBytes its disk space before;
	// zero when not recorded.
	EvictedAt    time.Time
	EvictedBytes int64
}

// Pages returns all pages of this repository, evicted ones included, sorted by ledger, then id.
// Errors: ErrClosed, ErrCorrupt, those of ctx and of the file system.
func (r *Repository) Pages(ctx context.Context) ([]PageInfo, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.gate.Leave()
	here, err := r.disk.Pages()
	if err != nil {
		return nil, err
	}
	gone, err := r.pages.Gone(ctx)
	if err != nil {
		return nil, fmt.Errorf("list evicted pages: %w", err)
	}
	all := map[pageKey]*layout.Absence{}
	for _, p := range gone {
		if p.Kind == layout.Evicted {
			all[p.Page] = p.Absence
		}
	}
	for _, k := range here { // also one that was evicted after the first listing
		all[k] = nil
	}
	infos := make([]PageInfo, 0, len(all))
	for _, k := range slices.SortedFunc(maps.Keys(all), pageKey.Compare) {
		info, err := r.pageInfo(k, all[k])
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return nil, fmt.Errorf("list pages: %w", err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// PageInfo describes one page of this device, also an evicted one. It does not open the page, and
// does not wait. Errors: ErrNotFound, also for a page that only the bucket has; ErrClosed,
// ErrCorrupt, those of the file system.
func (r *Repository) PageInfo(_ context.Context, page PageRef) (PageInfo, error) {
	if err := r.enter(); err != nil {
		return PageInfo{}, err
	}
	defer r.gate.Leave()
	where, absence, err := r.pages.Where(page.key())
	if err == nil && where == presence.Absent {
		err = ErrNotFound
	}
	if err != nil {
		return PageInfo{}, fmt.Errorf("page %s: %w", r.usage.Text(page.key()), err)
	}
	return r.pageInfo(page.key(), absence)
}

// pageInfo describes a page that is away, with its record, or here, with nil.
func (r *Repository) pageInfo(k pageKey, away *layout.Absence) (info PageInfo, err error) {
	info.PageRef = refOf(k)
	if info.Name, info.LastClosed, err = r.usage.Page(k); err != nil {
		return info, err
	}
	if away != nil {
		info.Name, info.State, info.EvictedBytes = cmp.Or(away.Name, info.Name), PageEvicted, away.SizeBytes
		info.LastClosed = time.Time{}
		if away.Since > 0 {
			info.EvictedAt = time.Unix(0, away.Since).UTC()
		}
		return info, nil
	}
	if info.State = PageClosed; r.pages.UseOf(k) > presence.ForSync {
		info.State = PageOpen
	}
	info.SizeBytes, err = r.disk.PageSize(k)
	return info, err
}

// WatchPages yields all pages of this repository, and then each page that is created, here or by
// another device, or deleted here: then with the state PageDeleted, and otherwise as last listed.
// Eviction and return of a page yield nothing, nor does a page that is created and deleted while
// the loop body runs. The loop pulls; between iterations only the list of pages is held. The
// sequence ends with an error, as the last element: ErrClosed, ErrCorrupt, those of ctx and of the
// file system.
func (r *Repository) WatchPages(ctx context.Context) iter.Seq2[PageInfo, error] {
	return func(yield func(PageInfo, error) bool) {
		told := map[PageRef]PageInfo{}
		for {
			r.mu.Lock()
			listed := r.listed // taken before the listing, which may miss later changes
			r.mu.Unlock()
			changes, err := r.pageChanges(ctx, told)
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
			if err == nil {
				select {
				case <-listed:
					continue
				case <-ctx.Done():
					err = ctx.Err()
				case <-r.gate.Life().Done():
					err = fmt.Errorf("repository: %w", ErrClosed)
				}
			}
			yield(PageInfo{}, fmt.Errorf("watch pages: %w", err))
			return
		}
	}
}

// pageChanges returns how the pages differ from those in told, and updates told.
func (r *Repository) pageChanges(ctx context.Context, told map[PageRef]PageInfo) (changes []PageInfo, err error) {
	infos, err := r.Pages(ctx)
	if err != nil {
		return nil, err
	}
	gone := maps.Clone(told)
	for _, p := range infos {
		delete(gone, p.PageRef)
		if _, ok := told[p.PageRef]; !ok {
			changes = append(changes, p)
		}
		told[p.PageRef] = p
	}
	for ref, p := range gone {
		delete(told, ref)
		p.State = PageDeleted
		changes = append(changes, p)
	}
	return changes, nil
}

// pagesChanged wakes the loops of WatchPages.
func (r *Repository) pagesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.listed)
	r.listed = make(chan struct{})
}
