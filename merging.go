package ledger

import (
	"context"
	"fmt"
	"iter"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
)

// MergeResult is one merge of two heads.
type MergeResult struct {
	// Commit is the merge commit, and Left and Right its parents: Left is the lesser by (timestamp,
	// id).
	Commit, Left, Right Commit
	// How tells what it took: "three-way" (key by key), "equal" (both sides had the same content),
	// "subset" (only one side had commits that are no merges), "rest" (neither had: the greater was
	// taken whole), or "known" (the page had the merge already).
	How string
	// Conflicts counts the decisions that Page.Conflicts gives for Commit.
	Conflicts int
}

// MergeError says which heads could not be merged: Left and Right, and Err is the cause. Errors of
// a Resolver or a rules.GroupStrategy are in it.
type MergeError = merge.Error

// Merge merges all durable heads of the page into one, now, and waits until that is durable. It
// does so with Options.Merge.Manual too, which is what it is for; else the heads come together in
// the background. Heads that appear while a resolver thinks are merged next. It returns the merges
// in order, nil when there was one head; with an error, those that had come about before it. Merges
// of one page run one after another; ctx governs the waiting and is what resolvers get. It must not
// be called by an Update closure, a Resolver or a rules.GroupStrategy of the same page, which would
// wait for itself. Errors: *MergeError, ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of
// ctx.
func (p *Page) Merge(ctx context.Context) (results []MergeResult, err error) {
	err = p.in.Call(ctx, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		merged, err := p.shared.merger.Merge(ctx)
		for _, m := range merged {
			results = append(results, MergeResult{
				Commit: newCommit(m.Commit), Left: newCommit(m.Left), Right: newCommit(m.Right), How: howText(m.How), Conflicts: m.Conflicts,
			})
		}
		return err
	})
	return results, err
}

// WaitForMerge waits until the page has one durable head. It has a merge that failed before tried
// again at once, and returns the error of an attempt that is made during the call. Where nothing
// merges by itself, with Options.Merge.Manual or read-only, it fails at once with ErrConflict when
// there are several heads. As to where it must not be called see Merge. Errors: *MergeError,
// ErrConflict, ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) WaitForMerge(ctx context.Context) error { return p.in.Call(ctx, p.shared.merger.Wait) }

func howText(h merge.How) string {
	switch h {
	case merge.Known:
		return "known"
	case merge.Equal:
		return "equal"
	case merge.Subset:
		return "subset"
	case merge.Rest:
		return "rest"
	}
	return "three-way"
}

// Decision is what a merge decided about a key.
type Decision struct {
	Key []byte
	// Outcome is "left", "right", "new" or "deleted", as TakeLeft, TakeRight, TakeNew and TakeNone
	// of a Resolution: what a side had, a value that neither had, or
	// nothing.
	Outcome string
	// Rule names what decided, such as "last one wins".
	Rule string
	// LeftWriter and RightWriter are the commits that had given the key what it had on each side;
	// zero where the rule did not look for them.
	LeftWriter, RightWriter CommitID
	// Left and Right are the entries of the merge's parents, Left of the lesser by (timestamp, id),
	// and Result is that of the merge; nil where the key is absent. Their values may be read until
	// the page is closed.
	Left, Right, Result *Entry
}

// Conflicts yields what a merge commit decided about the keys that begin with prefix, in order of
// keys; nothing for a merge without conflicts. The id is that of a commit with two parents in the
// log, of a MergeResult, or of an EventMerge. The record is one of this repository: a merge that
// came from elsewhere may have none. Errors, as the last element: ErrNotFound, ErrInvalid (the
// commit is no merge), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Conflicts(ctx context.Context, id CommitID, prefix []byte) iter.Seq2[Decision, error] {
	return each(p.in.Conflicts(ctx, id, prefix), func(d session.Decision) Decision {
		out := Decision{
			Key: append([]byte{}, d.Key...), Outcome: outcomeText(d.Outcome), Rule: d.Rule, LeftWriter: d.LeftWriter, RightWriter: d.RightWriter,
		}
		for to, e := range map[**Entry]*fb.Entry{&out.Left: d.Left, &out.Right: d.Right, &out.Result: d.Result} {
			if e != nil {
				*to = p.entry(e, true)
			}
		}
		return out
	})
}

func outcomeText(o merge.Outcome) string {
	switch o {
	case merge.TakeLeft:
		return "left"
	case merge.TakeRight:
		return "right"
	case merge.TakeNone:
		return "deleted"
	}
	return "new"
}
