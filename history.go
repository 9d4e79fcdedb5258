package ledger

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Log returns the given commits and all their ancestors, each once, by descending generation down
// to the first commit; within a generation the newest first. The zero id means the handle's head.
// Without arguments Log starts from all heads. Errors, as the last element: ErrNotFound, ErrClosed,
// ErrCorrupt, those of ctx.
func (p *Page) Log(ctx context.Context, from ...CommitID) iter.Seq2[Commit, error] {
	return each(p.in.Log(ctx, from...), newCommit)
}

// each returns a sequence with to applied to its elements. The element of an error is zero.
func each[A, B any](seq iter.Seq2[A, error], to func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for a, err := range seq {
			var b B
			if err == nil {
				b = to(a)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// Change is one key whose entry differs between two commits.
type Change struct {
	Key []byte
	// Old and New are the entries; nil where the key is absent. Not both are nil.
	Old, New *Entry
}

// DiffOptions limit a Diff. Nil means everything.
type DiffOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// Start is the lower limit of the keys, inclusive; nil means none.
	Start []byte
}

// Diff returns the keys whose entries differ between two commits, in ascending order; a zero id
// means the handle's head. It skips equal subtrees, so that the cost follows the number of changes.
// Neither commit is pruned while the loop runs; the values of its entries may be read until the
// page is closed. o may be nil. Errors, as the last element: ErrNotFound, ErrClosed, ErrCorrupt,
// those of ctx.
func (p *Page) Diff(ctx context.Context, from, to CommitID, o *DiffOptions) iter.Seq2[Change, error] {
	within := given(o)
	return each(p.in.Diff(ctx, from, to, within.Prefix, within.Start), func(d btree.DiffEntry) Change { return p.newChange(&d) })
}

func (p *Page) newChange(d *btree.DiffEntry) Change {
	return Change{Key: append([]byte{}, d.Key...), Old: p.entry(&d.Left, d.HasLeft), New: p.entry(&d.Right, d.HasRight)}
}

// entry converts a borrowed entry; it returns nil when there is none.
func (p *Page) entry(e *fb.Entry, has bool) *Entry {
	if !has {
		return nil
	}
	out := newEntry(p.in, e, true)
	return &out
}

// Restore makes a new commit on the handle's head with the content of an old one: all of it, or
// only that of the keys that begin with one of prefixes. message is recorded in the new commit; ""
// means "restore" and the short id of the old one. Restore returns the id of the new commit, or of
// the head when nothing differs. An empty prefix means all keys; keys with none of the prefixes
// stay as they are. With a cloud it may fetch the tree of the old commit, as At does. Like Update
// it waits for the page's write turn, and survives a crash when it returns nil. Errors: those of
// At; ErrInvalid (the zero id), ErrTooLarge (message), ErrReadOnly, ErrNoSpace.
func (p *Page) Restore(ctx context.Context, id CommitID, message string, prefixes ...[]byte) (CommitID, error) {
	return p.in.Restore(ctx, id, prefixes, message)
}

// UndoOptions say how Undo works. Nil and the zero value are useful for all commits but merges.
type UndoOptions struct {
	// Parent is the parent with which the commit is compared. A merge needs it: the changes against
	// one parent are those that the other side brought.
	Parent CommitID
	// Message is recorded in the new commit; "" means "undo" and the short id of the commit.
	Message string
	// DryRun only computes what Undo would do: no commit is made, and the result has the head.
	DryRun bool
}

// UndoResult says what Undo has done.
type UndoResult struct {
	// Commit is the new commit, or the head when nothing changed.
	Commit CommitID
	// Changed counts the keys that Undo set back. Kept counts the keys that the commit changed and
	// a later commit wrote again: they stay as they are.
	Changed, Kept int
}

// Undo makes a new commit on the handle's head that removes the effect of the commit c. Each key
// that c changed gets its value in c's parent; where c's value won over others in a later merge, it
// gets the newest of those. A key that a later commit wrote again stays as it is, even if the value
// is the same. Undoing the new commit reverses the undo.
//
// c is the head or an ancestor of it. o may be nil. Like Update, Undo waits for the page's write
// turn, and its result survives a crash when the error is nil. It reads each key in the commits
// between c and the head; trees that are not on this device are fetched. Errors:
// ErrInvalid (the zero id, the first commit, no ancestor of the head, a merge without Parent: the
// error names its parents), ErrNotFound, ErrGone (its parent, or the history above it, was given
// up), ErrNeedsFetch (a tree is not on this device, and there is no cloud), ErrTooLarge (message),
// ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of Sync and of ctx.
func (p *Page) Undo(ctx context.Context, c CommitID, o *UndoOptions) (UndoResult, error) {
	how := given(o)
	r, err := p.in.Undo(ctx, c, how.Parent, how.Message, how.DryRun)
	return UndoResult(r), err
}

// Resolve finds the commit that a revision names:
//
//	HEAD                      the handle's head
//	NAME                      a tag
//	3f2a...                   at least 4 digits of a commit id, when no other begins so
//	2024-05-01, RFC 3339      the newest ancestor of the handle's head that is not younger; a date
//	                          means its end in UTC
//	REV~n                     the nth first parent of REV; ~ alone means ~1. Of a merge, the newer
//	                          parent is the first
//
// They are tried in this order. Errors: ErrNotFound, ErrInvalid (an ambiguous prefix; the error
// lists the candidates), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Resolve(ctx context.Context, revision string) (CommitID, error) {
	return p.in.Resolve(ctx, revision)
}
