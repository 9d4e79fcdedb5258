package session

import (
	"bytes"
	"context"
	"iter"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
)

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
func (p *Page) Why(ctx context.Context, at commit.ID, key []byte) iter.Seq2[merge.Step, error] {
	key = bytes.Clone(key)
	return Sequence("explain a key", func(yield func(merge.Step) bool) error {
		head, release, err := p.Pin(ctx, at)
		if err != nil {
			return err
		}
		defer release()
		return forward(merge.Why(ctx, p.mergeView(), head, key), yield)
	})
}
