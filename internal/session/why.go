package session

import (
	"bytes"
	"context"
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
	return sequence("explain a key", func(yield func(merge.Step) bool) error {
		head, release, err := p.Pin(ctx, at)
		if err != nil {
			return err
		}
		defer release()
		if err := p.EnsureTree(ctx, head); err != nil {
			return err
		}
		return forward(merge.Why(ctx, p.mergeView(), head, key), yield)
	})
}
