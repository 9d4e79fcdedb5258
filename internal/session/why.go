package session

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
)

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
func (p *Page) Why(ctx context.Context, at commit.ID, key []byte) iter.Seq2[merge.Step, error] {
	key = bytes.Clone(key)
	return func(yield func(merge.Step, error) bool) {
		head, release, err := p.Pin(ctx, at)
		if err != nil {
			yield(merge.Step{}, fmt.Errorf("explain a key: %w", err))
			return
		}
		defer release()
		if err := p.EnsureTree(ctx, head); err != nil {
			yield(merge.Step{}, fmt.Errorf("explain a key: %w", err))
			return
		}
		for s, err := range merge.Why(ctx, p.mergeView(), head, key) {
			if err != nil {
				yield(merge.Step{}, fmt.Errorf("explain a key: %w", err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}
