package checkup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage"
)

// Options configure a check. All fields are required.
type Options struct {
	// Repair requests repairs. Cloud reports that there is a cloud.
	Repair, Cloud bool
	Log           *slog.Logger
	Disk          layout.Dir
	Page          base.Page
	Usage         *pageusage.DB
	// Store returns the options for opening the store.
	Store func() storage.Options
	// Visit opens the page and calls fn with it. Alone calls fn with exclusive access to the closed
	// page, and returns false when the page is in use.
	Visit func(ctx context.Context, fn func(context.Context, *Page) error) error
	Alone func(ctx context.Context, fn func() error) (ok bool, err error)
	// Progress is called with the bytes of segments read, and their total.
	Progress func(done, total int64)
}

// Page is an open page.
type Page struct {
	Store *storage.Store
	// Damaged is called for each damage.
	Damaged func(error)
	// Sync syncs the page, and Fetch fetches pieces. Complete makes the tree of a commit readable.
	// Tree returns that tree, whose missing parts are fetched on reads.
	Sync     func(context.Context) error
	Fetch    func(context.Context, []object.Digest) error
	Complete func(context.Context, *commit.Commit) error
	Tree     func(*commit.Commit) btree.Tree
	// Commit makes a durable commit on head from entries, sorted by key; nil when head has the
	// same.
	Commit func(ctx context.Context, head *commit.Commit, message string, entries iter.Seq2[fb.Entry, error]) (*commit.Commit, error)
}

// Report is the result of a check of a page.
type Report struct {
	// Check is the store's result, without its problems.
	Check    storage.CheckReport
	Problems []Problem
	Rescued  []Rescue
	// CloudErr is why the cloud could not be reached. InUse reports incomplete work because the
	// page is open. More reports that there are more problems than listed.
	CloudErr    error
	InUse, More bool
}

// Problem is one defect.
type Problem struct {
	// Where is the place: a file with an offset, or a row family.
	Where string
	// Key names the row or object, or is "".
	Key string
	// Message says what is wrong.
	Message string
	// Fetchable reports that the cloud has the damaged data, as recorded here.
	Fetchable bool
	// Repaired reports whether it was repaired.
	Repaired bool
}

// String returns the problem as one line.
func (p Problem) String() string {
	s := p.Where
	if p.Key != "" {
		s += " " + p.Key
	}
	s += ": " + p.Message
	switch {
	case p.Repaired:
		s += " (repaired)"
	case p.Fetchable:
		s += " (the cloud has it)"
	}
	return s
}

// ProblemOfFile describes damage of a file of the repository.
func ProblemOfFile(name string, err error) Problem {
	p := Problem{Where: "file " + name, Message: err.Error()}
	if e, ok := errors.AsType[*base.CorruptError](err); ok && e.Got != "" {
		p.Message = e.Got
	}
	return p
}

// ofIndex reports whether a problem concerns the index, which is derived from the log.
func (p *Problem) ofIndex() bool { return strings.HasPrefix(p.Where, "page.db") }

// Rescue describes the commit that a repair made for a head with a permanently lost part.
type Rescue struct {
	// Commit is a new commit on Head, with all readable entries of Head; for the unreadable ones it
	// has the entries of Older: the newest intact version found, zero when there is none.
	Head, Commit, Older commit.ID
	// Entries counts the entries of Commit, FromOlder those taken from Older.
	Entries, FromOlder int64
}

// Run checks a page, and repairs it on request. A problem is no error. Errors: those of the
// functions of Options, of ctx and of the disk.
func Run(ctx context.Context, o Options) (*Report, error) {
	c := check{o: o}
	err := c.run(ctx)
	return &c.report, err
}

// check is the check of one page.
type check struct {
	o        Options
	report   Report
	compared bool // with the content of the cloud
	adrift   bool // a cloud without a position in it: an earlier repair may have stopped before reaching it
	again    bool // some commits can be uploaded only after heads were rescued
	rescued  []Rescue
	holed    []Problem          // heads with a missing part of the tree
	gone     map[commit.ID]bool // commits whose trees the cloud does not have
}

