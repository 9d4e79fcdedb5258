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

// CheckOptions say what Check does. The zero value checks everything and repairs nothing.
type CheckOptions struct {
	// Ledger limits the check to one ledger, and Page to one of its pages. Empty and nil mean all.
	Ledger string
	Page   *ledger.PageID
	// Repair mends what can be mended: the index is made anew from the log; of a damaged log all
	// that is whole is kept, and what is not comes from the cloud, if there is one and it has it.
	// It never drops intact data. A page that is open only to sync it is closed for that.
	Repair bool
	// Progress, when not nil, is called from time to time on the calling goroutine.
	Progress func(CheckProgress)
}

// CheckProgress says how far a check is.
type CheckProgress struct {
	// Ledger and Page are being checked: page number Index of Pages, counted from 0.
	Ledger       string
	Page         ledger.PageID
	Index, Pages int
	// Step is what is being done, such as "segments".
	Step string
	// Done and Total are bytes of segments; Total is 0 when it is not known.
	Done, Total int64
}

// CheckReport is what Check found.
type CheckReport struct {
	Pages []PageReport
	// Repository are the problems of the repository's own files: what Options.Mend has mended, and
	// what is remembered of the cloud.
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

// PageReport is what Check found in one page.
type PageReport struct {
	Ledger, Name string
	ID           ledger.PageID
	// Commits, Nodes, Pieces and Rows are how many were checked, Bytes the size of the segments
	// read.
	Commits, Nodes, Pieces, Rows, Bytes int64
	// Torn and IndexRebuilt are as in PageStatus. They are no problems.
	Torn         []TornTail
	IndexRebuilt string
	Problems     []Problem
	// MissingPieces counts pieces of values that are neither here nor in the cloud, and Holes are
	// versions of which a part of the tree is not here since it was damaged. They were told as
	// problems once and are none any more, unless they are heads: the newest content cannot be read
	// then.
	MissingPieces int
	// AwayPieces counts pieces of values that only the cloud has. Check does not verify them, and
	// without the network these values cannot be read.
	AwayPieces int
	Holes      []ledger.CommitID
	// Rescued are heads that Repair has put a commit on, since a part of them is gone.
	Rescued []Rescue
	// CloudErr says why Repair could not ask the cloud; nil when it could, or there was no need.
	CloudErr error
	// InUse reports that the page could not be repaired, or not all of its damage told, since it is
	// open.
	InUse bool
	// More reports that there are more problems than are listed.
	More bool
}

// Check reads every byte of every page, verifies all that can be verified, recomputes what is
// derived, and reports what differs. It runs beside readers and writers, but a page is repaired,
// and all of a damaged log is told, only while nothing else of this process has it open. A problem
// found is in the report, not an error; so is a cloud that cannot be reached. Errors: ErrClosed,
// ErrReadOnly (Repair on a read-only repository), ErrNotFound (no such page), those of ctx and of
// the disk.
func Check(ctx context.Context, repo *ledger.Repository, o *CheckOptions) (*CheckReport, error) {
	how := given(o)
	if how.Repair && repo.ReadOnly() {
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
	if info, ok := repo.Cloud(); ok && info.URL == "" && errors.Is(info.Err, ledger.ErrCorrupt) { // setting it again mends it
		report.Repository = append(report.Repository, checkup.ProblemOfFile(cloudlink.FileName, info.Err))
	}
	for i, info := range infos {
		at := CheckProgress{Ledger: info.Ledger, Page: info.ID, Index: i, Pages: len(infos), Step: "segments"}
		k := keyOf(info.PageRef)
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

// checkOf says how a page is checked.
func (r engines) checkOf(k base.Page, o *CheckOptions, at CheckProgress) checkup.Options {
	return checkup.Options{
		Repair: o.Repair, Cloud: r.Cloud.Has(), InMemory: r.InMemory, Log: r.Log.With("ledger", k.Ledger, "page", at.Page.String()),
		Disk: r.Disk, Page: k, Usage: r.Usage,
		Store: func() storage.Options { return r.Store(k) },
		Visit: func(ctx context.Context, fn func(context.Context, *checkup.Page) error) error {
			return r.Visit(ctx, k, func(ctx context.Context, p *bridge.Page) error { return fn(ctx, checked(p)) })
		},
		Alone: func(ctx context.Context, fn func() error) (bool, error) { return r.Alone(ctx, k, fn) },
		Progress: func(done, total int64) {
			if at.Done, at.Total = done, total; o.Progress != nil {
				o.Progress(at)
			}
		},
	}
}

// checked returns the page as a check needs it.
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

// Problem is one thing that is not as it should be. Its fields are Where (a file with an offset, or
// a row family), Key (of the row or object, or ""), Message, Fetchable (the cloud has what is
// damaged, as far as is known here) and Repaired. String gives it as one line.
type Problem = checkup.Problem

// Rescue describes the commit that a repair made of a head with a part that is gone for good. Head
// has holes. Commit is a new commit on it, with all entries of Head that can be read; where they
// cannot, it has what Older had there: the newest version found that is whole, zero when there is
// none. Entries are all that Commit has, FromOlder those of them that Older gave.
type Rescue = checkup.Rescue

// TornTail is the unfinished end of a segment file that a crash left behind. It was set aside, not
// lost: SavedAs is the file that keeps the bytes. See segment.Torn for its fields.
type TornTail = segment.Torn
