package ledger

import (
	"bytes"
	"context"
	"iter"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/merge"
)

// Step is a commit that contributed to the value of a key.
type Step struct {
	Commit Commit
	// Entry is the entry of the key in Commit; nil when it is absent.
	Entry *Entry
	// Outcome is the result of a merge for the key: "left" or "right" for the entry of that parent,
	// "new" for a value made by the merge, "deleted" when the merge removed the key. It is "" for a
	// commit that is no merge.
	Outcome string
	// Rule names the rule that decided; "" when only one side had changed the key, and for merges
	// that took one side whole.
	Rule string
	// Pruned reports that older history was given up, so that the writer of the value is unknown:
	// Commit is the oldest known commit with the value. It is the last step.
	Pruned bool
	// Lost are the replaced values: for a commit with one parent the previous value, if any. For a
	// merge they are the entries of the parents that it did not take, absence included, except an
	// entry unchanged since before both sides.
	Lost []LostValue
}

// LostValue is a replaced value.
type LostValue struct {
	// Parent is the parent of the step's commit that had the value.
	Parent *Commit
	// Writer is the commit that wrote or deleted it, or the oldest known commit with it where older
	// history was given up; nil when the key never had a value there.
	Writer *Commit
	// Entry is the value; nil when the key was absent.
	Entry *Entry
}

// Why explains the entry of a key in a commit; the zero id means the handle's head. It yields the
// commits that led to the entry, newest first: the merges that took the value from one side, and
// last the commit that wrote or deleted it, or the merge that made the value. Where older history
// was given up, the last is the oldest commit with the value (Step.Pruned). A key that never had a
// value yields nothing.
//
// Why reads the commits down to the last change of the key, and down to the writers of lost values;
// it holds none of them. at is not pruned while the loop runs, and the values of entries may be
// read until the page is closed. Errors, as the last element: ErrNotFound (no such commit),
// ErrClosed, ErrCorrupt, those of ctx.
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
