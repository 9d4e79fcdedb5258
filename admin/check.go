package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/segment"
)

// CheckOptions configure Check. The zero value checks everything and repairs nothing.
type CheckOptions struct {
	// Ledger limits the check to one ledger, and Page to one of its pages. Empty and nil mean all.
	Ledger string
	Page   *ledger.PageID
	// Repair repairs what it can. It rebuilds the index from the log, keeps all intact content of a
	// damaged log, and fetches the rest from the cloud if possible. It never drops intact data. A
	// page that only background sync has open is closed for that.
	Repair bool
	// Progress, when not nil, is called from time to time on the calling goroutine, with the number
	// of pages and the bytes of the present page's segments.
	Progress func(ledger.Progress)
}

// CheckReport is the result of Check.
type CheckReport struct {
	Pages []PageReport
	// Repository are the problems of the repository's own files: repairs by Options.Mend, and the
	// stored cloud settings.
	Repository []Problem
}

// OK reports whether no problem remains.
func (r *CheckReport) OK() bool { return r.Remaining() == 0 }

// Remaining returns the number of problems that were not repaired.
func (r *CheckReport) Remaining() int {
	n := 0
	for _, q := range r.Repository {
		if !q.Repaired {
			n++
		}
	}
	for _, p := range r.Pages {
		for _, q := range p.Problems {
			if !q.Repaired {
				n++
			}
		}
	}
	return n
}

// PageReport is the result of Check for one page.
type PageReport struct {
	Ledger, Name string
	ID           ledger.PageID
	// Commits, Nodes, Pieces and Rows count the checked ones; Bytes is the size of the segments
	// read.
	Commits, Nodes, Pieces, Rows, Bytes int64
	// Torn and IndexRebuilt are as in PageStatus. They are no problems.
	Torn         []TornTail
	IndexRebuilt string
	Problems     []Problem
	// MissingPieces counts pieces of values that are neither on this device nor in the cloud. Holes
	// are versions that have lost a part of their tree through damage. Both were reported as
	// problems once, and no longer are, except for heads, whose newest content is then unreadable.
	MissingPieces int
	// AwayPieces counts pieces of values that only the cloud has. Check does not verify them, and
	// reading these values needs the network.
	AwayPieces int
	Holes      []ledger.CommitID
	// Rescued are heads with a lost part, on each of which Repair has made a commit.
	Rescued []Rescue
	// CloudErr is why Repair could not reach the cloud; nil when it could, or need not.
	CloudErr error
	// InUse reports that the page is open, so that it was not repaired, or its damage not fully
	// listed.
	InUse bool
	// More reports that there are more problems than listed.
	More bool
}

// Check reads every byte of every page, verifies all content, recomputes derived data, and reports
// differences. It runs beside readers and writers. It repairs a page, and lists all damage of its
// log, only while nothing else in this process has the page open. Problems are in the report, not
// an error; so is an unreachable cloud. Errors: ErrClosed, ErrReadOnly (Repair on a read-only
// repository), ErrNotFound (no such page), those of ctx and of the disk.
func Check(ctx context.Context, repo *ledger.Repository, o *CheckOptions) (*CheckReport, error) {
	how := given(o)
	if how.Repair && bridge.Of(repo).ReadOnly {
		return nil, fmt.Errorf("repair: the repository is open for reading: %w", ledger.ErrReadOnly)
	}
	infos, err := herePages(ctx, repo)
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	infos = slices.DeleteFunc(infos, func(p ledger.PageInfo) bool {
		return how.Ledger != "" && how.Ledger != p.Ledger || how.Page != nil && *how.Page != p.ID
	})
	if len(infos) == 0 && (how.Ledger != "" || how.Page != nil) {
		return nil, fmt.Errorf("no such page: %w", ledger.ErrNotFound)
	}
	r := of(repo)
	report := &CheckReport{}
	if r.Mended != nil {
		report.Repository = append(report.Repository, *r.Mended)
	}
	if info, ok := repo.Cloud(); ok && info.URL == "" && errors.Is(info.Err, ledger.ErrCorrupt) { // setting the cloud again repairs it
		report.Repository = append(report.Repository, checkup.ProblemOfFile(cloudlink.FileName, info.Err))
	}
	for i, info := range infos {
		k := keyOf(info.PageRef)
		at := ledger.Progress{Done: int64(i), Total: int64(len(infos)), Now: k.Text(info.Name)}
		found, err := checkup.Run(ctx, r.checkOf(k, &how, at))
		if err != nil {
			if how.Page == nil && r.hasLeft(k, err) {
				continue
			}
			return nil, fmt.Errorf("check page %s: %w", k.Text(info.Name), err)
		}
		report.Pages = append(report.Pages, pageReport(info, found))
	}
	return report, nil
}

