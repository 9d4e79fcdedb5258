package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// CheckOptions say what Check does. The zero value checks everything and repairs nothing.
type CheckOptions struct {
	// Ledger limits the check to one ledger, and Page to one of its pages. Empty and nil mean all.
	Ledger string
	Page   *PageID
	// Repair mends what can be mended: the index is made anew from the log; of a damaged log all
	// that is whole is kept, and what is not comes from the cloud, if there is one and it has it.
	// It never drops intact data, and takes the page from whoever only keeps it.
	Repair bool
	// Progress, when not nil, is called from time to time on the calling goroutine.
	Progress func(CheckProgress)
}

// CheckProgress says how far a check is.
type CheckProgress struct {
	// Ledger and Page are being checked: page number Index of Pages, counted from 0.
	Ledger       string
	Page         PageID
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
	ID           PageID
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
	Holes      []CommitID
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
func (r *Repository) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	if o.Repair && r.o.ReadOnly {
		return nil, fmt.Errorf("repair: the repository is open for reading: %w", ErrReadOnly)
	}
	infos, err := r.herePages(ctx)
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	var chosen []PageInfo
	for _, info := range infos {
		if (o.Ledger == "" || o.Ledger == info.Ledger) && (o.Page == nil || *o.Page == info.ID) {
			chosen = append(chosen, info)
		}
	}
	if len(chosen) == 0 && (o.Ledger != "" || o.Page != nil) {
		return nil, fmt.Errorf("no such page: %w", ErrNotFound)
	}
	report := &CheckReport{}
	if r.mended != nil {
		report.Repository = append(report.Repository, *r.mended)
	}
	if info, ok := r.Cloud(); ok && info.URL == "" && errors.Is(info.Err, ErrCorrupt) { // setting it again mends it
		report.Repository = append(report.Repository, Problem{Where: "file " + cloudlink.FileName, Message: problemText(info.Err)})
	}
	for i, info := range chosen {
		at := CheckProgress{Ledger: info.Ledger, Page: info.ID, Index: i, Pages: len(chosen), Step: "segments"}
		found, err := checkup.Run(ctx, r.checkOf(info.key(), &o, at))
		if err != nil {
			if o.Page == nil && r.hasLeft(info.key(), err) {
				continue
			}
			return nil, fmt.Errorf("check page %s: %w", info.key().Text(info.Name), err)
		}
		report.Pages = append(report.Pages, pageReport(info, found))
	}
	return report, nil
}

// checkOf says how a page is checked.
func (r *Repository) checkOf(k pageKey, o *CheckOptions, at CheckProgress) checkup.Options {
	return checkup.Options{
		Repair: o.Repair, Cloud: r.cloud.Has(), InMemory: r.o.InMemory, Log: r.o.Logger.With("ledger", k.Ledger, "page", PageID(k.ID).String()),
		Disk: r.disk, Page: k, Usage: r.usage,
		Store: func() storage.Options { return r.storageOptions(k) },
		Visit: func(ctx context.Context, fn func(context.Context, *checkup.Page) error) error {
			return r.visit(ctx, k, func(ctx context.Context, p *Page) error { return fn(ctx, p.checked()) })
		},
		Alone: func(ctx context.Context, fn func() error) (bool, error) { return r.alone(ctx, k, fn) },
		Progress: func(done, total int64) {
			if at.Done, at.Total = done, total; o.Progress != nil {
				o.Progress(at)
			}
		},
	}
}

// checked returns the page as a check needs it.
func (p *Page) checked() *checkup.Page {
	return &checkup.Page{
		Store: p.store, Damaged: p.note, Sync: p.Sync, Complete: p.in.EnsureTree, Tree: p.in.Tree, Commit: p.in.Replace,
		Fetch: func(ctx context.Context, ds []object.Digest) error {
			return p.withSync(ctx, "fetch damaged pieces", func(ctx context.Context, s *cloudsync.Page) error {
				_, err := s.Fetch(ctx, ds)
				return err
			})
		},
	}
}

func pageReport(info PageInfo, found *checkup.Report) PageReport {
	c := &found.Check
	out := PageReport{
		Ledger: info.Ledger, Name: info.Name, ID: info.ID, Commits: int64(c.Commits), Nodes: int64(c.Nodes), Pieces: int64(c.Pieces), Rows: int64(c.Rows),
		Bytes: c.Bytes, Torn: tornTails(c.Recovery), IndexRebuilt: c.Recovery.IndexRebuilt, MissingPieces: c.Missing, AwayPieces: c.Away,
		CloudErr: found.CloudErr, InUse: found.InUse, More: found.More,
	}
	for _, p := range found.Problems {
		out.Problems = append(out.Problems, Problem(p))
	}
	out.Holes = append(out.Holes, c.Holes...)
	for _, r := range found.Rescued {
		out.Rescued = append(out.Rescued, Rescue(r))
	}
	return out
}

func tornTails(rec storage.Recovery) []TornTail {
	var out []TornTail
	for _, t := range rec.Torn {
		out = append(out, TornTail(t))
	}
	return out
}

// alone calls fn while nobody has a page open, nor can open it; who only keeps it gives way. It
// reports false when somebody uses the page.
func (r *Repository) alone(ctx context.Context, k pageKey, fn func() error) (ok bool, err error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.gate.Leave()
	err = r.pages.Take(ctx, k, func(*presence.Alone[*pageStore, *Page]) error { return fn() })
	if errors.Is(err, presence.ErrInUse) {
		return false, nil
	}
	return true, err
}

// Rescue describes the commit that a repair made of a head with a part that is gone for good.
type Rescue struct {
	// Head has holes. Commit is a new commit on it, with all entries of Head that can be read;
	// where they cannot, it has what Older had there: the newest version found that is whole, zero
	// when there is none.
	Head, Commit, Older CommitID
	// Entries are all that Commit has, FromOlder those of them that Older gave.
	Entries, FromOlder int64
}
