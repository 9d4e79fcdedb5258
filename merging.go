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
	// How is the kind of merge: "three-way" (key by key), "equal" (both sides had the same
	// content), "subset" (only one side had commits that are no merges), or "rest" (neither had:
	// the greater head was taken whole).
	How string
	// Conflicts counts the decisions that Page.Conflicts yields for Commit.
	Conflicts int
}

// MergeError names the heads that could not be merged, Left and Right, and the cause, Err. It wraps
// errors of a Resolver or a rules.GroupStrategy.
type MergeError = merge.Error

// Merge merges all durable heads of the page into one and waits until that is durable. It is meant
// for Options.ManualMerge; otherwise heads are merged in the background. Heads that appear while a
// resolver runs are merged next. Merge returns the merges in order, nil when there was one head;
// with an error, the merges made before it. Merges of one page run one after another; ctx bounds
// the wait and is passed to resolvers. An Update closure, a Resolver or a rules.GroupStrategy of
// the same page must not call Merge: it would wait for itself. Errors: *MergeError, ErrClosed,
// ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
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

// WaitForMerge waits until the page has one durable head. A merge that failed before is retried at
// once, and the error of an attempt during the call is returned. Without background merges
// (Options.ManualMerge, or read-only) it fails at once with ErrConflict when there are several
// heads. The restrictions on callers of Merge apply. Errors: *MergeError, ErrConflict, ErrClosed,
// ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) WaitForMerge(ctx context.Context) error { return p.in.Call(ctx, p.shared.merger.Wait) }

func howText(h merge.How) string {
	switch h {
	case merge.Equal:
		return "equal"
	case merge.Subset:
		return "subset"
	case merge.Rest:
		return "rest"
	}
	return "three-way"
}

// Decision is the result of a merge for one key in conflict.
type Decision struct {
	Key []byte
	// Outcome is "left", "right", "new" or "deleted", as TakeLeft, TakeRight, TakeNew and TakeNone
	// of a Resolution: the value of a side, a value that neither side had, or none.
	Outcome string
	// Rule names the rule that decided, such as "last one wins".
	Rule string
	// LeftWriter and RightWriter are the commits that wrote the key's value on each side; zero
	// where the rule did not need them.
	LeftWriter, RightWriter CommitID
	// Left and Right are the entries of the merge's parents, Left of the lesser by (timestamp, id),
	// and Result is that of the merge; nil where the key is absent. Their values may be read until
	// the page is closed.
	Left, Right, Result *Entry
	// Pruned reports that a parent of the merge was given up, so that the value that lost is
	// unknown: only the entry of the taken side and Result are set.
	Pruned bool
}

// Conflicts yields the decisions of a merge commit about the keys that begin with prefix, in order
// of keys; nothing for a merge without conflicts. id is a commit with two parents, for example from
// Log, a MergeResult or an EventMerge. Sync sends the decisions of a merge along with it. A merge
// that this device received in a checkpoint has none here. Errors, as the last element:
// ErrNotFound, ErrInvalid (the commit is no merge), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Conflicts(ctx context.Context, id CommitID, prefix []byte) iter.Seq2[Decision, error] {
	return each(p.in.Conflicts(ctx, id, prefix), func(d session.Decision) Decision {
		out := Decision{
			Key: append([]byte{}, d.Key...), Outcome: outcomeText(d.Outcome), Rule: d.Rule, LeftWriter: d.LeftWriter, RightWriter: d.RightWriter,
			Pruned: d.Pruned,
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
