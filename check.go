package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/cloudlink"
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
		c := pageCheck{repo: r, o: o, ledger: &Ledger{repo: r, name: info.Ledger}, info: info, index: i, pages: len(chosen)}
		if err := c.run(ctx); err != nil {
			if o.Page == nil && r.hasLeft(info.key(), err) {
				continue
			}
			return nil, fmt.Errorf("check page %s: %w", base.PageName(info.Ledger, info.Name, info.ID), err)
		}
		report.Pages = append(report.Pages, c.report)
	}
	return report, nil
}

// pageCheck is the check of one page.
type pageCheck struct {
	repo         *Repository
	o            CheckOptions
	ledger       *Ledger
	info         PageInfo
	index, pages int
	report       PageReport
	compared     bool // with what the cloud has
	adrift       bool // there is a cloud, and no position in it: a repair before may not have come to asking it
	again        bool // something can be sent only after heads were rescued
	rescued      []Rescue
	holed        []Problem          // heads of which a part of the tree is not here
	gone         map[commit.ID]bool // commits of which the cloud does not have the tree
}

func (c *pageCheck) run(ctx context.Context) error {
	if err := c.checkAndRepair(ctx); err != nil {
		return err
	}
	for _, p := range c.holed {
		told := func(q Problem) bool { return q.Where == p.Where && q.Key == p.Key && !q.Repaired }
		if !slices.ContainsFunc(c.report.Problems, told) {
			c.report.Problems = append(c.report.Problems, p)
		}
	}
	return nil
}

func (c *pageCheck) checkAndRepair(ctx context.Context) error {
	found, err := c.check(ctx)
	if err != nil {
		return err
	}
	c.report = found
	switch {
	case c.o.Repair && (len(found.Problems) > 0 || len(found.Holes) > 0 || found.MissingPieces > 0 || c.adrift):
		return c.repair(ctx)
	case !c.o.Repair && slices.ContainsFunc(found.Problems, func(p Problem) bool { return !p.ofIndex() }):
		return c.detail(ctx)
	}
	return nil
}

// check checks the page once.
func (c *pageCheck) check(ctx context.Context) (report PageReport, err error) {
	report = PageReport{Ledger: c.info.Ledger, Name: c.info.Name, ID: c.info.ID}
	err = c.repo.visit(ctx, c.info.key(), func(ctx context.Context, p *Page) error { return c.look(ctx, p, &report) })
	if len(report.Problems) == 0 && isDamage(err) {
		report.Problems, err = []Problem{newProblem(err)}, nil
	}
	return report, err
}

// look is check for a page that is open.
func (c *pageCheck) look(ctx context.Context, p *Page, report *PageReport) error {
	found, err := p.store.Check(ctx, storage.CheckOptions{Progress: c.progress})
	if err != nil {
		return err
	}
	if c.repo.cloud.Has() {
		at, err := cloudsync.StandingOf(ctx, p.store)
		c.adrift = err == nil && !at.At.Joined()
	}
	report.Commits, report.Nodes, report.Pieces = int64(found.Commits), int64(found.Nodes), int64(found.Pieces)
	report.Rows, report.Bytes = int64(found.Rows), found.Bytes
	report.Torn, report.IndexRebuilt = tornTails(found.Recovery), found.Recovery.IndexRebuilt
	for _, e := range found.Problems {
		p.note(e)
		report.Problems = append(report.Problems, newProblem(e))
	}
	report.More, report.MissingPieces, report.AwayPieces = found.More, found.Missing, found.Away
	if err := c.vanished(report, p.store); err != nil {
		return err
	}
	for _, id := range found.Holes {
		report.Holes = append(report.Holes, CommitID(id))
	}
	c.holed, err = c.holedHeads(ctx, p.store, found.Holes)
	return err
}

// holedHeads tells of the heads among commits with holes: the newest content cannot be read wholly.
func (c *pageCheck) holedHeads(ctx context.Context, store *storage.Store, holes []commit.ID) (all []Problem, err error) {
	local, err := store.Unsynced(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range store.Heads() {
		if slices.Contains(holes, h.ID) {
			all = append(all, Problem{
				Where: whereTree, Key: h.ID.String(), Message: "a part of it is not here, and this is the newest version",
				Fetchable: c.repo.cloud.Has() && !slices.Contains(local, h.ID),
			})
		}
	}
	return all, nil
}

// whereTree is where a problem is told to be of a tree of which a part is not here.
const whereTree = "tree of commit"

// allGone is where a problem is told to be of a page of whose content no file has anything any
// more.
const allGone = "files of the page"

// vanished reports a page whose files are all gone, or have nothing in them.
func (c *pageCheck) vanished(report *PageReport, store *storage.Store) error {
	key := c.info.key()
	size, err := c.repo.disk.PageSize(key)
	if err != nil {
		return err
	}
	had, err := c.repo.vanished(key, store.Blank(), size)
	if err != nil || had == 0 {
		return err
	}
	report.Problems = append(report.Problems, Problem{
		Where: allGone, Message: fmt.Sprintf("all are gone or empty: they had %d bytes when the page was closed last", had), Fetchable: c.repo.cloud.Has(),
	})
	return nil
}

// forgetVanished has a page whose files are gone for good told once.
func (c *pageCheck) forgetVanished() error {
	told := slices.ContainsFunc(c.report.Problems, func(p Problem) bool { return p.Where == allGone && !p.Repaired })
	if !told || c.report.CloudErr != nil || c.report.InUse {
		return nil
	}
	size, err := c.repo.disk.PageSize(c.info.key())
	if err != nil {
		return err
	}
	return c.repo.usage.NoteSize(c.info.key(), size)
}

func (c *pageCheck) progress(done, total int64) {
	if c.o.Progress != nil {
		c.o.Progress(CheckProgress{
			Ledger: c.info.Ledger, Page: c.info.ID, Index: c.index, Pages: c.pages, Step: "segments", Done: done, Total: total,
		})
	}
}

func tornTails(rec storage.Recovery) []TornTail {
	var out []TornTail
	for _, t := range rec.Torn {
		out = append(out, TornTail(t))
	}
	return out
}
