package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/storage"
)

// Status is the state of a repository at one moment. Status opens each page for a moment that is not open.
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
}

// PageStatus is the state of one page.
type PageStatus struct {
	PageInfo
	// Heads is the number of heads: 1 unless siblings wait to be merged.
	Heads int
	// Newest is the newest head.
	Newest Commit
	// Unsynced is the number of commits that the cloud does not have. Without a cloud it is all of them.
	Unsynced int
	// Ahead is how far the newest head's timestamp is ahead of the local clock, 0 when it is not.
	Ahead time.Duration
	// Torn lists what was set aside at the last open because a crash had torn it.
	Torn []TornTail
	// IndexRebuilt says why the index was rebuilt at the last open; "" when it was not.
	IndexRebuilt string
	// Err says why the page could not be opened; the other fields behind PageInfo are then zero.
	Err error
}

// TornTail is the unfinished end of a segment file that a crash left behind. It was set aside, not lost.
type TornTail struct {
	Segment uint32
	Offset  uint64
	Bytes   uint64
	// SavedAs is the file that keeps the bytes.
	SavedAs string
}

// Status returns the state of the repository and all its pages. Errors: ErrClosed, and those of ctx; what is wrong
// with a page is in its PageStatus.
func (r *Repository) Status(ctx context.Context) (Status, error) {
	infos, err := r.Pages(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	st := Status{Dir: r.dir, ID: r.ID(), FormatVersion: formatVersion, ReadOnly: r.o.ReadOnly}
	for _, info := range infos {
		ps := r.pageStatus(ctx, info)
		if err := ctx.Err(); err != nil {
			return Status{}, fmt.Errorf("status: %w", err)
		}
		st.Pages = append(st.Pages, ps)
		st.SizeBytes += ps.SizeBytes
		st.Heads += ps.Heads
		st.Unsynced += ps.Unsynced
	}
	return st, nil
}

func (r *Repository) pageStatus(ctx context.Context, info PageInfo) PageStatus {
	ps := PageStatus{PageInfo: info}
	p, err := r.openPage(ctx, &Ledger{repo: r, name: info.Ledger}, info.ID, "", false)
	if err != nil {
		ps.Err = err
		return ps
	}
	ps.Err = ps.fill(ctx, p)
	if err := p.Close(); err != nil && ps.Err == nil {
		ps.Err = err
	}
	return ps
}

func (ps *PageStatus) fill(ctx context.Context, p *Page) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	heads := p.store.Heads()
	ps.Heads, ps.Newest = len(heads), newCommit(heads[len(heads)-1])
	if now := p.ledger.repo.clock.Now(); ps.Newest.Time.After(now) {
		ps.Ahead = ps.Newest.Time.Sub(now)
	}
	rec := p.store.Recovery()
	ps.Torn, ps.IndexRebuilt = tornTails(rec), rec.IndexRebuilt
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		p.note(err)
		return fmt.Errorf("count unsynced commits: %w", err)
	}
	ps.Unsynced = len(unsynced)
	return nil
}

func tornTails(rec storage.Recovery) []TornTail {
	var out []TornTail
	for _, t := range rec.Torn {
		out = append(out, TornTail(t))
	}
	return out
}
