package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledger/storage"
)

// CheckOptions say what Check does. The zero value checks everything and repairs nothing.
type CheckOptions struct {
	// Ledger limits the check to one ledger, and Page to one of its pages. Empty and nil mean all.
	Ledger string
	Page   *PageID
	// Repair makes a damaged index anew from the log. It never drops data, and does nothing to a page whose log is damaged.
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
}

// OK reports whether no problem remains.
func (r *CheckReport) OK() bool { return r.Remaining() == 0 }

// Remaining returns the number of problems that were not repaired.
func (r *CheckReport) Remaining() int {
	n := 0
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
	// Commits, Nodes, Pieces and Rows are how many were checked, Bytes the size of the segments read.
	Commits, Nodes, Pieces, Rows, Bytes int64
	// Torn and IndexRebuilt are as in PageStatus. They are no problems.
	Torn         []TornTail
	IndexRebuilt string
	Problems     []Problem
	// More reports that there are more problems than are listed.
	More bool
}

// Problem is one thing that is not as it should be.
type Problem struct {
	// Where is the place: a file with an offset, or a row family.
	Where string
	// Key names the row or object, or is "".
	Key string
	// Message says what is wrong.
	Message string
	// Repaired reports whether it was mended.
	Repaired bool
}

// String returns the problem as one line.
func (p Problem) String() string {
	s := p.Where
	if p.Key != "" {
		s += " " + p.Key
	}
	s += ": " + p.Message
	if p.Repaired {
		s += " (repaired)"
	}
	return s
}

// Check reads every byte of every page, verifies all that can be verified, recomputes what is derived, and reports
// what differs. It runs beside readers and writers, but a page is repaired only while nothing else of this process has it
// open. A problem found is in the report, not an error.
// Errors: ErrClosed, ErrReadOnly (Repair on a read-only repository), ErrNotFound (no such page), those of ctx and of the disk.
func (r *Repository) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	if o.Repair && r.o.ReadOnly {
		return nil, fmt.Errorf("repair: the repository is open for reading: %w", ErrReadOnly)
	}
	infos, err := r.Pages(ctx)
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
		return nil, fmt.Errorf("check: no such page: %w", ErrNotFound)
	}
	report := &CheckReport{}
	for i, info := range chosen {
		c := pageCheck{repo: r, o: o, ledger: &Ledger{repo: r, name: info.Ledger}, info: info, index: i, pages: len(chosen)}
		if err := c.run(ctx); err != nil {
			return nil, fmt.Errorf("check page %s: %w", info.ID, err)
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
}

func (c *pageCheck) run(ctx context.Context) error {
	found, err := c.check(ctx)
	if err != nil {
		return err
	}
	c.report = found
	if !c.o.Repair || !mendable(found) {
		return nil
	}
	done, err := c.repo.removeIndex(ctx, pageKey{c.info.Ledger, c.info.ID})
	if err != nil || !done {
		return err
	}
	// What the index made anew does not show any more is mended; the rest is damage of the log itself.
	again, err := c.check(ctx)
	if err != nil {
		return err
	}
	remaining := map[Problem]bool{}
	for _, p := range again.Problems {
		remaining[p] = true
	}
	for _, p := range found.Problems {
		if !remaining[p] {
			p.Repaired = true
			again.Problems = append(again.Problems, p)
		}
	}
	c.report = again
	return nil
}

// mendable reports whether there are problems and none is damage of the log. Only then the index may be removed: what it says
// about the end of a damaged log tells damage from a tail that a crash has torn.
func mendable(r PageReport) bool {
	for _, p := range r.Problems {
		if strings.Contains(p.Where, "segment") || strings.Contains(p.Message, "segment ") {
			return false
		}
	}
	return len(r.Problems) > 0 && !r.More
}

// indexFile is the name of a page's index in its directory.
const indexFile = "page.db"

// check checks the page once.
func (c *pageCheck) check(ctx context.Context) (report PageReport, err error) {
	report = PageReport{Ledger: c.info.Ledger, Name: c.info.Name, ID: c.info.ID}
	p, err := c.repo.openPage(ctx, c.ledger, c.info.ID, "", false)
	if isDamage(err) {
		report.Problems = []Problem{newProblem(err)}
		return report, nil
	}
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.enter(); err != nil {
		return report, err
	}
	defer p.leave()
	call := p.gate.context(ctx)
	defer call.release()
	found, err := p.store.Check(call, storage.CheckOptions{Progress: c.progress})
	if err != nil {
		return report, call.explain(err)
	}
	report.Commits, report.Nodes, report.Pieces = int64(found.Commits), int64(found.Nodes), int64(found.Pieces)
	report.Rows, report.Bytes = int64(found.Rows), found.Bytes
	report.Torn, report.IndexRebuilt = tornTails(found.Recovery), found.Recovery.IndexRebuilt
	for _, e := range found.Problems {
		p.note(e)
		report.Problems = append(report.Problems, newProblem(e))
	}
	report.More = found.More
	return report, nil
}

func (c *pageCheck) progress(done, total int64) {
	if c.o.Progress != nil {
		c.o.Progress(CheckProgress{
			Ledger: c.info.Ledger, Page: c.info.ID, Index: c.index, Pages: c.pages, Step: "segments", Done: done, Total: total,
		})
	}
}

func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported)
}

// newProblem describes an error of a check.
func newProblem(err error) Problem {
	p := Problem{Where: "page", Message: err.Error()}
	if e, ok := errors.AsType[*CorruptError](err); ok {
		p.Where, p.Key = e.Where, e.Key
	}
	return p
}

// removeIndex removes page.db, so that the next open makes it anew from the log, and reports whether it could: nothing else of
// this process may have the page open.
func (r *Repository) removeIndex(ctx context.Context, key pageKey) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.gate.leave()
	if r.o.InMemory {
		return false, nil
	}
	s, mine := r.reserve(key, "")
	if !mine {
		r.o.Logger.Warn("a page is not repaired while it is in use", "ledger", key.ledger, "page", key.id.String())
		return false, nil
	}
	path := filepath.Join(r.pageDir(key), indexFile)
	err := os.Remove(path)
	if err == nil {
		err = r.fs.SyncDir(filepath.Dir(path))
	}
	// Nobody has got a handle of the reservation: whoever waits for it tries again.
	s.err = errReserved
	r.mu.Lock()
	delete(r.pages, key)
	r.mu.Unlock()
	close(s.ready)
	close(s.gone)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("repair: %w", err)
	}
	return true, ctx.Err()
}

// errReserved is what stands in for the store of a page that is being repaired. It reaches no caller.
var errReserved = errors.New("page is being repaired")
