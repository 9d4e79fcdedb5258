package ledger

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger/internal/layout"
)

// A page that the repository knows and does not hold has a file {page}.away in its ledger's
// directory instead of a directory. These rules make a page be there wholly or not at all, whenever
// a process dies or the power fails:
//
//	A1  Where the page's directory is, the page is here and whole; a file {page}.away beside it
//	    says nothing and goes at the next opening.
//	A2  To leave, the file is written first, durably; then the directory is renamed to
//	    {page}.gone-{n}, durably; only then is anything in it removed. Pages that leave together
//	    take each of these steps for all of them.
//	A3  To come back, a page is made and filled as {page}.coming, and renamed once it is whole.
//	A4  Directories of those two names are nobody's: they are removed when the repository is
//	    opened.

// readAbsence returns why a page whose directory is not there is away; nil when the repository does
// not know it. What cannot be read counts as an eviction of which nothing else is known, since
// nobody must take such a page for a new one.
func (r *Repository) readAbsence(k pageKey) (*layout.Absence, error) {
	a, err := r.disk.ReadAbsence(k)
	if errors.Is(err, ErrCorrupt) {
		r.o.Logger.Warn("what is known of an evicted page is damaged", "ledger", k.Ledger, "page", PageID(k.ID).String(), "error", err)
		return &layout.Absence{Kind: layout.Evicted}, nil
	}
	return a, err
}

// awayPage is a page that is away, for whatever reason.
type awayPage struct {
	key pageKey
	*layout.Absence
}

// awayPages returns the pages that are away, sorted.
func (r *Repository) awayPages(ctx context.Context) ([]awayPage, error) {
	keys, err := r.disk.AwayPages()
	if err != nil {
		return nil, err
	}
	var out []awayPage
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		here, err := r.disk.HasPage(k)
		if err != nil {
			return nil, err
		}
		if here {
			continue // A1
		}
		a, err := r.readAbsence(k)
		if err != nil {
			return nil, err
		}
		if a != nil {
			out = append(out, awayPage{k, a})
		}
	}
	return out, nil
}

// hasLeft reports whether err, of a page that was here when the pages were listed, says that it has
// left since: by the quota, or because somebody has evicted or deleted it.
func (r *Repository) hasLeft(k pageKey, err error) bool {
	if !errors.Is(err, ErrNotFound) {
		return false
	}
	here, err := r.disk.HasPage(k)
	return err == nil && !here
}

// whereIs reports whether the page is here, or the repository knows it as evicted. While it leaves
// or comes back it is one of the two.
func (r *Repository) whereIs(k pageKey) (here, away bool, err error) {
	for range 3 { // between the two looks it may have come, or gone
		if here, err = r.disk.HasPage(k); err != nil || here {
			return here, false, err
		}
		a, err := r.readAbsence(k)
		if err != nil || a != nil {
			return false, a != nil && a.Kind == layout.Evicted, err
		}
	}
	return false, false, nil
}

// isAway reports whether the page is not here and the repository knows it as evicted.
func (r *Repository) isAway(k pageKey) (bool, error) {
	_, away, err := r.whereIs(k)
	return away, err
}
