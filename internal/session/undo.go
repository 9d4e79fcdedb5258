package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// UndoResult is the result of Undo.
type UndoResult struct {
	// Commit is the new commit, or the head when nothing changed.
	Commit commit.ID
	// Changed counts the keys that Undo set back. Kept counts the keys that the commit changed and
	// a later commit wrote again: they stay as they are.
	Changed, Kept int
}

// Undo makes a new commit on the handle's head that removes the effect of the commit c. Each key
// that c changed gets its value in c's parent; where c's value won over others in a later merge, it
// gets the newest of those. A key that a later commit wrote again stays as it is, even if the value
// is the same. Undoing the new commit reverses the undo.
//
// c is the head or an ancestor of it. against is the parent with which c is compared: zero, except
// for a merge, whose changes against one parent are those of the other side. The message "" means
// "undo" and the short id of c. With dry no commit is made. Like Update, Undo waits for the page's
// write turn, and its result survives a crash when the error is nil. It reads each key in the
// commits between c and the head; trees that are not on this device are fetched. Errors: ErrInvalid
// (the zero id, the first commit, no ancestor of the head, a merge without Parent: the error names
// its parents), ErrNotFound, ErrGone (its parent, or the history above it, was given up),
// ErrNeedsFetch (a tree is not on this device, and there is no cloud), ErrTooLarge (message),
// ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of Sync and of ctx.
func (p *Page) Undo(ctx context.Context, c, against commit.ID, message string, dry bool) (UndoResult, error) {
	if c.IsZero() {
		return UndoResult{}, fmt.Errorf("undo: no commit is named: %w", base.ErrInvalid)
	}
	message = cmp.Or(message, "undo "+c.Short())
	if err := ValidateMessage(message); err != nil {
		return UndoResult{}, fmt.Errorf("undo: %w", err)
	}
	target, release, err := p.Pin(ctx, c)
	if err != nil {
		return UndoResult{}, fmt.Errorf("undo: %w", err)
	}
	defer release()
	parent, releaseParent, err := p.undoParent(ctx, target, against)
	if err != nil {
		return UndoResult{}, fmt.Errorf("undo: %w", err)
	}
	defer releaseParent()
	head, releaseHead, err := p.Pin(ctx, commit.ID{})
	if err != nil {
		return UndoResult{}, fmt.Errorf("undo: %w", err)
	}
	defer releaseHead()
	if dry || p.env.HasCloud() { // an Update must not fetch, so that a walk fetches missing trees before
		r, err := p.undo(ctx, p.mergeView(), head, target, parent, func(context.Context, btree.Change) error { return nil })
		if err != nil {
			return UndoResult{}, fmt.Errorf("undo: %w", err)
		}
		if r.Commit = head.ID; dry {
			return r, nil
		}
	}
	var r UndoResult
	id, err := p.Update(ctx, func(t *Tx) error {
		view := p.mergeView()
		view.Commits = getter(p.chained) // the Update becomes durable only together with these commits
		view.Tree = func(c *commit.Commit) btree.Tree {
			return btree.Tree{Page: view.Page, Source: view.Nodes, Root: c.Root}
		}
		t.message = message
		var err error
		if r, err = p.undo(ctx, view, t.base, target, parent, t.record); err != nil {
			return fmt.Errorf("undo: %w", err)
		}
		return nil
	})
	if err != nil {
		return UndoResult{}, err
	}
	r.Commit = id
	return r, nil
}

// undoParent returns the pinned parent with which c is compared. named is the caller's choice.
func (p *Page) undoParent(ctx context.Context, c *commit.Commit, named commit.ID) (*commit.Commit, func(), error) {
	id := named
	switch {
	case c.IsFirst():
		return nil, nil, fmt.Errorf("commit %s is the first one, which has changed nothing: %w", c.ID.Short(), base.ErrInvalid)
	case named.IsZero() && len(c.Parents) == 1:
		id = c.Parents[0]
	case named.IsZero():
		return nil, nil, fmt.Errorf("commit %s is a merge: name the parent whose content is to stay, one of %s: %w", c.ID.Short(), parentList(c), base.ErrInvalid)
	case !slices.Contains(c.Parents, id):
		return nil, nil, fmt.Errorf("commit %s is no parent of %s, which has %s: %w", named.Short(), c.ID.Short(), parentList(c), base.ErrInvalid)
	}
	release := p.env.Store.Pin(id)
	parent, err := p.durable(ctx, id)
	if errors.Is(err, base.ErrGone) {
		err = fmt.Errorf("its parent %s was given up, so that nobody knows what it has changed: %w", id.String()[:12], base.ErrGone)
	}
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("read the parent of commit %s: %w", c.ID.Short(), err)
	}
	return parent, release, nil
}

func parentList(c *commit.Commit) string {
	ids := make([]string, 0, len(c.Parents))
	for _, id := range c.Parents {
		ids = append(ids, id.String())
	}
	return strings.Join(ids, ", ")
}

// undo passes the changes that remove the effect of c from head to record, and counts them.
func (p *Page) undo(ctx context.Context, v *merge.View, head, c, parent *commit.Commit, record func(context.Context, btree.Change) error) (r UndoResult, err error) {
	below, err := commit.IsAncestor(ctx, v.Commits, c, head)
	switch {
	case errors.Is(err, base.ErrGone):
		return r, fmt.Errorf("the history between commit %s and the head %s was given up, so that nobody knows whether one is built on the other: %w", c.ID.Short(), head.ID.Short(), base.ErrGone)
	case err != nil:
		return r, err
	case !below:
		return r, fmt.Errorf("commit %s is no ancestor of the head %s: %w", c.ID.Short(), head.ID.Short(), base.ErrInvalid)
	}
	for u, err := range merge.Undo(ctx, v, head, c, parent) {
		if err != nil {
			return r, err
		}
		if u.Kept {
			r.Kept++
			continue
		}
		if err := record(ctx, u.Change); err != nil {
			return r, err
		}
		r.Changed++
	}
	return r, nil
}

// record adds a change whose slices are borrowed.
func (t *Tx) record(ctx context.Context, c btree.Change) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	return t.change(ctx, &c)
}
