package ledger

import (
	"context"

	"github.com/ledgerd/ledger/internal/session"
)

// PrefetchResult says what a Prefetch brought.
type PrefetchResult struct {
	// Values is the number of values that were looked at, inline ones left out.
	Values int64
	// Pieces and Bytes are what came from the cloud.
	Pieces, Bytes int64
}

// Prefetch brings all values below a prefix, as they are at the handle's head, to this device, so
// that reading them needs no network. Neighbours in the bucket come with one request. When it
// fails, what has come stays. Errors: those of Page.Sync, ErrGone.
func (p *Page) Prefetch(ctx context.Context, prefix []byte) (result PrefetchResult, err error) {
	err = p.View(ctx, func(s *Snapshot) error {
		result, err = s.Prefetch(ctx, prefix, nil)
		return err
	})
	return result, err
}

// Prefetch is Page.Prefetch for the values of a snapshot. progress, when it is not nil, is told
// what has come so far; it must not block.
func (s *Snapshot) Prefetch(ctx context.Context, prefix []byte, progress func(PrefetchResult)) (PrefetchResult, error) {
	var told func(session.PrefetchResult)
	if progress != nil {
		told = func(r session.PrefetchResult) { progress(PrefetchResult(r)) }
	}
	r, err := s.in().Prefetch(ctx, prefix, told)
	return PrefetchResult(r), err
}
