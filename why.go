package ledger

import (
	"bytes"
	"context"
	"iter"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/merge"
)

// Step is a commit that has a part in the value of a key.
type Step struct {
	Commit Commit
	// Entry is what the key has in Commit; nil when it is absent.
	Entry *Entry
	// Outcome says for a merge what became of the key: "left" or "right" when it has what that
	// parent had, "new" when the merge made a value, "deleted" when the merge removed it. It is ""
	// for a commit that is no merge.
	Outcome string
	// Rule names what decided it; "" when only one side had changed the key, and for merges that
	// took one side whole.
	Rule string
	// Pruned reports that older history was given up, so that nobody knows who wrote the value:
	// Commit is the oldest that is known to have it. It is the last step.
	Pruned bool
	// Lost are the values that gave way: for a commit with one parent the value before it, if there
	// was one. For a merge those of the parents that it did not take, absence included, but not one
	// that had stood unchanged since before both sides.
	Lost []LostValue
}

// LostValue is a value that gave way.
type LostValue struct {
	// Parent is the parent of the step's commit that had it.
	Parent *Commit
	// Writer is the commit that wrote it, or deleted it, or the oldest that is known to have it
	// where older history was given up; nil when the key never had a value there.
	Writer *Commit
	// Entry is the value; nil when the key was absent.
	Entry *Entry
}

// Why tells how a key came to what it has in a commit; the zero id means the handle's head. It
// yields the commits that made it so, newest first: the merges that took the value from one side,
// and last the commit that wrote it, or deleted it; for a value that a merge made, that merge.
// Where older history was given up, the last is the oldest that has the value (Step.Pruned). A key
// that never had a value gives nothing.
//
// The commits down to the last change of the key are read, and those down to the writers of what
// was lost; none is held. at is kept from being pruned while the loop runs, and the values of
// entries may be read until the page is closed. Errors, as the last element: ErrNotFound (no such
// commit), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Why(ctx context.Context, at CommitID, key []byte) iter.Seq2[Step, error] {
	key = bytes.Clone(key)
	return each(p.in.Why(ctx, at, key), func(s merge.Step) Step { return p.newStep(key, &s) })
}

func (p *Page) newStep(key []byte, s *merge.Step) Step {
	out := Step{Commit: newCommit(s.Commit), Entry: p.entryOf(key, &s.Entry, s.Has), Rule: s.Rule, Pruned: s.Pruned}
	if s.Outcome != merge.Undecided {
		out.Outcome = outcomeText(s.Outcome)
	}
	for _, l := range s.Lost {
		out.Lost = append(out.Lost, LostValue{
			Parent: commitOf(l.Parent), Writer: commitOf(l.Writer), Entry: p.entryOf(key, &l.Entry, l.Has),
		})
	}
	return out
}

// entryOf returns the entry of key, nil when it has none.
func (p *Page) entryOf(key []byte, e *fb.Entry, has bool) *Entry {
	named := *e
	named.Key = key
	return p.entry(&named, has)
}