// checkOf returns the options for checking a page.
func (r engines) checkOf(k base.Page, o *CheckOptions, at ledger.Progress) checkup.Options {
	return checkup.Options{
		Repair: o.Repair, Cloud: r.Cloud.Has(), Log: r.Log.With("ledger", k.Ledger, "page", ledger.PageID(k.ID).String()),
		Disk: r.Disk, Page: k, Usage: r.Usage,
		Store: func() storage.Options { return r.Store(k) },
		Visit: func(ctx context.Context, fn func(context.Context, *checkup.Page) error) error {
			return r.Visit(ctx, k, func(ctx context.Context, p *bridge.Page) error { return fn(ctx, checked(p)) })
		},
		Alone: func(ctx context.Context, fn func() error) (bool, error) { return r.Alone(ctx, k, fn) },
		Progress: func(done, total int64) {
			if at.Bytes, at.TotalBytes = done, total; o.Progress != nil {
				o.Progress(at)
			}
		},
	}
}

// checked returns the page as the check uses it.
func checked(p *bridge.Page) *checkup.Page {
	return &checkup.Page{
		Store: p.Store, Damaged: p.Note, Complete: p.Session.EnsureTree, Tree: p.Session.Tree, Commit: p.Session.Replace,
		Sync: func(ctx context.Context) error { return p.WithSync(ctx, "", syncPage) },
		Fetch: func(ctx context.Context, ds []object.Digest) error {
			return p.WithSync(ctx, "fetch damaged pieces", func(ctx context.Context, s *cloudsync.Page) error {
				_, err := s.Fetch(ctx, ds)
				return err
			})
		},
	}
}

func syncPage(ctx context.Context, s *cloudsync.Page) error { return s.Sync(ctx) }

func pageReport(info ledger.PageInfo, found *checkup.Report) PageReport {
	c := &found.Check
	return PageReport{
		Ledger: info.Ledger, Name: info.Name, ID: info.ID, Commits: int64(c.Commits), Nodes: int64(c.Nodes), Pieces: int64(c.Pieces), Rows: int64(c.Rows),
		Bytes: c.Bytes, Torn: c.Recovery.Torn, IndexRebuilt: c.Recovery.IndexRebuilt, MissingPieces: c.Missing, AwayPieces: c.Away,
		CloudErr: found.CloudErr, InUse: found.InUse, More: found.More, Problems: found.Problems, Holes: c.Holes, Rescued: found.Rescued,
	}
}

// Problem is one defect. Its fields are Where (a file with an offset, or a row family), Key (of the
// row or object, or ""), Message, Fetchable (the cloud has the damaged data, as recorded here) and
// Repaired. String formats it as one line.
type Problem = checkup.Problem

// Rescue describes the commit that a repair made for a head with a permanently lost part. Commit is
// a new commit on Head, with all readable entries of Head; for the unreadable ones it has the
// entries of Older: the newest intact version found, zero when there is none. Entries counts the
// entries of Commit, FromOlder those taken from Older.
type Rescue = checkup.Rescue

// TornTail is the unfinished end of a segment file after a crash. It was set aside, not lost:
// SavedAs is the file with the bytes. See segment.Torn for its fields.
type TornTail = segment.Torn