func (c *check) run(ctx context.Context) error {
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

func (c *check) checkAndRepair(ctx context.Context) error {
	found, err := c.once(ctx)
	if err != nil {
		return err
	}
	c.report = found
	switch {
	case c.o.Repair && (found.bad() || c.adrift):
		return c.repair(ctx)
	case !c.o.Repair && slices.ContainsFunc(found.Problems, func(p Problem) bool { return !p.ofIndex() }):
		return c.detail(ctx)
	}
	return nil
}

// bad reports whether there may be work for a repair.
func (r *Report) bad() bool {
	return len(r.Problems) > 0 || len(r.Check.Holes) > 0 || r.Check.Missing > 0
}

// once checks the page once.
func (c *check) once(ctx context.Context) (report Report, err error) {
	err = c.o.Visit(ctx, func(ctx context.Context, p *Page) error { return c.look(ctx, p, &report) })
	if isDamage(err) {
		report.Problems, err = append(report.Problems, newProblem(err)), nil
	}
	return report, err
}

// look is once for an open page.
func (c *check) look(ctx context.Context, p *Page, report *Report) error {
	found, err := p.Store.Check(ctx, storage.CheckOptions{Progress: c.o.Progress})
	if err != nil {
		return err
	}
	if c.o.Cloud {
		at, err := cloudsync.StandingOf(ctx, p.Store)
		c.adrift = err == nil && !at.At.Joined()
	}
	report.Check, report.More = *found, found.More
	for _, e := range found.Problems {
		p.Damaged(e)
		report.Problems = append(report.Problems, newProblem(e))
	}
	if err := c.vanished(report, p.Store); err != nil {
		return err
	}
	c.holed, err = c.holedHeads(ctx, p.Store, found.Holes)
	return err
}

// holedHeads reports heads among the commits with holes, whose newest content is partly unreadable.
func (c *check) holedHeads(ctx context.Context, store *storage.Store, holes []commit.ID) (all []Problem, err error) {
	local, err := store.Unsynced(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range store.Heads() {
		if slices.Contains(holes, h.ID) {
			all = append(all, Problem{
				Where: whereTree, Key: h.ID.String(), Message: "a part of it is not here, and this is the newest version",
				Fetchable: c.o.Cloud && !slices.Contains(local, h.ID),
			})
		}
	}
	return all, nil
}

// whereTree is the Where of a problem of an incomplete tree.
const whereTree = "tree of commit"

// allGone is the Where of a problem of a page whose files are all gone or empty.
const allGone = "files of the page"

// vanished reports a page whose files are all gone or empty.
func (c *check) vanished(report *Report, store *storage.Store) error {
	size, err := c.o.Disk.PageSize(c.o.Page)
	if err != nil {
		return err
	}
	had, err := Vanished(c.o.Disk, c.o.Usage, c.o.Page, store.Blank(), size)
	if err != nil || had == 0 {
		return err
	}
	report.Problems = append(report.Problems, Problem{
		Where: allGone, Message: fmt.Sprintf("all are gone or empty: they had %d bytes when the page was closed last", had), Fetchable: c.o.Cloud,
	})
	return nil
}

// Vanished returns the size of a page at its last close, if its log and index have since become
// empty, and 0 otherwise. The page's directory, of sizeBytes, looks the same for such a page as for
// one that was never written. blank reports that the store has no record of any write. Errors:
// those of the file system and of usage.
func Vanished(disk layout.Dir, usage *pageusage.DB, k base.Page, blank bool, sizeBytes int64) (had int64, err error) {
	if !blank {
		return 0, nil
	}
	if _, err := disk.FS.Stat(disk.PageDir(k)); errors.Is(err, fs.ErrNotExist) { // it was deleted
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	if had, err = usage.Size(k); had <= sizeBytes {
		had = 0
	}
	return had, err
}

// forgetVanished makes permanently lost files of a page a problem only once.
func (c *check) forgetVanished() error {
	told := slices.ContainsFunc(c.report.Problems, func(p Problem) bool { return p.Where == allGone && !p.Repaired })
	if !told || c.report.CloudErr != nil || c.report.InUse {
		return nil
	}
	size, err := c.o.Disk.PageSize(c.o.Page)
	if err != nil {
		return err
	}
	return c.o.Usage.NoteSize(c.o.Page, size)
}

func isDamage(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported)
}

// newProblem describes an error of a check.
func newProblem(err error) Problem {
	p := Problem{Where: "page", Message: err.Error()}
	if e, ok := errors.AsType[*base.CorruptError](err); ok {
		p.Where, p.Key = e.Where, e.Key
	}
	return p
}
