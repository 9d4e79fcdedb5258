package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/internal/layout"
)

// Status is the state of a repository at one moment. Status opens each page for a moment that is
// not open.
type Status struct {
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
	CloudInfo
	// LastSuccess is when a Sync of all pages succeeded for the last time, by this device's clock,
	// in this run or an earlier one; zero: never.
	LastSuccess time.Time
	// OldestUnsynced is the timestamp of the oldest commit of any page that the bucket does not
	// have; zero: it has all.
	OldestUnsynced time.Time
	// Since is when the figures begin: they are sums over all runs since the cloud was set, but for
	// what a process that was killed did in its last minute.
	Since time.Time
	// ClassA counts puts and lists, ClassB gets, Free deletes: requests as stores bill them, failed
	// ones included.
	ClassA, ClassB, Free int64
	// UpBytes and DownBytes are bytes of content.
	UpBytes, DownBytes int64
	// Retries counts requests that were made again. Entries counts what was appended to logs,
	// Applied what came from others.
	Retries, Entries, Applied, Checkpoints int64
}

// PageStatus is the state of one page.
type PageStatus struct {
	PageInfo
	// Heads is the number of heads: 1 unless siblings wait to be merged.
	Heads int
	// Newest is the newest head.
	Newest Commit
	// Unsynced is the number of commits that the cloud does not have. Without a cloud it is all of
	// them.
	Unsynced int
	// Sync is the state of sync. For a page that is not being synced it is what is remembered; why
	// the last attempt failed stands with Upload then.
	Sync SyncState
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

// TornTail is the unfinished end of a segment file that a crash left behind. It was set aside, not
// lost.
type TornTail struct {
	Segment uint32
	Offset  uint64
	Bytes   uint64
	// SavedAs is the file that keeps the bytes.
	SavedAs string
}

// Status returns the state of the repository and all its pages. Errors: ErrClosed, and those of
// ctx; what is wrong with a page is in its PageStatus.
func (r *Repository) Status(ctx context.Context) (Status, error) {
	infos, err := r.herePages(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	st := Status{Dir: r.dir, ID: r.ID(), FormatVersion: layout.FormatVersion, ReadOnly: r.o.ReadOnly}
	st.Cloud = r.cloudStatus()
	for _, info := range infos {
		ps := r.pageStatus(ctx, info)
		if err := ctx.Err(); err != nil {
			return Status{}, fmt.Errorf("status: %w", err)
		}
		if r.hasLeft(info.key(), ps.Err) {
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

func (r *Repository) pageStatus(ctx context.Context, info PageInfo) PageStatus {
	ps := PageStatus{PageInfo: info}
	ps.Err = r.visit(ctx, info.key(), ps.fill)
	return ps
}

func (ps *PageStatus) fill(ctx context.Context, p *Page) error {
	heads := p.store.Heads()
	ps.Heads, ps.Newest = len(heads), newCommit(heads[len(heads)-1])
	if now := p.ledger.repo.clock.Now(); ps.Newest.Time.After(now) {
		ps.Ahead = ps.Newest.Time.Sub(now)
	}
	ps.Garbage = GarbageState(p.shared.collector.Garbage())
	rec := p.store.Recovery()
	ps.Torn, ps.IndexRebuilt = tornTails(rec), rec.IndexRebuilt
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		p.note(err)
		return fmt.Errorf("count unsynced commits: %w", err)
	}
	ps.Unsynced = len(unsynced)
	state, err := p.shared.cloud.Remembered(ctx, unsynced)
	ps.Sync = newSyncState(&state)
	return err
}

// cloudStatus returns the state of the cloud, nil when there is none.
func (r *Repository) cloudStatus() *CloudStatus {
	info, ok := r.Cloud()
	if !ok {
		return nil
	}
	t, since, success := r.cloud.Figures()
	return &CloudStatus{
		CloudInfo: info, LastSuccess: success, Since: since, ClassA: t.A, ClassB: t.B, Free: t.Free, UpBytes: t.Up, DownBytes: t.Down,
		Retries: t.Retries, Entries: t.Entries, Applied: t.Applied, Checkpoints: t.Checkpoints,
	}
}
