package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// RepositoryStatus is the state of a repository at one moment. Status briefly opens each page that
// is on this device and not open.
type RepositoryStatus struct {
	// Dir and ID are the repository's directory and id.
	Dir, ID string
	// FormatVersion is the version of the format on disk.
	FormatVersion uint64
	ReadOnly      bool
	// Pages has one element for each page, sorted by ledger, then id. Of a page in the cloud only
	// it has the PageInfo.
	Pages []PageStatus
	// SizeBytes, Heads and Unsynced are sums over the pages.
	SizeBytes       int64
	Heads, Unsynced int
	// Cloud is the state of the cloud; nil when there is none.
	Cloud *CloudStatus
}

// CloudStatus is the locally recorded state of the cloud; it needs no request.
type CloudStatus struct {
	ledger.CloudInfo
	// SyncMetrics are sums over all runs since Since, the time when the cloud was set; the last
	// minutes of a killed process may be missing. LastSuccess is the time of the last successful
	// Sync of all pages, and OldestUnsynced is over all pages.
	SyncMetrics
	Since time.Time
}

// SyncMetrics are figures of the syncing of a repository. A counts puts and lists, B gets, Free
// deletes: requests as stores bill them, failed ones included. Up and Down are bytes of content.
// Retries counts repeated requests, Entries log entries appended, Applied log entries of other
// devices applied, Checkpoints those written. OldestUnsynced is the timestamp of the oldest commit
// that the bucket does not have; zero: none. LastSuccess is when, by this device's clock, the least
// synced page last had all its commits uploaded and all entries downloaded; zero: some page never
// had.
type SyncMetrics = cloudsync.Metrics

// Metrics returns the sync figures since the repository was opened, of the open pages; all zero
// before the first sync.
func Metrics(repo *ledger.Repository) SyncMetrics { return bridge.Of(repo).Cloud.Metrics() }

// PageStatus is the state of one page.
type PageStatus struct {
	ledger.PageInfo
	// Heads is the number of heads: 1 unless siblings wait to be merged.
	Heads int
	// Newest is the newest head.
	Newest ledger.Commit
	// Unsynced is the number of commits that the cloud does not have; without a cloud, all commits.
	Unsynced int
	// Sync is the state of sync. For a page that is not being synced it is the recorded state, with
	// the reason of the last failure in Upload.
	Sync ledger.SyncState
	// Ahead is how far the newest head's timestamp is ahead of the local clock; 0 when it is not.
	Ahead time.Duration
	// Garbage is the garbage collected since the page was opened; for a page that was not open,
	// Last is zero.
	Garbage GarbageState
	// Torn lists the torn ends of segments that the last open set aside after a crash.
	Torn []TornTail
	// IndexRebuilt says why the index was rebuilt at the last open; "" when it was not.
	IndexRebuilt string
	// Err says why the page could not be opened; the fields after PageInfo are then zero.
	Err error
}

// GarbageState describes the garbage collection of a page since it was opened. Due reports that the
// next round will look for garbage. Last is when a collection last completed, zero when none has.
// Pieces and Nodes count the deleted ones; Bytes is their size in the segments until compaction.
// Err is the error of the last collection, nil when it succeeded.
type GarbageState = reclaim.Garbage

// Status returns the state of the repository and all its pages. Errors: ErrClosed, and those of
// ctx; errors of a page are in its PageStatus.
func Status(ctx context.Context, repo *ledger.Repository) (RepositoryStatus, error) {
	infos, err := repo.Pages(ctx)
	if err != nil {
		return RepositoryStatus{}, fmt.Errorf("status: %w", err)
	}
	r := of(repo)
	st := RepositoryStatus{Dir: r.Dir, ID: r.Identity.String(), FormatVersion: layout.FormatVersion, ReadOnly: r.ReadOnly, Cloud: cloudStatus(repo)}
	for _, info := range infos {
		ps := PageStatus{PageInfo: info}
		if info.State == ledger.PageEvicted {
			st.Pages = append(st.Pages, ps)
			continue
		}
		ps.Err = r.Visit(ctx, keyOf(info.PageRef), func(ctx context.Context, p *bridge.Page) error { return ps.fill(ctx, r.Clock.Now(), p) })
		if err := ctx.Err(); err != nil {
			return RepositoryStatus{}, fmt.Errorf("status: %w", err)
		}
		if r.hasLeft(keyOf(info.PageRef), ps.Err) {
			continue
		}
		st.Pages = append(st.Pages, ps)
		st.SizeBytes += ps.SizeBytes
		st.Heads += ps.Heads
		st.Unsynced += ps.Unsynced
		if at := ps.Sync.OldestUnsynced; st.Cloud != nil && !at.IsZero() && (st.Cloud.OldestUnsynced.IsZero() || at.Before(st.Cloud.OldestUnsynced)) {
			st.Cloud.OldestUnsynced = at
		}
	}
	return st, nil
}

func (ps *PageStatus) fill(ctx context.Context, now time.Time, p *bridge.Page) error {
	heads, err := p.Handle.(*ledger.Page).Heads(ctx)
	if err != nil {
		return err
	}
	ps.Heads, ps.Newest = len(heads), heads[len(heads)-1]
	ps.Ahead = max(0, ps.Newest.Time.Sub(now))
	ps.Garbage = p.Collector.Garbage()
	rec := p.Store.Recovery()
	ps.Torn, ps.IndexRebuilt = rec.Torn, rec.IndexRebuilt
	unsynced, err := p.Store.Unsynced(ctx)
	if err != nil {
		p.Note(err)
		return fmt.Errorf("count unsynced commits: %w", err)
	}
	ps.Unsynced = len(unsynced)
	ps.Sync, err = p.Cloud.Remembered(ctx, unsynced)
	return err
}

// cloudStatus returns the state of the cloud, nil when there is none.
func cloudStatus(repo *ledger.Repository) *CloudStatus {
	info, ok := repo.Cloud()
	if !ok {
		return nil
	}
	st := CloudStatus{CloudInfo: info}
	st.SyncMetrics, st.Since, st.LastSuccess = bridge.Of(repo).Cloud.Figures()
	return &st
}
