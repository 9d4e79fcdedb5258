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

// RepositoryStatus is the state of a repository at one moment. Status opens each page for a moment
// that is not open.
type RepositoryStatus struct {
	// Dir and ID are the repository's directory and id.
	Dir, ID string
	// FormatVersion is the version of the format on disk.
	FormatVersion uint64
	ReadOnly      bool
	// Pages has one element for each page, sorted by ledger, then id.
	Pages []PageStatus
	// SizeBytes, Heads and Unsynced are sums over the pages.
	SizeBytes       int64
	Heads, Unsynced int
	// Cloud is the state of the cloud; nil when there is none.
	Cloud *CloudStatus
}

// CloudStatus is what is known of the cloud without asking it.
type CloudStatus struct {
	ledger.CloudInfo
	// SyncMetrics are sums over all runs since the time Since, when the cloud was set, but for what
	// a process that was killed did in its last minute. LastSuccess is when a Sync of all pages
	// succeeded for the last time, and OldestUnsynced is that of all pages.
	SyncMetrics
	Since time.Time
}

// SyncMetrics are figures of the syncing of a repository. A counts puts and lists, B gets, Free
// deletes: requests as stores bill them, failed ones included. Up and Down are bytes of content.
// Retries counts requests that were made again, Entries what was appended to logs, Applied what
// came from others, Checkpoints those that were written. OldestUnsynced is the timestamp of the
// oldest commit that the bucket does not have; zero: none. LastSuccess is, by this device's clock,
// when the page that is furthest behind had all its commits up and all entries down; zero: never
// for one of them.
type SyncMetrics = cloudsync.Metrics

// Metrics returns the figures of syncing since the repository was opened, of the pages that are
// open; all zero while nothing was synced.
func Metrics(repo *ledger.Repository) SyncMetrics { return bridge.Of(repo).Cloud.Metrics() }

// PageStatus is the state of one page.
type PageStatus struct {
	ledger.PageInfo
	// Heads is the number of heads: 1 unless siblings wait to be merged.
	Heads int
	// Newest is the newest head.
	Newest ledger.Commit
	// Unsynced is the number of commits that the cloud does not have. Without a cloud it is all of
	// them.
	Unsynced int
	// Sync is the state of sync. For a page that is not being synced it is what is remembered; why
	// the last attempt failed stands with Upload then.
	Sync ledger.SyncState
	// Ahead is how far the newest head's timestamp is ahead of the local clock, 0 when it is not.
	Ahead time.Duration
	// Garbage is what was collected since the page was opened; with Last zero for a page that was
	// not open.
	Garbage GarbageState
	// Torn lists what was set aside at the last open because a crash had torn it.
	Torn []TornTail
	// IndexRebuilt says why the index was rebuilt at the last open; "" when it was not.
	IndexRebuilt string
	// Err says why the page could not be opened; the other fields behind PageInfo are then zero.
	Err error
}

// GarbageState says what was collected of a page since it was opened. Due reports that the next
// round will look for garbage. Last is when a collection last came to its end, zero when none has.
// Pieces and Nodes count what was deleted, Bytes what that takes in the segments until they are
// compacted. Err says why the last collection failed; nil when it did not.
type GarbageState = reclaim.Garbage

// Status returns the state of the repository and all its pages. Errors: ErrClosed, and those of
// ctx; what is wrong with a page is in its PageStatus.
func Status(ctx context.Context, repo *ledger.Repository) (RepositoryStatus, error) {
	infos, err := herePages(ctx, repo)
	if err != nil {
		return RepositoryStatus{}, fmt.Errorf("status: %w", err)
	}
	r := of(repo)
	st := RepositoryStatus{Dir: repo.Dir(), ID: repo.ID(), FormatVersion: layout.FormatVersion, ReadOnly: repo.ReadOnly(), Cloud: cloudStatus(repo)}
	for _, info := range infos {
		ps := PageStatus{PageInfo: info}
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
